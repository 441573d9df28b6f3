/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/optim.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/parallel/shard.h"

struct plait_optim {
    struct plait_model *model;
    struct plait_shards *shards;
    int nslices;
    struct plait_optim_slice *slices;
    struct plait_request **gathering; /* [regions] */
    double *sum;    /* device */
    float *scale;   /* device */
};

/* What of tensor t lies in its region's shard of this rank. */
static int slice_of(const struct plait_shard *s, const struct plait_tensor *t,
                    struct plait_optim_slice *slice)
{
    size_t begin = t->offset, end = t->offset + t->count;

    if (begin < s->first)
        begin = s->first;
    if (end > s->first + s->owned)
        end = s->first + s->owned;
    if (begin >= end)
        return 0;
    slice->tensor = t;
    slice->first = begin - t->offset;
    slice->count = end - begin;
    slice->master = s->master + (begin - s->first);
    slice->m = s->m + (begin - s->first);
    slice->v = s->v + (begin - s->first);
    return 1;
}

struct plait_optim *plait_optim_create(struct plait_model *model,
                                       struct plait_error *err)
{
    struct plait_optim *optim = calloc(1, sizeof(*optim));
    struct plait_parallel *par = model->par;
    int i;

    if (!optim) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    optim->model = model;
    optim->shards = plait_shards_create(model, err);
    if (!optim->shards)
        goto error;
    optim->slices = calloc(model->ntensors, sizeof(*optim->slices));
    optim->gathering =
        calloc(optim->shards->n, sizeof(*optim->gathering));
    optim->sum = par->ops->alloc(par->dev, sizeof(*optim->sum));
    optim->scale = par->ops->alloc(par->dev, sizeof(*optim->scale));
    if (!optim->slices || !optim->gathering || !optim->sum || !optim->scale) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    for (i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];

        optim->nslices += slice_of(&optim->shards->shard[t->region], t,
                                   &optim->slices[optim->nslices]);
    }
    return optim;

error:
    plait_optim_destroy(optim);
    return NULL;
}

void plait_optim_destroy(struct plait_optim *optim)
{
    struct plait_parallel *par;
    int saved = errno;

    if (!optim)
        return;
    par = optim->model->par;
    par->ops->free(par->dev, optim->sum);
    par->ops->free(par->dev, optim->scale);
    free(optim->slices);
    free(optim->gathering);
    plait_shards_destroy(optim->shards);
    free(optim);
    errno = saved;
}

int plait_optim_slices(const struct plait_optim *optim,
                       const struct plait_optim_slice **slices)
{
    *slices = optim->slices;
    return optim->nslices;
}

struct plait_shards *plait_optim_shards(struct plait_optim *optim)
{
    return optim->shards;
}

/* -- weights ------------------------------------------------------------- */

/* The weights everybody reads follow the shards their owners changed: the
 * region's begin to. ZeRO 3 gathers block by block when needed. */
static int gather_region(struct plait_optim *optim, int i)
{
    struct plait_model *model = optim->model;
    struct plait_shard *s = &optim->shards->shard[i];

    if (optim->shards->zero == 3 || s->parts == 1)
        return 0;
    return plait_comm_all_gather(s->comm, s->weight, s->region->weight,
                                 s->part, model->type, model->par->q,
                                 &optim->gathering[i]);
}

static int finish_gathering(struct plait_optim *optim)
{
    struct plait_model *model = optim->model;
    int i;

    if (optim->shards->zero == 3)
        return 0;
    for (i = 0; i < optim->shards->n; i++) {
        if (plait_comm_wait(&optim->gathering[i], model->par->q) < 0)
            return -1;
        plait_model_weights_changed(model, optim->shards->shard[i].region);
    }
    return 0;
}

int plait_optim_refresh(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_model *model = optim->model;
    const struct plait_ops *ops = model->par->ops;
    int i;

    for (i = 0; i < optim->shards->n; i++) {
        struct plait_shard *s = &optim->shards->shard[i];

        if ((void *)s->master != s->weight &&
            ops->cast(model->par->q, model->type, s->weight, PLAIT_F32,
                      s->master, s->part) < 0)
            return plait_errorf(err, "cannot cast the weights: %s",
                                plait_queue_error(model->par->q));
        if (gather_region(optim, i) < 0)
            return plait_errorf(err, "cannot gather the weights");
    }
    if (finish_gathering(optim) < 0)
        return plait_errorf(err, "cannot gather the weights");
    return 0;
}

