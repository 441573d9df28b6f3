/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_SIMULATE_H
#define PLAIT_TOPOLOGY_PREDICT_SIMULATE_H

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"
#include "topology/layout/layout.h"

/* One training step of one pipeline as a timeline: the action lists of the
 * runtime, played with times. All times are seconds. */

/* What one global stage (chunk * stages + rank) costs. */
struct plait_stage_time {
    double forward; /* computing, one micro-batch, and the wait for what is
                       offloaded */
    double backward_input;
    double backward_weight;
    /* tp, cp and ep traffic that computing waits for */
    double forward_comm[PLAIT_NAXES], backward_comm[PLAIT_NAXES];
    double gather; /* ZeRO-3: weights, block after block, each before it is
                      computed with; 0: none */
    int blocks;    /* in which they are gathered, at least 1 */
    double reduce; /* gradients, data parallel; 0: none */
    int buckets;   /* in which gradients are reduced, at least 1 */
};

struct plait_simulation_request {
    enum plait_schedule_kind schedule;
    int stages, chunks, microbatches;
    const struct plait_stage_time *times; /* [chunks * stages] */
    double message;  /* one micro-batch from stage to stage */
    int reduce_each; /* gradients are reduced after every micro-batch (ZeRO 2
                        and 3), not only after the last */
    int in_pass;     /* ZeRO 3 gathers a pass's weights during that pass, which
                        waits for its own gradients too; else one ahead */
    int reduce_late; /* only when a pass has ended, which then waits */
    double beside;   /* seconds that a second of hidden data-parallel traffic
                        adds to the computing that hides it */
    int sums_only;   /* the step and the sums of the ranks are wanted, without
                        spans and what is hidden */
    double tied;     /* gradients of a tied embedding, between the
                        first and the last rank; 0: none */
    double update;   /* the optimizer */
    double gather_updated;   /* ZeRO 1 and 2: all-gather of the new weights */
    const double *slow_rank; /* [stages] computing takes that many times as
                                long; NULL: 1 */
    const double *slow_link; /* [stages] messages between a rank and the one
                                after it; NULL: 1 */
};

enum plait_span_kind {
    PLAIT_SPAN_FORWARD,
    PLAIT_SPAN_BACKWARD,
    PLAIT_SPAN_BACKWARD_INPUT,
    PLAIT_SPAN_BACKWARD_WEIGHT,
    PLAIT_SPAN_UPDATE,
    PLAIT_SPAN_BUBBLE,  /* waits for another rank's computing */
    PLAIT_SPAN_WAIT_PP, /* waits for a message in transfer */
    PLAIT_SPAN_WAIT_DP, /* waits for gradients or weights */
    PLAIT_SPAN_REDUCE,  /* traffic beside the computing: gradients */
    PLAIT_SPAN_GATHER,  /* weights */
    PLAIT_NSPANS
};

extern const char *const plait_span_names[PLAIT_NSPANS];

struct plait_span {
    int rank;
    enum plait_span_kind kind;
    int chunk, microbatch; /* -1 where it has none */
    double begin, end;
};

/* The sums of one rank; all but `hidden` add up to the step. */
struct plait_rank_time {
    double compute;
    double inner; /* tp, cp and ep traffic inside the passes */
    double bubble;
    double wait_pp;
    double wait_dp;
    double hidden; /* data-parallel traffic behind computing */
    int peak;      /* activations held */
};

struct plait_simulation {
    int stages, chunks, microbatches;
    enum plait_schedule_kind schedule;
    double step;
    struct plait_rank_time *ranks; /* [stages] */
    int nspans;
    struct plait_span *spans; /* rank by rank, by begin within a rank's
                                 computing and within its traffic */
};

/* Set all of a request but its slow_*, from the model, with the times that
 * `plait estimate` finds for a layer, the head and the traffic. times: room for
 * one entry a stage, pp * plait_model_chunks(). Refuses what the estimate
 * refuses. */
int plait_simulation_request_set(struct plait_simulation_request *request,
                                 struct plait_stage_time *times,
                                 const struct plait_job_config *config,
                                 const struct plait_layout *layout,
                                 const struct plait_gpu_type *gpu,
                                 struct plait_error *err);

struct plait_simulation *
plait_simulation_create(const struct plait_simulation_request *request,
                        struct plait_error *err);
void plait_simulation_destroy(struct plait_simulation *simulation);

/* The mean over the ranks; `peak` is the most. */
void plait_simulation_mean(const struct plait_simulation *simulation,
                           struct plait_rank_time *mean);

#endif
