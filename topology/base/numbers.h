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

#endif
