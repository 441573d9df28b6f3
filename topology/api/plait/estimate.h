/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_ESTIMATE_H
#define PLAIT_ESTIMATE_H

#include <plait/config.h>
#include <plait/error.h>
#include <plait/export.h>
#include <plait/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The memory and time that training a gpt2 or llama model takes, estimated
 * without a GPU. */
struct plait_job_estimate;

/* New figures are added at the end, so that the numbers keep their meaning. */
enum plait_figure {
    PLAIT_PARAMETERS,
    PLAIT_FLOPS_PER_STEP, /* including those of recompute */
    /* Bytes on the GPU that holds the most. */
    PLAIT_MEMORY_WEIGHTS,
    PLAIT_MEMORY_GRADIENTS,
    PLAIT_MEMORY_OPTIMIZER,
    PLAIT_MEMORY_ACTIVATIONS,
    PLAIT_MEMORY_BUFFERS,
    PLAIT_MEMORY_TOTAL, /* of the five above */
    PLAIT_MEMORY_HOST,  /* host memory, for what is offloaded */
    PLAIT_MEMORY_GPU,   /* the GPU's capacity */
    PLAIT_STEP_SECONDS,
    PLAIT_BUBBLE_SECONDS, /* the pipeline's idle time in a step */
    PLAIT_TOKENS_PER_SECOND,
    PLAIT_TFLOPS_PER_GPU, /* 1e12 FLOP/s */
    PLAIT_MFU,            /* model FLOP/s over the GPU's peak, 0 .. 1 */
    PLAIT_NFIGURES
};

/* Estimate a configuration on GPUs of a type ("h100") in a layout (NULL: in the
 * sizes that the configuration names). The caller owns the estimate, which
 * keeps no pointer to what it was made from. NULL: `err` says what does not fit
 * together. */
PLAIT_EXPORT struct plait_job_estimate *
plait_job_estimate_create(const struct plait_job_config *config,
                          const struct plait_layout *layout,
                          const char *gpu_type, struct plait_error *err);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void
plait_job_estimate_destroy(struct plait_job_estimate *estimate);

/* One figure, in the unit that stands beside it. -1 with EINVAL: no such
 * figure. */
PLAIT_EXPORT double
plait_job_estimate_figure(const struct plait_job_estimate *estimate,
                          enum plait_figure figure);

#ifdef __cplusplus
}
#endif
#endif
