/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_ELASTIC_H
#define PLAIT_RUNTIME_TRAIN_ELASTIC_H

#include "runtime/checkpoint/copies.h"
#include "runtime/train/session.h"

/* A run that goes on after some of its processes have died. The processes that
 * are left make world, session and trainer anew, with a layout of fewer
 * replicas, and load the newest checkpoint. */
struct plait_elastic {
    struct plait_launch launch; /* as the run began */
    char *config_text;          /* NULL: not begun yet */
    double began;               /* Unix time of the first start */
    uint64_t run;               /* tells this run from others */
    double peak;                /* FLOP/s of a rank, 0: not measured yet */
    int64_t reached;            /* the latest step that was made */
    int *members, n;            /* [n] the number of each process, by rank */
    int seats;  /* how many of them have a seat: the first ones */
    int losses; /* in the whole run */
    struct plait_copies *copies; /* in memory, kept across worlds */
    bool copied;                 /* the state was loaded from these copies */
    bool hung;                   /* a rank did not answer for train.timeout */
    bool *silent;                /* by process number: its node was silent */
    int stalled;                 /* losses since the last new step */
    /* This process (anew.h): it has just begun anew, after a loss; how often
     * it has since the last new step. */
    bool anew;
    int lives;
    char busid[16];     /* of the GPU that the life before had */
    int held[2], nheld; /* lock files of its life before, until this one has
                           claimed them */
    struct plait_claim *beats[2]; /* [nheld] NULL: nobody writes it */
    bool begun;                   /* its steps have begun since it began anew */
    bool alone;                   /* its GPU has failed, and nobody is gone */
    /* About the last loss. */
    char who[256];
    double noticed, agreed, rebuilt, loaded; /* plait_clock_now() */
    bool behind;                             /* steps are being repeated */
};

/* Makes the run elastic (sets s->elastic) where the environment asks for it and
 * there are several processes; the caller then does not start
 * plait_comm_watch(). Call it after the session was opened, with the result
 * `rc` of that. Collective over all processes, spare ones too. -1 with err: the
 * session was not opened, or this run cannot be elastic. */
int plait_elastic_begin(struct plait_session *s, int rc,
                        struct plait_elastic *e, struct plait_error *err);
/* The same for a process that has begun anew, with the file `fd` of its life
 * before: it then is as after a loss. -1 always; plait_elastic_lost() says
 * whether it can go on. */
int plait_elastic_resume(struct plait_session *s, struct plait_elastic *e,
                         int fd, struct plait_error *err);
/* What a process without a seat does: wait for the end of the run. 1: it has
 * ended with *outcome (0 or -1); -1 with err: a rank is gone. */
int plait_elastic_wait(struct plait_session *s, int *outcome,
                       struct plait_error *err);
/* Whether what failed in the session failed because a rank is gone. Where the
 * GPU has failed, it waits some seconds for that. */
bool plait_elastic_lost(const struct plait_session *s);
/* Opens the session anew over the processes that are left. 0: args->resume says
 * where to go on from; 1: this process had no seat, and the run has ended, as
 * for plait_elastic_wait(); -1 with err. */
int plait_elastic_again(struct plait_session *s, struct plait_train_args *args,
                        int *outcome, struct plait_error *err);
/* Tells the processes that wait without a seat that the run has ended in
 * order. */
void plait_elastic_end(struct plait_session *s, int outcome);
void plait_elastic_clear(struct plait_elastic *e);

/* On rank 0, before the first step: report the loss and how the run goes on. */
void plait_elastic_report(const struct plait_session *s, int64_t step);
/* Before that report: whether the state came from copies in memory. */
void plait_elastic_note_source(struct plait_session *s, bool copied);
/* hung: the loss was noticed because a rank did not answer. Call it before the
 * session is closed: it asks the heartbeats which nodes are silent. */
void plait_elastic_note_hang(struct plait_session *s, bool hung);
/* Whether the other ranks may have gone on without this process, as after a
 * signal has stopped it. It must then write no more to the run's files. */
bool plait_elastic_outdated(const struct plait_session *s);
/* The steps begin after `step`. s->elastic may be NULL here and in all
 * functions below. */
void plait_elastic_start(struct plait_session *s, int64_t step);
/* A step was made. */
void plait_elastic_step(struct plait_session *s, int64_t step);
/* FLOP/s of all ranks, if measured before the loss; else 0. */
double plait_elastic_peak(const struct plait_session *s);
void plait_elastic_note_peak(struct plait_session *s, double peak);

#endif
