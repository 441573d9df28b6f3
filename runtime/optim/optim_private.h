/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_OPTIM_PRIVATE_H
#define PLAIT_RUNTIME_OPTIM_OPTIM_PRIVATE_H

#include "runtime/mesh/graph_capture.h"
#include "runtime/optim/codes.h"
#include "runtime/optim/direction.h"
#include "runtime/optim/host.h"
#include "runtime/optim/norms.h"
#include "runtime/optim/optim.h"
#include "runtime/optim/rule.h"
#include "runtime/parallel/shard.h"

/* Runs of one class have the same factors of rate and eps, so that one
 * operation updates them. Without mup all runs are of the first class. */
enum { PLAIT_STEP_CLASSES = 6 }; /* two rates by three eps: plait_mup_scale() */

struct plait_step_class {
    float rate, eps;
};

/* What changes from step to step, on the device because a captured graph reads
 * it. */
struct plait_step_values {
    struct plait_update_now update[PLAIT_STEP_CLASSES];
    float grad_scale, norm;
};

struct plait_optim {
    struct plait_model *model;
    struct plait_shards *shards;
    struct plait_replicas *replicas; /* NULL: there are none; not owned */
    const struct plait_optim_rule *rule;
    int nslices;
    struct plait_optim_slice *slices;
    int npieces;
    struct plait_optim_piece *pieces; /* what a checkpoint holds */
    /* The same slices as arguments of the step's ops; adjacent ones with equal
     * treatment are joined. Region i has the runs from ends[i - 1] to ends[i] -
     * 1. */
    int nruns, nsquares;
    struct plait_update_run *runs;
    bool *directed; /* [nruns] whether it steps along a
                     * direction */
    int nclasses;
    struct plait_step_class classes[PLAIT_STEP_CLASSES];
    unsigned char *class, *class8; /* [nruns], [nruns8] of each run */
    struct plait_floats *squares;  /* lists that this rank adds to the
                                    * norm */
    int *ends;                     /* [regions] */
    double *sum;                   /* device: [2], see clip.c */
    struct plait_step_values *now; /* device */
    struct plait_graph_capture norm, sums, step;
    struct plait_optim_host *host;       /* only with offload */
    struct plait_optim_balance *balance; /* NULL: no router here has a bias */
    struct plait_qk_clip *qk_clip;       /* NULL: optim.qk_clip 0 */
    bool lent;                           /* plait_optim_lend() */
    struct plait_lr_sum rates;           /* of the steps so far */
    /* Only with 8-bit states: runs that are not in the lists above. Region i
     * has those from ends8[i - 1] to ends8[i] - 1. */
    struct plait_optim_codes *codes;
    int nruns8;
    struct plait_update8_run *runs8;
    int *ends8;
    /* Only if the rule has a factor; [nslices] each. */
    struct plait_tensor_sums *tensors;
    double *device_sums, *host_sums;      /* [2] each */
    float *device_factors, *host_factors; /* f of each slice's tensor */
    float *tensor_state;                  /* host */
    /* Only if the rule makes directions: */
    float *own_states[PLAIT_OPTIM_STATES]; /* of all slices; device */
    void *own;                             /* direction.h */
};

/* step.c: lists the runs of the slices, and prepares the factors. Collective
 * over the world if the rule has factors. */
int plait_optim_prepare_step(struct plait_optim *optim,
                             struct plait_error *err);
void plait_optim_forget_step(struct plait_optim *optim);
/* Whether a step rounds stochastically, each tensor by numbers of its own. */
bool plait_optim_draws(const struct plait_optim *optim);
/* step_runs.c: lists them, with their classes. */
void plait_optim_list_runs(struct plait_optim *optim);
/* Whether this rank's copy of a slice is the one counted in sums over the whole
 * model. */
bool plait_optim_counts(const struct plait_optim *optim,
                        const struct plait_optim_slice *slice);

/* clip.c: queues the work, or replays its recorded graph. */
int plait_optim_run_captured(struct plait_optim *optim,
                             struct plait_graph_capture *capture,
                             int (*work)(void *arg));
/* Queues the computation of now->grad_scale from this step's sum of squares,
 * over the world. */
int plait_optim_queue_scale(struct plait_optim *optim, double clip,
                            double factor);

/* balance.c: whether steps move the routers' biases; the same on all ranks. */
bool plait_optim_balances(const struct plait_optim *optim);
int plait_optim_balance_create(struct plait_optim *optim,
                               struct plait_error *err);
void plait_optim_balance_destroy(struct plait_optim *optim);
/* Collective over the ranks that share the layers, which fail together where
 * one cannot read its part. Tells the layers their routers' biases, as the
 * masters are ... */
int plait_optim_tell_balance(struct plait_optim *optim);
/* ... or, without reading these, moved by a step's counts. */
int plait_optim_balance(struct plait_optim *optim);

/* qk_clip.c: gives the model memory for its largest logits. */
int plait_qk_clip_create(struct plait_optim *optim, struct plait_error *err);
void plait_qk_clip_destroy(struct plait_optim *optim);

/* pieces.c: writes n numbers from host memory, rounded to nearest, to the
 * memory of masters and states. */
int plait_optim_write_bf16(const struct plait_optim *optim, uint16_t *data,
                           size_t n, const float *from);
int plait_optim_list_pieces(struct plait_optim *optim, struct plait_error *err);

/* optim.c: starts to gather the region's weights from the shards that their
 * owners have updated. */
int plait_optim_gather_region(struct plait_optim *optim, int region);
/* Waits for them, unless they are gathered during the next step. */
int plait_optim_finish_gathering(struct plait_optim *optim);
/* Tells the model that its weights have changed. */
void plait_optim_announce(struct plait_optim *optim);
/* Computes the region's weights from its masters and starts to gather them. */
int plait_optim_follow_region(struct plait_optim *optim, int region);

#endif
