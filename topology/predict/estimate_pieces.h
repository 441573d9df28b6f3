/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_ESTIMATE_PIECES_H
#define PLAIT_TOPOLOGY_PREDICT_ESTIMATE_PIECES_H

#include "topology/plan/traffic.h"
#include "topology/predict/estimate_shape.h"
#include "topology/predict/estimate_work.h"

/* Seconds of the parts of a step, which estimate_time.c adds up and
 * estimate_stages.c passes to the simulation. Traffic is only what computing
 * does not hide. */
struct plait_pieces {
    struct plait_traffic traffic;
    struct plait_work_times work;
    double redone; /* recompute in a layer's backward, besides 2 passes */
    double forward[PLAIT_NAXES],
        backward[PLAIT_NAXES]; /* of a layer: traffic */
    double message;            /* one micro-batch between two stages */
    double tied; /* once a step: gradients of an embedding on both ends */
    double sent, fetched; /* of a layer: activations to the host and back, as
                             far as its passes do not hide that */
    double away;          /* once a step: the optimizer in the host's memory */
};

void plait_pieces_set(const struct plait_shape *shape,
                      struct plait_pieces *pieces);

/* How many ranks apart neighbours along an axis are. */
int plait_pieces_stride(const struct plait_layout *layout,
                        enum plait_axis axis);

/* One pass over a layer, without traffic. */
static inline double plait_pieces_pass(const struct plait_pieces *p)
{
    return p->work.products + p->work.attention + p->work.elementwise +
           p->work.launch;
}

/* The part of a pass that zb-h1 puts off. */
static inline double plait_pieces_deferred(const struct plait_pieces *p)
{
    return p->work.deferred * plait_pieces_pass(p);
}

/* Of a layer: tp, cp and ep traffic. */
static inline double plait_pieces_traffic(const double seconds[PLAIT_NAXES])
{
    return seconds[PLAIT_TP] + seconds[PLAIT_CP] + seconds[PLAIT_EP];
}

/* The forward and the backward of a layer, with the traffic that they wait
 * for. */
static inline double plait_pieces_forward(const struct plait_pieces *p)
{
    return plait_pieces_pass(p) + plait_pieces_traffic(p->forward);
}

static inline double plait_pieces_backward(const struct plait_pieces *p)
{
    return 2 * plait_pieces_pass(p) + p->redone +
           plait_pieces_traffic(p->backward);
}

/* Data-parallel traffic: half an all-reduce (a reduce-scatter or an all-gather)
 * of `bytes` in `calls` pieces, over the ranks that share weights. */
double plait_pieces_half(const struct plait_shape *shape, double bytes,
                         double calls);
/* The sum of gradients that leaves each rank with its shard: such a half, and
 * where a node has a whole replica, an all-reduce of the shard across nodes; or
 * that leaves each rank with all of them, where software does that. */
double plait_pieces_reduce(const struct plait_shape *shape, double bytes,
                           double calls);
/* Seconds that a second of it adds to the computing that hides it. */
double plait_pieces_beside(const struct plait_shape *shape);
/* Whether ZeRO 1 and 2 gather new weights during the next step's first forward
 * pass. */
bool plait_pieces_hides_gather(const struct plait_shape *shape);
/* The number of collectives in which they gather them, of these blocks. */
double plait_pieces_gathers(const struct plait_shape *shape, int blocks);
/* Bytes of a gradient in a collective. */
double plait_pieces_gradient_element(const struct plait_shape *shape);
/* Bytes of a weight in an all-gather. */
double plait_pieces_weight_element(const struct plait_shape *shape);
/* Bytes of a bucket of gradients (topology/plan/cost.h). */
double plait_pieces_bucket_bytes(const struct plait_shape *shape);
/* The number of collectives for the gradients of this many blocks and bytes. */
double plait_pieces_buckets(const struct plait_shape *shape, double bytes,
                            int blocks);
/* Where replicas train apart: the seconds of the sum inside a replica (over cp)
 * and of a step's share of a meeting. *hidden: those behind the computing of
 * the steps of sync.delay, which do not count in it. */
double plait_pieces_meeting(const struct plait_shape *shape,
                            const struct plait_pieces *pieces, double *hidden);

#endif
