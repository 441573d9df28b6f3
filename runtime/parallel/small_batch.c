/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/small_batch.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "topology/job/model_size.h"

struct plait_small_norms {
    struct plait_model *model;
    double *sum;                /* device */
    struct plait_floats *lists; /* room for the tensors of a region */
    struct plait_small_batch small;
    int microbatches;
};

/* -- which parts --------------------------------------------------------- */

static const char *against_any(const struct plait_job_config *c,
                               const int *size)
{
    if (plait_sync_parts(&c->sync))
        return "replicas train apart";
    if (c->model.family == PLAIT_RESNET && c->model.norm == PLAIT_NORM_SYNC &&
        size[PLAIT_DP] > 1)
        return "with model.norm sync a rank's gradient depends on all samples";
    if (size[PLAIT_CP] > 1)
        return "context parallel ranks have parts of sequences";
    if (size[PLAIT_EP] > 1)
        return "experts have gradients of other ranks' tokens";
    if (plait_model_shares_table(&c->model) && size[PLAIT_PP] > 1)
        return "the pipeline's ends share the embeddings' gradient";
    return NULL;
}

/* Why single micro-batches cannot be measured, NULL if they can. */
static const char *against_single(const struct plait_job_config *c,
                                  const int *size)
{
    const struct plait_model_config *m = &c->model;

    if (c->parallel.schedule == PLAIT_SCHEDULE_GPIPE ||
        c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        return "in the schedules gpipe and zb-h1 gradients of several "
               "micro-batches are under way at once";
    if (c->parallel.zero >= 2)
        return NULL;
    if (m->experts || m->kv_heads < size[PLAIT_TP] ||
        ((c->parallel.sequence || m->qk_norm || m->mla_kv) &&
         size[PLAIT_TP] > 1))
        return "without ZeRO or dp, experts, sequence parallelism, qk_norm "
               "or mla with tp and tp above kv_heads complete gradients after "
               "the last micro-batch alone";
    return NULL;
}

struct plait_small_batch
plait_small_batch_choose(const struct plait_job_config *c,
                         const struct plait_layout *layout, int batch,
                         int microbatches, const char **why)
{
    const int *size = layout->size;
    int dp = size[PLAIT_DP], parts = dp;
    const char *against = against_any(c, size);

    if (!against && dp * microbatches == 1)
        against = "one micro-batch is the whole batch";
    if (c->parallel.zero >= 2 || dp == 1)
        parts = dp * microbatches;
    if (!against && parts > dp)
        against = against_single(c, size);
    if (against) {
        if (why)
            *why = against;
        return (struct plait_small_batch){0};
    }
    return (struct plait_small_batch){
        .sequences = batch / parts,
        .count = dp == 1 && c->parallel.zero < 2 ? 1 : parts};
}

/* -- norms --------------------------------------------------------------- */

struct plait_small_norms *plait_small_norms_create(struct plait_model *model)
{
    struct plait_small_norms *norms = calloc(1, sizeof(*norms));
    struct plait_mesh *mesh = model->mesh;

    if (!norms)
        return NULL;
    norms->model = model;
    norms->lists = calloc(model->ntensors, sizeof(*norms->lists));
    norms->sum = mesh->ops->alloc(mesh->dev, sizeof(*norms->sum));
    if (norms->lists && norms->sum)
        return norms;
    plait_small_norms_destroy(norms);
    return NULL;
}

void plait_small_norms_destroy(struct plait_small_norms *norms)
{
    struct plait_mesh *mesh;
    int saved = errno;

    if (!norms)
        return;
    mesh = norms->model->mesh;
    mesh->ops->free(mesh->dev, norms->sum);
    free(norms->lists);
    free(norms);
    errno = saved;
}

int plait_small_norms_begin(struct plait_small_norms *norms, int microbatches)
{
    const struct plait_model *model = norms->model;
    const struct plait_layout *layout = &model->mesh->layout;
    int unit = layout->size[PLAIT_DP] * model->config->train.micro_batch;

    norms->small = plait_small_batch_choose(
        model->config, layout, microbatches * unit, microbatches, NULL);
    norms->microbatches = microbatches;
    return model->mesh->ops->fill_zero(model->mesh->q, norms->sum,
                                       sizeof(*norms->sum));
}

int plait_small_norms_add(struct plait_small_norms *norms, int region,
                          const float *grad)
{
    const struct plait_model *model = norms->model;
    struct plait_mesh *mesh = model->mesh;
    struct plait_floats *last = NULL;
    int n = 0;

    for (int i = 0; i < model->ntensors && norms->small.sequences; i++) {
        const struct plait_tensor *t = &model->tensors[i];

        if (t->region != region || t->statistic ||
            mesh->coord.at[PLAIT_TP] % t->tp_replicas != 0)
            continue;
        if (last && last->x + last->n == grad + t->offset) {
            last->n += t->count;
        } else {
            last = &norms->lists[n++];
            *last = (struct plait_floats){grad + t->offset, t->count};
        }
    }
    return n ? mesh->ops->sum_squares(mesh->q, norms->sum, norms->lists, n) : 0;
}

/* A part is the first micro-batch or, with dp > 1, all of a rank's. */
int plait_small_norms_reach(struct plait_small_norms *norms, int region,
                            int microbatches)
{
    const struct plait_model *model = norms->model;
    bool alone = model->mesh->layout.size[PLAIT_DP] == 1;

    if (microbatches != (alone ? 1 : norms->microbatches))
        return 0;
    return plait_small_norms_add(norms, region, model->regions[region].grad);
}

int plait_small_norms_queue(struct plait_small_norms *norms,
                            struct plait_small_batch *small, double *pinned)
{
    struct plait_mesh *mesh = norms->model->mesh;

    *small = norms->small;
    return mesh->ops->copy_out(mesh->q, pinned, norms->sum, sizeof(*pinned));
}

int plait_small_norms_read(struct plait_small_norms *norms,
                           struct plait_small_batch *small, double *sum)
{
    struct plait_mesh *mesh = norms->model->mesh;

    *small = norms->small;
    return mesh->ops->to_host(mesh->q, sum, norms->sum, sizeof(*sum));
}
