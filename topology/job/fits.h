/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FITS_H
#define PLAIT_TOPOLOGY_JOB_FITS_H

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which sizes and settings go together: the rules across the fields of a
 * configuration and the sizes of a layout, for the parser, the planner and
 * the runtime alike. Layouts are resolved. Each returns 0, or -1 with errno
 * EINVAL and the two values that do not go together in err. */

/* What holds on any layout: the model's own sizes, the settings, and the
 * sizes of ep and dp where the configuration gives them. */
int plait_fits_config(const struct plait_job_config *config,
                      struct plait_error *err);

/* The token that ends a document is one of the vocabulary's. Part of
 * plait_fits_config() where the vocabulary is given; else it is known once the
 * data is. */
int plait_fits_end_token(const struct plait_job_config *config,
                         struct plait_error *err);

/* The section sync goes with the other settings, on `dp` replicas. Part of
 * plait_fits_config(), with 1 where dp is not known, and of plait_fits(). */
int plait_fits_sync(const struct plait_job_config *config, int dp,
                    struct plait_error *err);

/* "; 8 or 12 would fit": the multiples of `unit` nearest to the batch, if there
 * are such. */
void plait_fits_name_nearest(int64_t batch, int64_t unit, char text[64]);

/* The model can be divided along the axes of the layout. */
int plait_fits_model(const struct plait_job_config *config,
                     const struct plait_layout *layout,
                     struct plait_error *err);

/* The tokens of `micro_batch` sequences can be divided among the ranks of a
 * tp group, as sequence parallelism does. */
int plait_fits_micro_batch(const struct plait_job_config *config,
                           const struct plait_layout *layout, int micro_batch,
                           struct plait_error *err);

/* All that a training step needs of a layout: plait_fits_model(),
 * plait_fits_micro_batch(), and a batch of whole micro-batches that the
 * pipeline schedule can run. */
int plait_fits(const struct plait_job_config *config,
               const struct plait_layout *layout, struct plait_error *err);

/* The optimizer goes with its keys and those of the model. Part of
 * plait_fits_config(). */
int plait_fits_optim(const struct plait_job_config *config,
                     struct plait_error *err);

/* Refuses keys that say something of what the model does not have. */
int plait_fits_idle(const struct plait_model_config *model,
                    struct plait_error *err);

/* What tokens choose their experts by. */
int plait_fits_scores(const struct plait_model_config *model,
                      struct plait_error *err);

/* Refuses what can be planned for other software but plait-train cannot do. */
int plait_fits_trainer(const struct plait_job_config *config,
                       struct plait_error *err);

enum plait_gpu_work {
    PLAIT_WORK_TRAIN,    /* forward and backward */
    PLAIT_WORK_EVALUATE, /* forward of whole sequences */
    PLAIT_WORK_EXTEND    /* forward of texts that grow */
};

/* A GPU of NVIDIA's that Plait has kernels for, and what it is to do. */
struct plait_gpu_use {
    int sm;     /* compute capability times ten, 80 or more */
    bool cudnn; /* whether cuDNN is there and used */
    enum plait_gpu_work work;
};

/* The kernels of plait-train fit into the GPU's shared memory. */
int plait_fits_gpu(const struct plait_job_config *config,
                   const struct plait_gpu_use *use, struct plait_error *err);

struct plait_gpu_type;
/* Both, on GPUs of this type with cuDNN, if plait-train is what trains. */
int plait_fits_trainer_on(const struct plait_job_config *config,
                          const struct plait_gpu_type *gpu,
                          struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif
