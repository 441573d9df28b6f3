/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_JUDGE_H
#define PLAIT_RUNTIME_STUCK_JUDGE_H

#include <stdint.h>
#include <time.h>

#include "runtime/stuck/record.h"

/* Who the ranks of a run that hangs wait for. Pure: what is known of the ranks
 * goes in, a verdict and its sentence come out. Times are ages in seconds, as
 * the clocks of nodes differ. */

enum plait_stuck_state {
    PLAIT_STUCK_RUNS,
    PLAIT_STUCK_STOPPED, /* by a signal or a debugger */
    PLAIT_STUCK_DEAD,
    PLAIT_STUCK_SILENT, /* its node was heard, and is no more */
    PLAIT_STUCK_UNKNOWN /* nothing was ever heard of it */
};

struct plait_stuck_op {
    uint64_t tag, bytes;
};

struct plait_stuck_group {
    char name[24];
    int first, size;
    uint64_t entered[PLAIT_NSERIES];
    struct plait_stuck_op last[2][PLAIT_RECORD_LAST];
};

/* A rank, as its record says. Of one in a state from DEAD on only rank, host,
 * gpu, pid and state need be known; `phase_age` then is the silence's. */
struct plait_stuck_rank {
    int rank, gpu, pid; /* gpu -1: none */
    char host[64];
    enum plait_stuck_state state;
    enum plait_phase phase;
    double phase_age;
    int64_t step;
    /* What it waits in: its group's index, -1: in nothing. */
    int waits;
    struct plait_stuck_op in;
    int peer; /* of a message: its rank in the group */
    double wait_age;
    char where[128]; /* what the process is blocked in, "": not known */
    int unanswered;  /* its connections that no machine answers on */
    int ngroups;
    struct plait_stuck_group group[PLAIT_RECORD_GROUPS];
};

enum plait_verdict_kind {
    PLAIT_VERDICT_NOTHING,  /* no rank waits for another */
    PLAIT_VERDICT_STATE,    /* the guilty one's state says enough */
    PLAIT_VERDICT_BEHIND,   /* it has not entered what others wait in */
    PLAIT_VERDICT_MESSAGE,  /* it does not send or take what one waits for */
    PLAIT_VERDICT_MISMATCH, /* it entered something else, or other bytes */
    PLAIT_VERDICT_LEFT,     /* it went on from what the others wait in */
    PLAIT_VERDICT_CYCLE,    /* ranks wait for each other */
    PLAIT_VERDICT_TRANSFER, /* all have entered, and it does not move */
    PLAIT_VERDICT_LINKS,    /* what the witness has sent is not acknowledged */
    PLAIT_VERDICT_ALONE     /* nobody waits; it has done nothing longest */
};

struct plait_verdict {
    enum plait_verdict_kind kind;
    int guilty;  /* index among the ranks, -1: none */
    int alike;   /* other ranks in the same bad state, or like the witness, or
                    where nobody waits in the same phase */
    int witness; /* index of the rank that waits for it, or that it differs
                    from; -1: none */
    int group;   /* of the witness, in which it does; -1: none */
    struct plait_stuck_op op, other; /* the witness's, the guilty one's */
    int waiting;                     /* ranks that wait, without the guilty */
    double age;                      /* of the longest wait */
};

/* ranks[n] in ascending order of `rank`. -1 with errno: out of memory. */
int plait_stuck_judge(const struct plait_stuck_rank *ranks, int n,
                      struct plait_verdict *verdict);
/* One sentence without a full stop; `now`: times of day are counted from. */
void plait_stuck_sentence(const struct plait_stuck_rank *ranks, int n,
                          const struct plait_verdict *verdict, time_t now,
                          char *text, size_t size);

#endif
