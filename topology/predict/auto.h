/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_AUTO_H
#define PLAIT_TOPOLOGY_PREDICT_AUTO_H

#include <stdbool.h>

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
    int alike;        /* how many others have the same tp, pp, ep, ZeRO stage,
                         recompute and offload */
    char reason[112]; /* why it is not the best; "" for the best */
};

struct plait_choices {
    int n;
    struct plait_choice *choice; /* fastest first */
    long tried;     /* choices that divide the model, the batch, the GPUs */
    long too_large; /* of those, how many do not fit in memory */
    long uneven;    /* others, whose ranks do not suit the nodes */
    double least_memory; /* bytes that the smallest needs; if none fits */
    double room;         /* bytes of a GPU's memory that a choice may fill */
};

/* Layouts whose steps differ by less are as fast as far as a prediction can
 * tell: half of the mean error over all recorded runs, 5.6 % (test_records),
 * as layouts of one model share a part of it. */
#define PLAIT_CHOICE_EQUAL 0.03

/* Try every tp (up to a node), cp, ep, pp, dp = the rest, virtual stages, ZeRO
 * stage, micro-batch and recompute that divides. Where that does not fit in
 * memory, try offload, and recompute or offload of as few layers as fit, as far
 * as users of `config`'s framework can choose so (framework.h).
 * plait_estimate() times each. The result is the best `most` of those that fit,
 * one for each tp, pp, ep, ZeRO stage, recompute and offload; the ten best are
 * ranked by plait_simulation_create(), and their times are its. A choice leaves
 * the type's headroom free (gpu_types.h). A size given in
 * `layout` (not PLAIT_AUTO) is kept; model, batch and precision are `config`'s.
 * Sequence parallelism is on wherever tp is. Of equally fast ones, the simplest
 * comes first. NULL only where memory runs out; n is 0 where nothing fits. */
struct plait_choices *plait_auto_create(const struct plait_job_config *config,
                                        const struct plait_layout *layout,
                                        int gpus,
                                        const struct plait_gpu_type *gpu,
                                        int most);
/* The same, but only the sizes are chosen: schedule, ZeRO stage, micro-batch
 * and recompute are `config`'s, for a trainer that has been configured
 * already. */
struct plait_choices *
plait_auto_sizes_create(const struct plait_job_config *config,
                        const struct plait_layout *layout, int gpus,
                        const struct plait_gpu_type *gpu, int most);
/* Keep `choice` if it is one of the best `most`; choices->choice has room for
 * one more. */
void plait_choices_keep(struct plait_choices *choices, int most,
                        struct plait_choice *choice);
/* Simulate the first `n` choices, take their times from that and sort them.
 * Image models and what cannot be simulated keep the estimate's. */
void plait_choices_simulate(struct plait_choices *choices,
                            const struct plait_job_config *config,
                            const struct plait_gpu_type *gpu, int n);
/* Set the reason why each choice but the first is not the best. */
void plait_choices_explain(struct plait_choices *choices);
/* Why there is no choice, where n is 0; returns -1. */
int plait_auto_why(const struct plait_choices *choices,
                   const struct plait_job_config *config, int gpus,
                   const struct plait_gpu_type *gpu, struct plait_error *err);
void plait_choices_destroy(struct plait_choices *choices);

/* Resolve the layout of `gpus` ranks that flags ask for. `given` has a bit for
 * each axis whose size in `layout` comes from a flag. `config` (NULL: none)
 * gives the sizes that its file names and no flag does. Where there is a
 * `config` and a size other than dp is "auto", the fastest sizes that fit are
 * taken for all that are auto, and for dp where it was left out. Otherwise the
 * one that is auto or left out follows from the others. */
int plait_layout_choose(struct plait_layout *layout, unsigned given,
                        const struct plait_job_config *config, int gpus,
                        const struct plait_gpu_type *gpu,
                        struct plait_error *err);

/* The fewest GPUs, in powers of two up to 65,536, that can hold the model's
 * training in any layout; 0: none can. The second without more offloading to
 * the host's memory than `config` has. */
int plait_auto_fewest(const struct plait_job_config *config,
                      const struct plait_gpu_type *gpu);
int plait_auto_fewest_whole(const struct plait_job_config *config,
                            const struct plait_gpu_type *gpu);
/* ... and the fewest on which plait_auto_create() finds a layout, which leaves
 * the type's headroom free. */
int plait_auto_fewest_free(const struct plait_job_config *config,
                           const struct plait_gpu_type *gpu);

/* The smallest change with which a training that does not fit does, on the
 * same GPUs: of the fewest settings, and of those the fastest. A batch, a model
 * and a precision are not changed. false: there is none. */
struct plait_change {
    char flags[160]; /* options of plait estimate */
    double total;    /* bytes of the fullest GPU with it */
    double step_s;
};
bool plait_estimate_change(const struct plait_job_config *config,
                           const struct plait_layout *layout,
                           const struct plait_gpu_type *gpu,
                           struct plait_change *change);

#ifdef __cplusplus
}
#endif
#endif
