/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_SCHEDULE_H
#define PLAIT_TOPOLOGY_JOB_SCHEDULE_H

#include "topology/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pipeline schedules as action lists: generated here, checked here, run by
 * runtime/parallel and timed by `plait simulate`. Pure: no clock, no comm. */
enum plait_schedule_kind {
    PLAIT_SCHEDULE_NAIVE,       /* one micro-batch in the pipe at a time */
    PLAIT_SCHEDULE_GPIPE,       /* all forwards, then all backwards */
    PLAIT_SCHEDULE_1F1B,        /* at most p - r micro-batches in flight */
    PLAIT_SCHEDULE_INTERLEAVED, /* 1F1B over v chunks per rank */
    PLAIT_SCHEDULE_ZB_H1,       /* 1F1B, weight gradients fill the bubble */
    PLAIT_NSCHEDULES
};

/* One thing a pipeline rank does. SEND and RECV never block the list: a SEND is
 * posted and completes later; a RECV is posted, and the action that needs its
 * data waits for it. A receive is listed one computation ahead of its use where
 * its message has been sent by then, and never earlier.
 *
 * Sends and receives that are adjacent in a list are one group: where messages
 * go through one queue in order (NCCL), post them between ncclGroupStart() and
 * ncclGroupEnd(), or two neighbours may wait for each other. Between two ranks
 * the k-th send is always the k-th receive, so no tags are needed. With two
 * stages both neighbours are the same rank. */
enum plait_action_kind {
    PLAIT_FORWARD,         /* input of a chunk -> its output */
    PLAIT_BACKWARD,        /* output gradient -> input and weight gradients */
    PLAIT_BACKWARD_INPUT,  /* ... -> input gradient only (ZB-H1) */
    PLAIT_BACKWARD_WEIGHT, /* ... -> weight gradients only (ZB-H1) */
    PLAIT_SEND_FORWARD,    /* this chunk's output to the next stage */
    PLAIT_RECV_FORWARD,    /* this chunk's input from the previous stage */
    PLAIT_SEND_BACKWARD,   /* this chunk's input gradient, one stage back */
    PLAIT_RECV_BACKWARD,   /* this chunk's output gradient, from the next */
    PLAIT_NACTIONS
};

/* chunk is local: rank r's chunk c is global stage c * p + r of p * v. */
struct plait_action {
    enum plait_action_kind kind;
    int chunk;
    int microbatch;
};

/* What a pipeline does in a step: all its lists follow from it. */
struct plait_schedule_form {
    enum plait_schedule_kind kind;
    int stages;       /* p: pipeline ranks */
    int chunks;       /* v: model chunks per rank, 1 unless interleaved */
    int microbatches; /* m */
};

struct plait_schedule {
    enum plait_schedule_kind kind;
    int stages;       /* p: pipeline ranks */
    int chunks;       /* v: model chunks per rank, 1 unless interleaved */
    int microbatches; /* m */
    int rank;         /* whose list this is, 0 .. p-1 */
    int nactions;
    struct plait_action *actions;
    int peak; /* most (chunk, micro-batch) activations held at once */
};

/* "naive", "gpipe", "1f1b", "interleaved", "zb-h1" */
extern const char *const plait_schedule_names[PLAIT_NSCHEDULES];

/* The list of one rank. Refuses what the kind cannot do (chunks > 1 unless
 * interleaved over more than one rank, where m is a multiple of p).
 * Interleaved with one chunk is 1F1B. */
struct plait_schedule *
plait_schedule_create(const struct plait_schedule_form *form, int rank,
                      struct plait_error *err);
/* The lists of all ranks, lists[stages], at hardly more than the cost of
 * one. */
int plait_schedule_create_all(const struct plait_schedule_form *form,
                              struct plait_schedule **lists,
                              struct plait_error *err);
void plait_schedule_destroy(struct plait_schedule *schedule);

/* 0 if there is such a schedule; else -1 and the reason. */
int plait_schedule_possible(const struct plait_schedule_form *form,
                            struct plait_error *err);

/* The most micro-batches whose activations one chunk of `rank` holds at once,
 * without making the list. */
int plait_schedule_slots(const struct plait_schedule_form *form, int rank);

/* The most activations of a chunk that `rank` holds at once, over all of its
 * chunks: `peak` of its list, without making it. */
int plait_schedule_held(const struct plait_schedule_form *form, int rank);

#ifdef __cplusplus
}
#endif
#endif
