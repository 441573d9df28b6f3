/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_CALL_H
#define PLAIT_RUNTIME_COMM_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/stuck/record.h"

/* What a rank has entered, as it is sent along with the data, so that ranks
 * that enter different collectives of one group notice it. */
struct plait_call {
    uint64_t what;   /* packed: operation, type, reduction, root, bytes */
    uint64_t number; /* among the group's collectives, from 1 */
    char place[24];  /* "save.c:468": where it was called */
};

/* What a call does. */
struct plait_operation {
    enum plait_op op;
    int type;      /* of the elements, from 0, or -1 for bytes */
    int reduction; /* enum plait_reduce */
    int root;      /* of a broadcast, else 0 */
    uint64_t bytes;
};

/* place: PLAIT_HERE. */
struct plait_call plait_call_make(const struct plait_operation *what,
                                  uint64_t number, const char *place);
/* Whether two ranks, one in each of these calls, are in the same collective.
 * Places are not compared, unless PLAIT_CHECK_COLLECTIVES is 1. */
bool plait_call_same(const struct plait_call *a, const struct plait_call *b);
/* Whether PLAIT_CHECK_COLLECTIVES is 1. */
bool plait_call_strict(void);
/* ... or, really, on another rank. Only after plait_call_strict(). */
void plait_call_be_strict(bool really);

/* A rank of the world, and what it has entered. */
struct plait_caller {
    int rank;
    const char *host;
    const struct plait_call *call;
};

/* "rank 3 (n2) entered all-gather of 16 bytes (sources.c:201) as number 61 of
 * world, rank 0 all-reduce of 8 bytes (save.c:468)". What a peer has sent may
 * have any content. */
void plait_call_tell(const char *group, struct plait_caller a,
                     struct plait_caller b, char *text, size_t size);
/* The same where nothing is known of rank `other` but that it has entered
 * "nothing" or "another". */
void plait_call_tell_alone(const char *group, struct plait_caller a, int other,
                           const char *entered, char *text, size_t size);

#endif
