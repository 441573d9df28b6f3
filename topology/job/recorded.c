/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/recorded.h"

#include "topology/job/model_size.h"

const char *plait_recorded_not(const struct plait_job_config *c,
                               const struct plait_layout *layout)
{
    if (c->parallel.offload)
        return "with parallel.offload the host takes part";
    if (c->train.noise > 0)
        return "with train.noise every sample's loss has a factor of its own";
    if (plait_is_image_model(&c->model))
        return "an image model's running statistics weigh each micro-batch by "
               "its place in the batch";
    if (c->model.experts && layout->size[PLAIT_EP] > 1)
        return "the host counts the tokens that other ranks' experts get";
    if (c->model.experts && c->train.precision == PLAIT_FP8)
        return "in fp8 the host counts the tokens of each expert";
    if (c->parallel.zero > 1 && (c->parallel.schedule == PLAIT_SCHEDULE_GPIPE ||
                                 c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1))
        return "in parallel.schedule gpipe and zb-h1 with ZeRO 2 and 3 the "
               "head's gradient is one of several micro-batches";
    return NULL;
}

/* Launches of a layer for one micro-batch, half of what
 * tests/gpu/emulated/calls.table has for two, and what one costs the host. */
#define LAUNCHES 27
#define LAUNCH_S 5e-6

/* Whether gathering a layer takes longer than the host does to queue it, which
 * is what a replay saves at most. */
static bool is_worth_launches(const struct plait_job_config *c,
                              const struct plait_layout *layout,
                              const struct plait_gpu_type *gpu)
{
    bool near = plait_layout_world(layout) <= gpu->domain;
    double element =
        c->train.precision == PLAIT_FP32 || c->train.precision == PLAIT_TF32
            ? 4
            : 2;
    double bytes = plait_model_parameters(&c->model) / c->model.layers /
                   layout->size[PLAIT_TP] * element;

    return bytes > LAUNCHES * LAUNCH_S * (near ? gpu->link_bw : gpu->nic_bw);
}

bool plait_gathers_ahead(const struct plait_job_config *c,
                         const struct plait_layout *layout,
                         const struct plait_gpu_type *gpu, int microbatches,
                         struct plait_recorded recorded)
{
    const int *size = layout->size;

    if ((c->parallel.zero != 1 && c->parallel.zero != 2) ||
        size[PLAIT_DP] * size[PLAIT_CP] == 1 || plait_sync_parts(&c->sync))
        return false;
    if (!recorded.passes)
        return true;
    /* A head's forward that is queued and its backward that is replayed would
     * have different buffers of its gradient. */
    if (c->parallel.zero == 2 && size[PLAIT_PP] > 1)
        return false;
    if (recorded.whole &&
        (microbatches == 1 || c->train.graph == PLAIT_GRAPH_ON))
        return false;
    return is_worth_launches(c, layout, gpu);
}