int plait_optim_init(struct plait_optim *optim, uint64_t seed,
                     struct plait_error *err)
{
    struct plait_parallel *par = optim->model->par;
    float *host = NULL;
    size_t room = 0;
    int i, rc = 0;

    for (i = 0; i < optim->nslices; i++)
        if (optim->slices[i].tensor->count > room)
            room = optim->slices[i].tensor->count;
    host = malloc(room * sizeof(*host) + 1);
    if (!host)
        return plait_errorf(err, "out of memory");
    for (i = 0; i < optim->nslices && rc == 0; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];

        plait_model_init_tensor(optim->model, s->tensor, seed, host);
        rc = par->ops->to_device(par->q, s->master, host + s->first,
                                 s->count * sizeof(*host));
    }
    free(host);
    if (rc < 0)
        return plait_errorf(err, "cannot store the initial weights: %s",
                            plait_queue_error(par->q));
    return plait_optim_refresh(optim, err);
}

/* -- the step ------------------------------------------------------------ */

static float *slice_grad(const struct plait_optim *optim,
                         const struct plait_optim_slice *slice)
{
    const struct plait_shard *s = &optim->shards->shard[slice->tensor->region];

    return s->grad + (slice->master - s->master);
}

/* Of equal copies, one rank's counts. */
static bool counts(const struct plait_optim *optim,
                   const struct plait_optim_slice *slice)
{
    const struct plait_tensor *t = slice->tensor;
    const struct plait_shard *s = &optim->shards->shard[t->region];
    const struct plait_coord *at = &optim->model->par->coord;

    if (s->parts == 1 && plait_comm_rank(s->comm) != 0)
        return false;
    if (s->replicas && plait_comm_rank(s->replicas) != 0)
        return false;
    if (t->tied && at->at[PLAIT_PP] != 0)
        return false;
    return at->at[PLAIT_TP] % t->tp_replicas == 0;
}

int plait_optim_sum_squares(struct plait_optim *optim, double *sum)
{
    struct plait_parallel *par = optim->model->par;
    const struct plait_ops *ops = par->ops;
    int i;

    if (ops->fill_zero(par->q, optim->sum, sizeof(*optim->sum)) < 0)
        return -1;
    for (i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];

        if (counts(optim, s) &&
            ops->sum_squares(par->q, optim->sum, slice_grad(optim, s),
                             s->count) < 0)
            return -1;
    }
    return ops->to_host(par->q, sum, optim->sum, sizeof(*sum));
}

static int step_slice(struct plait_optim *optim,
                      const struct plait_optim_slice *s,
                      struct plait_adamw *p)
{
    struct plait_model *model = optim->model;
    const struct plait_shard *shard =
        &optim->shards->shard[s->tensor->region];
    char *weight = shard->weight;

    p->weight_decay = s->tensor->decay ? model->config->optim.weight_decay : 0;
    if ((void *)weight == shard->master)
        weight = NULL;
    else
        weight += (s->master - shard->master) * plait_dtype_size(model->type);
    return model->par->ops->adamw(model->par->q, p, s->master, s->m, s->v,
                                  slice_grad(optim, s), model->type, weight,
                                  s->count);
}

int plait_optim_step(struct plait_optim *optim, double lr, float grad_scale,
                     int64_t step)
{
    const struct plait_optim_config *c = &optim->model->config->optim;
    struct plait_parallel *par = optim->model->par;
    struct plait_adamw p = {
        .lr = lr,
        .beta1 = c->betas[0],
        .beta2 = c->betas[1],
        .eps = c->eps,
        .step = step,
        .grad_scale = optim->scale,
    };
    int i, next = 0;

    if (par->ops->to_device(par->q, optim->scale, &grad_scale,
                            sizeof(grad_scale)) < 0)
        return -1;
    /* A region's weights are gathered beside the step of the next. */
    for (i = 0; i < optim->shards->n; i++) {
        for (; next < optim->nslices &&
               optim->slices[next].tensor->region == i; next++)
            if (step_slice(optim, &optim->slices[next], &p) < 0)
                return -1;
        if (gather_region(optim, i) < 0)
            return -1;
    }
    return finish_gathering(optim);
}
