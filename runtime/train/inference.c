/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/inference.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/mesh/graph_capture.h"
#include "runtime/parallel/zero.h"
#include "runtime/train/precision.h"

struct plait_inference {
    struct plait_model *model;
    struct plait_shards *shards;
    struct plait_zero *zero; /* ZeRO 3, else NULL */
    struct plait_pipeline *pipe;
};

/* One sequence; with sequence parallel as many as make rows that divide over
 * the tp group, which the configured micro-batch does. */
static int micro_batch(const struct plait_job_config *config)
{
    const struct plait_layout *layout = &config->parallel.layout;
    int rows = config->model.seq_len / layout->size[PLAIT_CP];

    if (config->parallel.sequence && rows % layout->size[PLAIT_TP])
        return config->train.micro_batch;
    return 1;
}

static int make_parts(struct plait_inference *inf,
                      const struct plait_job_config *config,
                      struct plait_mesh *mesh, struct plait_error *err)
{
    /* An interleaved schedule wants a multiple of pp micro-batches. */
    int microbatches = plait_model_chunks(&config->parallel) > 1
                           ? mesh->layout.size[PLAIT_PP]
                           : 1;
    struct plait_graphs graphs;

    /* A job that could not train is refused here too. The choice itself is
     * not needed: passes without gradients are not captured. */
    if (plait_precision_set(mesh, config->train.precision, err) < 0 ||
        plait_graphs_choose(&graphs, config, mesh, err) < 0)
        return -1;
    inf->model = plait_model_create(config, mesh, err);
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
    inf->pipe = plait_pipeline_create(inf->model, microbatches,
                                      micro_batch(config), err);
    return inf->pipe ? 0 : -1;
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

struct plait_pipeline *plait_inference_pipeline(struct plait_inference *inf)
{
    return inf->pipe;
}
