/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_SIMULATE_STATE_H
#define PLAIT_TOPOLOGY_PREDICT_SIMULATE_STATE_H

#include <stdbool.h>

#include "topology/predict/simulate.h"

/* Shared by simulate.c, which runs the passes, and simulate_close.c, which ends
 * the step after the last of them. */

/* A message between two neighbours: posted by both ends, then transferred. */
struct message {
    double sent;    /* < 0: not posted yet */
    double arrived; /* < 0: not known yet */
};

/* The messages from a rank to one neighbour, in the order of both ends. */
struct channel {
    int sends, recvs, done;
    double free, *posted; /* [room] of the receiver */
    struct message *messages;
    double seconds; /* of one message */
};

struct actor {
    struct plait_schedule *list;
    int next;
    double clock;   /* its computing so far */
    double traffic; /* its data-parallel traffic so far */
    double weights; /* when the next computation's have been gathered */
    double first;   /* when the first block's of these have been */
    int blocks;     /* of these */
    double late;    /* seconds of gradients to reduce after all passes */
    double owed;    /* traffic so far that has not slowed computing yet */
    bool gathered;  /* the first computation's weights were requested */
    int *number;    /* [nactions] of a receive: its place in its channel */
};

struct simulator {
    const struct plait_simulation_request *r;
    struct plait_simulation *out;
    struct actor *actors;     /* [stages] */
    struct channel *channels; /* [2 * stages]: to the next, to the previous */
    int room;                 /* of spans */
};

/* Append a span to the output, unless it is empty; a: the action it belongs
 * to, NULL: none. -1: out of memory. */
int simulator_add_span(struct simulator *s, int rank, enum plait_span_kind kind,
                       const struct plait_action *a, double begin, double end);

/* Whether the gradients of this computation are reduced now. */
bool simulator_reduces(const struct simulator *s,
                       const struct plait_stage_time *t,
                       const struct plait_action *a);
/* Seconds of a pass's own gradients that are reduced while it runs, from begin
 * to end. */
double simulator_reduced_within(const struct simulator *s, int rank,
                                const struct plait_action *a, double begin,
                                double end);
/* After the last pass: the rest of the gradients, the norm over all ranks, the
 * update, the new weights; then sum the traffic for which no rank waited. -1:
 * out of memory. */
int simulator_close_step(struct simulator *s);

#endif
