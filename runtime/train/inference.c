/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/inference.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/mesh/graph_capture.h"
#include "runtime/parallel/zero.h"
#include "runtime/train/precision.h"

struct plait_inference {
    struct plait_job_config config;
    struct plait_model *model;
    struct plait_shards *shards;
    struct plait_zero *zero; /* ZeRO 3, else NULL */
    struct plait_pipeline *pipe;
};

static void leave_out_training(struct plait_parallel_config *c)
{
    c->schedule = PLAIT_SCHEDULE_1F1B;
    c->virtual_stages = 1;
    if (c->layout.size[PLAIT_PP] != c->stages.n)
        c->stages.n = 0; /* they were sizes of chunks */
    c->sequence = false;
    /* Activations of one layer at a time are enough. */
    c->recompute = PLAIT_RECOMPUTE_FULL;
    c->offload = PLAIT_OFFLOAD_NONE;
}

static int make_parts(struct plait_inference *inf,
                      const struct plait_job_config *config,
                      struct plait_mesh *mesh, struct plait_error *err)
{
    struct plait_graphs graphs;

    /* A job that could not train is refused here too. The choice itself is
     * not needed: passes without gradients are not captured. */
    if (plait_precision_set(mesh, config->train.precision, err) < 0 ||
        plait_graphs_choose(&graphs, config, mesh, err) < 0)
        return -1;
    inf->config = *config;
    leave_out_training(&inf->config.parallel);
    inf->model = plait_model_create(&inf->config, mesh, err);
    if (!inf->model)
        return -1;
    inf->shards = plait_shards_create(inf->model, err);
    if (!inf->shards)
        return -1;
    if (config->parallel.zero == 3) {
        inf->zero = plait_zero_create(inf->shards, NULL, err);
        if (!inf->zero)
            return -1;
        plait_zero_serve(inf->zero);
    }
    return 0;
}

struct plait_inference *
plait_inference_create(const struct plait_job_config *config,
                       struct plait_mesh *mesh, struct plait_error *err)
{
    struct plait_inference *inf = calloc(1, sizeof(*inf));

    if (!inf) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (make_parts(inf, config, mesh, err) == 0)
        return inf;
    plait_inference_destroy(inf);
    return NULL;
}

void plait_inference_destroy(struct plait_inference *inf)
{
    int saved = errno;

    if (!inf)
        return;
    plait_pipeline_destroy(inf->pipe);
    plait_zero_destroy(inf->zero);
    plait_shards_destroy(inf->shards);
    plait_model_destroy(inf->model);
    free(inf);
    errno = saved;
}

struct plait_shards *plait_inference_shards(struct plait_inference *inf)
{
    return inf->shards;
}

struct plait_model *plait_inference_model(struct plait_inference *inf)
{
    return inf->model;
}

struct plait_pipeline *plait_inference_pipeline(struct plait_inference *inf,
                                                struct plait_error *err)
{
    if (!inf->pipe)
        inf->pipe = plait_pipeline_create(inf->model, 1, 1, err);
    return inf->pipe;
}
