/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TEXT_CHOOSE_H
#define PLAIT_RUNTIME_TEXT_CHOOSE_H

#include <stdint.h>

/* How the next token is drawn from its logits. */
struct plait_sampling {
    double temperature; /* of the softmax; 0: the likeliest token, of equals the
                           one with the lowest number */
    int top_k;          /* draw from the k likeliest tokens; 0: from all */
    double top_p; /* draw from the fewest likely ones that together have this
                     probability (Holtzman et al., arXiv:1904.09751); 1: from
                     all */
    uint64_t seed;
};

/* Draws the token after `position` tokens that text number `text` was given.
 * The result depends on the arguments alone, whatever the layout. -1: a logit
 * is no number (ERANGE), or out of memory (ENOMEM). */
int plait_choose_token(const struct plait_sampling *choice, const float *logits,
                       int n, int text, int64_t position);

#endif
