/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_JUDGE_H
#define PLAIT_RUNTIME_STUCK_JUDGE_H

#include <stdint.h>
#include <time.h>

#include "runtime/stuck/record.h"

/* Finds the rank that the others of a hanging run wait for. Pure: takes what is
 * known of each rank, gives a verdict and a sentence that explains it. Times
 * are ages in seconds, as the clocks of nodes differ. */

enum plait_stuck_state {
    PLAIT_STUCK_RUNS,
    PLAIT_STUCK_STOPPED, /* by a signal or a debugger */
    PLAIT_STUCK_DEAD,
    PLAIT_STUCK_SILENT, /* its node was heard once and is not any more */
    PLAIT_STUCK_UNKNOWN /* nothing was ever heard of it */
};

struct plait_stuck_op {
    uint64_t tag, bytes;
};

struct plait_stuck_group {
    char name[24];
    int first, size;
    int index; /* this rank's among them; -1: not known */
    uint64_t entered[PLAIT_NSERIES];
    struct plait_stuck_op last[2][PLAIT_RECORD_LAST];
};

/* A rank, as its record says. From state DEAD on only rank, host, gpu, pid and
 * state need be set; phase_age then is how long it has been silent. */
struct plait_stuck_rank {
    int rank, gpu, pid; /* gpu -1: none */
    char host[64];
    enum plait_stuck_state state;
    enum plait_phase phase;
    double phase_age;
    double idle; /* since it last did anything (record.h: moved) */
    int64_t step;
    /* Index of the group that it waits in, -1: it does not wait. */
    int waits;
    struct plait_stuck_op in;
    int peer; /* of a message: the other rank's index in the group */
    double wait_age;
    char where[128]; /* what the process is blocked in, "": not known */
    int unanswered;  /* its connections whose other machine does not answer */
    int ngroups;
    struct plait_stuck_group group[PLAIT_RECORD_GROUPS];
};

enum plait_verdict_kind {
    PLAIT_VERDICT_NOTHING,  /* no rank waits for another */
    PLAIT_VERDICT_STATE,    /* it is dead, stopped or silent */
    PLAIT_VERDICT_BEHIND,   /* it has not entered what others wait in */
    PLAIT_VERDICT_MESSAGE,  /* it does not send or take what another expects */
    PLAIT_VERDICT_MISMATCH, /* it entered another operation, or other bytes */
    PLAIT_VERDICT_LEFT,     /* it has left what others still wait in */
    PLAIT_VERDICT_CYCLE,    /* ranks wait for each other */
    PLAIT_VERDICT_TRANSFER, /* all have entered, but nothing moves */
    PLAIT_VERDICT_LINKS,    /* what the witness has sent is not acknowledged */
    PLAIT_VERDICT_ALONE     /* no rank waits; this one was idle longest */
};

struct plait_verdict {
    enum plait_verdict_kind kind;
    int guilty;  /* index among the ranks, -1: none */
    int alike;   /* other ranks: in the same bad state; for LINKS, like the
                    witness; for ALONE, in the same phase */
    int witness; /* index of the rank that waits for the guilty one or differs
                    from it; -1: none */
    int group;   /* the group of the witness in question; -1: none */
    struct plait_stuck_op op, other; /* of the witness, of the guilty */
    int waiting;                     /* ranks that wait, without the guilty */
    double age;                      /* of the longest wait */
};

/* ranks[n] in ascending order of `rank`. -1 with errno: out of memory. */
int plait_stuck_judge(const struct plait_stuck_rank *ranks, int n,
                      struct plait_verdict *verdict);
/* Writes one sentence without a full stop. `now` turns ages into times of
 * day. */
void plait_stuck_sentence(const struct plait_stuck_rank *ranks, int n,
                          const struct plait_verdict *verdict, time_t now,
                          char *text, size_t size);

#endif
