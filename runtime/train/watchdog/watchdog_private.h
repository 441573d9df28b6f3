/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_WATCHDOG_PRIVATE_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_WATCHDOG_PRIVATE_H

#include <pthread.h>
#include <stdint.h>

#include "runtime/train/watchdog/watchdog.h"

enum { PLAIT_WATCHDOG_TIMES = 63 }; /* steps that the median is over */
/* For how long ranks of other nodes leave it to the first node to report. */
#define PLAIT_WATCHDOG_OTHER_NODE_S 1.5

struct plait_watchdog {
    struct plait_comm *world;
    struct plait_hang *hang;
    int seconds; /* or PLAIT_WATCHDOG_AUTO */
    double growth;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    double since; /* when the step began */
    double woken; /* when this process was continued from a stop in this step;
                     0: it was not stopped */
    double times[PLAIT_WATCHDOG_TIMES]; /* of steps, the last ones */
    int ntimes, next;
    double limit;      /* 0: none */
    int64_t step;      /* 0: none has begun */
    const char *stage; /* before the first step; NULL: none with a limit */
    bool stepping, leave, noted;
    bool spare;   /* the others go on without a rank that hangs */
    double given; /* when this rank gave up; 0: not yet */
    int phase;    /* seconds in which something must move; 0: for ever */
    /* The thread's own. */
    struct {
        double next;      /* when to judge again */
        double ask, wait; /* when to ask all nodes again; how long after that */
        double found;     /* when it was proved that ranks cannot go on; 0: it
                             is not */
        bool all;         /* ... by what all nodes said */
        uint64_t mark;
        bool quiet; /* nothing has moved for too long */
    } judge;
};

/* For the watch thread. Standard error may be a pipe that nobody reads: that
 * must not keep the run from ending. A line this short is written as a whole or
 * not at all. */
void plait_watchdog_say(const char *line);
/* How long after a limit this rank reports. */
double plait_watchdog_delay(const struct plait_watchdog *dog);
/* Whether the others of an elastic run have gone on already, and said so. */
bool plait_watchdog_is_left(const struct plait_watchdog *dog);
/* Ends the run, or in an elastic one goes on without who does not answer. Under
 * the lock. */
void plait_watchdog_leave(struct plait_watchdog *dog);
/* Ends all ranks, of an elastic run too. */
void plait_watchdog_end_all(struct plait_watchdog *dog);

/* watchdog_judge.c: judges the ranks, if it is time to, not under the lock: the
 * thread that trains must not wait for this. */
void plait_watchdog_judge(struct plait_watchdog *dog, double now);

#endif
