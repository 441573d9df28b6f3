/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_GENERATE_CHOOSE_H
#define PLAIT_RUNTIME_GENERATE_CHOOSE_H

#include <stdint.h>

/* How the next token is drawn from its logits. */
struct plait_choice {
    double temperature; /* of the softmax; 0: the likeliest token, the lowest
                           number of several */
    int top_k;          /* of the k likeliest tokens alone; 0: of all */
    double top_p;       /* of the fewest likely ones that together have this
                           probability (Holtzman et al., arXiv:1904.09751);
                           1: of all */
    uint64_t seed;
};

/* The token after `position` tokens that text number `text` was given: a
 * function of the arguments alone, whatever the layout. -1: the logits are no
 * numbers (ERANGE), or there is no memory (ENOMEM). */
int plait_choose_token(const struct plait_choice *choice, const float *logits,
                       int n, int text, int64_t position);

#endif
