/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_ELASTIC_H
#define PLAIT_RUNTIME_TRAIN_ELASTIC_H

#include "runtime/checkpoint/copies.h"
#include "runtime/train/session.h"

/* A run that goes on in the processes that are left when some have died:
 * within them, world, session and trainer are made anew, under a layout with
 * fewer replicas, and the state comes from the newest checkpoint. */
struct plait_elastic {
    struct plait_launch launch;  /* as it began */
    char *config_text;           /* NULL: it has not begun */
    double began;                /* Unix time */
    double peak;                 /* FLOP/s of a rank, 0: not measured yet */
    int64_t reached;             /* the step that was made last */
    int *members, n;             /* [n] the numbers of its processes by rank */
    int seats;                   /* of them: the first have some */
    int losses;                  /* all */
    struct plait_copies *copies; /* in memory, of any of its worlds */
    bool copied;                 /* the state came from those */
    bool hung;                   /* a rank did not answer for train.timeout */
    bool *silent;                /* by number: its machine did not then */
    int stalled;                 /* since a step was made for the first time */
    /* Of the last loss. */
    char who[256];
    double noticed, agreed, rebuilt, loaded; /* plait_trace_now() */
    bool behind;                             /* steps are made again */
};

/* After the session was opened with `rc`, and the watch is not kept then. Where
 * the environment does not ask for it, or there is one process, s->elastic
 * stays NULL. Collective, of spare processes too. -1 with err: it was not
 * opened, or this run cannot be elastic. */
int plait_elastic_begin(struct plait_session *s, int rc,
                        struct plait_elastic *e, struct plait_error *err);
/* What a process without a seat does: 1, the run has ended with *outcome (0 or
 * -1); -1 with err: a rank is gone. */
int plait_elastic_wait(struct plait_session *s, int *outcome,
                       struct plait_error *err);
/* Whether what failed in the session failed because a rank is gone. */
bool plait_elastic_lost(const struct plait_session *s);
/* The session over those that are left. 0: args->resume says where to go on
 * from; 1: this process had no seat, as plait_elastic_wait(); -1 with err. */
int plait_elastic_again(struct plait_session *s, struct plait_train_args *args,
                        int *outcome, struct plait_error *err);
/* The run has ended in order, for those that wait without a seat. */
void plait_elastic_end(struct plait_session *s, int outcome);
void plait_elastic_clear(struct plait_elastic *e);

/* Of the first rank: what is said of the loss, before the first step. */
void plait_elastic_report(const struct plait_session *s, int64_t step);
/* Where the state came from, before that. */
void plait_elastic_note_source(struct plait_session *s, bool copied);
/* Whether the loss was noticed because a rank did not answer; while the
 * heartbeats of the session are there, which know of other machines. */
void plait_elastic_note_hang(struct plait_session *s, bool hung);
/* The others may have gone on without this process, while it was stopped: what
 * it has to write is not theirs any more. */
bool plait_elastic_outdated(const struct plait_session *s);
/* The steps begin after `step`. s->elastic may be NULL in all that follow. */
void plait_elastic_start(struct plait_session *s, int64_t step);
/* A step was made. */
void plait_elastic_step(struct plait_session *s, int64_t step);
/* Of all ranks, if it was measured before the loss; 0. */
double plait_elastic_peak(const struct plait_session *s);
void plait_elastic_note_peak(struct plait_session *s, double peak);

#endif
