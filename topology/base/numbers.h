/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_NUMBERS_H
#define PLAIT_TOPOLOGY_BASE_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* A list of whole numbers, or of pairs of them, as long as the file has it. */
struct plait_numbers {
    bool is_auto; /* the file says "auto" instead */
    int n;        /* numbers, or pairs */
    int64_t *at;  /* malloc'ed: [n], or the pairs one after the other */
};

/* A list of at most so many real numbers. */
enum { PLAIT_REALS_MOST = 128 };

struct plait_reals {
    int n;
    double at[PLAIT_REALS_MOST];
};

static inline bool plait_reals_equal(const struct plait_reals *a,
                                     const struct plait_reals *b)
{
    bool equal = a->n == b->n;

    for (int i = 0; equal && i < a->n; i++)
        equal = a->at[i] == b->at[i];
    return equal;
}

#endif
