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

/* What changes from step to step; on the device, so that a captured graph reads
 * it. */
struct plait_step_values {
    struct plait_update_now update;
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
    /* The same slices, as the step's ops take them, neighbours that are
     * treated alike joined to one; region i has the runs before ends[i]. */
    int nruns, nsquares;
    struct plait_update_run *runs;
    bool *directed;                    /* [nruns] stepped along a direction */
    struct plait_floats *squares;      /* what this rank adds to the norm */
    int *ends;                         /* [regions] */
    struct plait_gathering *gathering; /* [regions] */
    double *sum;                       /* device: [2], see clip.c */
    struct plait_step_values *now;     /* device */
    struct plait_graph_capture norm, sums, step;
    struct plait_optim_host *host; /* with offload alone */
    /* With states of 8 bits alone: runs that are in none of the above, region
     * i has those before ends8[i]. */
    struct plait_optim_codes *codes;
    int nruns8;
    struct plait_update8_run *runs8;
    int *ends8;
    /* Only where the rule has a factor; [nslices] each. */
    struct plait_tensor_sums *tensors;
    double *device_sums, *host_sums;      /* [2] each */
    float *device_factors, *host_factors; /* f of each slice's tensor */
    float *tensor_state;                  /* host */
    /* Only where the rule makes directions: */
    float *own_states[PLAIT_OPTIM_STATES]; /* of all slices; device */
    void *own;                             /* direction.h */
};

/* step.c: lists the runs of the slices, and what the factors need. Collective
 * over the world where the rule has factors. */
int plait_optim_prepare_step(struct plait_optim *optim,
                             struct plait_error *err);
void plait_optim_forget_step(struct plait_optim *optim);
/* Whether this rank's copy of a slice is the one that enters sums over the
 * whole model. */
bool plait_optim_counts(const struct plait_optim *optim,
                        const struct plait_optim_slice *slice);

/* clip.c: queue the work, or repeat it as it was recorded. */
int plait_optim_run_captured(struct plait_optim *optim,
                             struct plait_graph_capture *capture,
                             int (*work)(void *arg));
/* Queue what makes now->grad_scale of this step's sum of squares, over the
 * world. */
int plait_optim_queue_scale(struct plait_optim *optim, double clip,
                            double factor);

/* pieces.c */
int plait_optim_list_pieces(struct plait_optim *optim, struct plait_error *err);

/* optim.c: whether the step puts a region's weights together from several
 * owners' parts. */
bool plait_optim_gathers(const struct plait_optim *optim, int region);
/* The weights everybody reads follow the shards their owners changed: the
 * region's begin to. */
int plait_optim_gather_region(struct plait_optim *optim, int region);
int plait_optim_finish_gathering(struct plait_optim *optim);
/* The model learns that its weights have changed. */
void plait_optim_announce(struct plait_optim *optim);

#endif
