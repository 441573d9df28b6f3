/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_AUTO_H
#define PLAIT_TOPOLOGY_PREDICT_AUTO_H

#include "topology/predict/estimate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One way to train a model on some GPUs. */
struct plait_choice {
    struct plait_layout layout;
    struct plait_parallel_config parallel; /* schedule, zero, recompute, ... */
    int micro_batch;
    struct plait_estimate estimate;
    int alike; /* others of its tp, pp, ep, ZeRO stage, recompute, offload */
    char reason[112]; /* why it is not the best one; "" for the best */
};

struct plait_choices {
    int n;
    struct plait_choice *choice; /* fastest first */
    long tried;     /* layouts that divide the model, the batch, the GPUs */
    long too_large; /* of those, how many do not fit in memory */
    double least_memory; /* bytes that the smallest of them needs */
};

/* Every tp (up to a node), cp, ep, pp, dp = the rest, virtual stages, ZeRO
 * stage, micro-batch and recompute that divides, and where it does not fit,
 * offload, and recompute or offload of as few layers as do, as far as
 * `config`'s framework can be told so (framework.h), timed by plait_estimate;
 * the best `most` of those that fit, one for each tp, pp, ep, ZeRO stage,
 * recompute and offload. A size given in `layout` (not PLAIT_AUTO) is kept;
 * model, batch and precision are `config`'s. Sequence parallelism is on
 * wherever tp is. Of equally fast ones, the plainest comes first. NULL only
 * where memory runs out; n is 0 where nothing fits. */
struct plait_choices *plait_auto_create(const struct plait_job_config *config,
                                        const struct plait_layout *layout,
                                        int gpus,
                                        const struct plait_gpu_type *gpu,
                                        int most);
/* The same, but only the sizes are chosen: schedule, ZeRO stage, micro-batch
 * and recompute are `config`'s, as a trainer has been told already. */
struct plait_choices *
plait_auto_sizes_create(const struct plait_job_config *config,
                        const struct plait_layout *layout, int gpus,
                        const struct plait_gpu_type *gpu, int most);
/* Why there is no choice, where n is 0; returns -1. */
int plait_auto_why(const struct plait_choices *choices,
                   const struct plait_job_config *config, int gpus,
                   const struct plait_gpu_type *gpu, struct plait_error *err);
void plait_choices_destroy(struct plait_choices *choices);

/* The resolved layout of `gpus` ranks that flags ask for; a bit in `given`
 * for each axis whose size in `layout` comes from a flag. `config` (NULL:
 * none) gives the sizes that its file names and no flag does. Where it is
 * there and a size other than dp is "auto", the fastest sizes that fit are
 * taken for all that are auto, and for dp where it was left out. Otherwise
 * arithmetic answers: the one that is auto or left out. */
int plait_layout_choose(struct plait_layout *layout, unsigned given,
                        const struct plait_job_config *config, int gpus,
                        const struct plait_gpu_type *gpu,
                        struct plait_error *err);

/* The fewest GPUs, in powers of two up to 65,536, that can hold the model's
 * training in any layout; 0: none can. */
int plait_auto_fewest(const struct plait_job_config *config,
                      const struct plait_gpu_type *gpu);

#ifdef __cplusplus
}
#endif
#endif
