/* SPDX-License-Identifier: Apache-2.0 */
/* The public library: what a configuration costs in memory and time. */
#include "topology/api/plait/estimate.h"

#include <errno.h>
#include <stdlib.h>

#include "topology/base/error.h"
#include "topology/predict/estimate.h"

struct plait_job_estimate {
    double figure[PLAIT_NFIGURES];
};

/* Resolve the layout that a configuration names. Sizes that are left to be
 * inferred are 1. */
static int config_layout(const struct plait_job_config *config,
                         struct plait_layout *layout, struct plait_error *err)
{
    *layout = config->parallel.layout;
    return plait_layout_resolve(layout, plait_layout_given(layout), err);
}

static void set_figures(double figure[PLAIT_NFIGURES],
                        const struct plait_estimate *e,
                        const struct plait_gpu_type *gpu)
{
    figure[PLAIT_PARAMETERS] = e->parameters;
    figure[PLAIT_FLOPS_PER_STEP] = e->flops_per_step;
    figure[PLAIT_MEMORY_WEIGHTS] = e->memory.weights;
    figure[PLAIT_MEMORY_GRADIENTS] = e->memory.gradients;
    figure[PLAIT_MEMORY_OPTIMIZER] = e->memory.optimizer;
    figure[PLAIT_MEMORY_ACTIVATIONS] = e->memory.activations;
    figure[PLAIT_MEMORY_BUFFERS] = e->memory.buffers;
    figure[PLAIT_MEMORY_TOTAL] = e->memory.total;
    figure[PLAIT_MEMORY_HOST] = e->memory.host;
    figure[PLAIT_MEMORY_GPU] = gpu->memory;
    figure[PLAIT_STEP_SECONDS] = e->step_s;
    figure[PLAIT_BUBBLE_SECONDS] = e->bubble_s;
    figure[PLAIT_TOKENS_PER_SECOND] = e->tokens_per_s;
    figure[PLAIT_TFLOPS_PER_GPU] = e->tflops_per_gpu;
    figure[PLAIT_MFU] = e->mfu;
}

struct plait_job_estimate *
plait_job_estimate_create(const struct plait_job_config *config,
                          const struct plait_layout *layout,
                          const char *gpu_type, struct plait_error *err)
{
    struct plait_job_estimate *estimate;
    struct plait_gpu_type gpu;
    struct plait_layout own;
    struct plait_estimate e;

    if (plait_gpu_type_find(gpu_type, &gpu, err) < 0)
        return NULL;
    if (!layout) {
        if (config_layout(config, &own, err) < 0)
            return NULL;
        layout = &own;
    }
    if (plait_estimate(config, layout, &gpu, &e, err) < 0)
        return NULL;
    estimate = malloc(sizeof(*estimate));
    if (!estimate) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    set_figures(estimate->figure, &e, &gpu);
    return estimate;
}

void plait_job_estimate_destroy(struct plait_job_estimate *estimate)
{
    int saved = errno;

    free(estimate);
    errno = saved;
}

double plait_job_estimate_figure(const struct plait_job_estimate *estimate,
                                 enum plait_figure figure)
{
    if ((unsigned)figure < PLAIT_NFIGURES)
        return estimate->figure[figure];
    errno = EINVAL;
    return -1;
}
