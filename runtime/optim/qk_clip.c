/* SPDX-License-Identifier: Apache-2.0 */
/* QK-clip (Kimi K2, arXiv 2507.20534, section 2.1). After the optimizer's step,
 * a head whose largest attention logit S of the step was above tau has the rows
 * of its query and key weights, and of their biases, scaled such that the same
 * input would make it tau: with gamma = tau / S, both by sqrt(gamma). Where
 * several heads share their keys, the key rows stay and the query rows are
 * scaled by gamma, as the paper does with its shared rotary keys: no head is
 * changed for another's sake. The masters are scaled, and of schedule-free
 * optimizers also what their gradients are taken at, of which S is. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/optim/optim_private.h"
#include "topology/job/model_size.h"

struct plait_qk_clip {
    int heads;      /* of a layer of the whole model */
    size_t npeaks;  /* logits of this rank's heads */
    float *none;    /* [npeaks] -inf */
    float *peaks;   /* [npeaks] as read from model->peaks */
    size_t nlogits; /* of all layers and heads */
    double *logits; /* [layers, heads] of the whole model */
    bool *clipped;  /* [regions] whether a head of the region's layer was */
};

static int forget_peaks(struct plait_optim *optim)
{
    struct plait_mesh *mesh = optim->model->mesh;
    const struct plait_qk_clip *x = optim->qk_clip;

    return mesh->ops->to_device(mesh->q, optim->model->peaks, x->none,
                                x->npeaks * sizeof(*x->none));
}

int plait_qk_clip_create(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_model *model = optim->model;
    struct plait_mesh *mesh = model->mesh;
    const struct plait_model_config *c = &model->config->model;
    struct plait_qk_clip *x;

    if (model->config->optim.qk_clip == 0)
        return 0;
    optim->qk_clip = x = calloc(1, sizeof(*x));
    if (!x)
        return plait_errorf(err, "out of memory");
    x->heads = c->heads;
    x->npeaks = model->npeaks;
    x->nlogits = (size_t)c->layers * c->heads;
    x->none = calloc(x->npeaks + 1, sizeof(*x->none));
    x->peaks = calloc(x->npeaks + 1, sizeof(*x->peaks));
    x->logits = calloc(x->nlogits, sizeof(*x->logits));
    x->clipped = calloc(model->nregions + 1, sizeof(*x->clipped));
    model->peaks =
        mesh->ops->alloc(mesh->dev, (x->npeaks + 1) * sizeof(*model->peaks));
    if (!x->none || !x->peaks || !x->logits || !x->clipped || !model->peaks)
        return plait_errorf(err, "out of memory");
    for (size_t i = 0; i < x->npeaks; i++)
        x->none[i] = -INFINITY;
    if (forget_peaks(optim) < 0)
        return plait_errorf(err, "cannot store the largest logits: %s",
                            plait_queue_error(mesh->q));
    return 0;
}

void plait_qk_clip_destroy(struct plait_optim *optim)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct plait_qk_clip *x = optim->qk_clip;

    if (!x)
        return;
    mesh->ops->free(mesh->dev, optim->model->peaks);
    optim->model->peaks = NULL;
    free(x->none);
    free(x->peaks);
    free(x->logits);
    free(x->clipped);
    free(x);
}

/* A layer's tensors whose rows are those of heads: attention.q.weight,
 * attention.q.bias. */
static bool is_of(const struct plait_tensor *t, const char *what)
{
    return t->layer >= 0 && strstr(t->name, what);
}

static bool is_query(const struct plait_tensor *t)
{
    return is_of(t, ".attention.q.");
}

static bool is_key(const struct plait_tensor *t)
{
    return is_of(t, ".attention.k.");
}

/* The largest logits of all heads, which each rank gets. */
static int share_logits(struct plait_optim *optim)
{
    const struct plait_model *model = optim->model;
    struct plait_mesh *mesh = model->mesh;
    struct plait_qk_clip *x = optim->qk_clip;
    int width = plait_model_head_dim(&model->config->model);

    if (mesh->ops->to_host(mesh->q, x->peaks, model->peaks,
                           x->npeaks * sizeof(*x->peaks)) < 0)
        return -1;
    for (size_t i = 0; i < x->nlogits; i++)
        x->logits[i] = -INFINITY;
    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];
        double *to;

        if (!is_query(t) || t->ndim != 2)
            continue;
        to = x->logits + (size_t)t->layer * x->heads;
        for (size_t h = 0; h < t->local_shape[0] / width; h++)
            to[t->local_first / width + h] = x->peaks[t->peaks + h];
    }
    return plait_comm_host_all_reduce(mesh->world, x->logits, x->nlogits,
                                      PLAIT_MAX);
}

/* The factor of a head's rows: 1, or below it. */
static double factor_of(const struct plait_optim *optim,
                        const struct plait_tensor *t, size_t head)
{
    const struct plait_job_config *c = optim->model->config;
    const struct plait_qk_clip *x = optim->qk_clip;
    bool shared = c->model.kv_heads < c->model.heads;
    double logit;

    if (shared && is_key(t))
        return 1;
    logit = x->logits[(size_t)t->layer * x->heads + head];
    if (!(logit > c->optim.qk_clip))
        return 1;
    return shared ? c->optim.qk_clip / logit : sqrt(c->optim.qk_clip / logit);
}

/* Elements begin .. end - 1 of a slice's tensor, as far as the slice has them:
 * its masters and, where gradients are taken beside them, how far. */
static int scale_range(struct plait_optim *optim,
                       const struct plait_optim_slice *s, size_t begin,
                       size_t end, double factor)
{
    const struct plait_shards *shards = optim->shards;
    struct plait_scale scale = {.type = PLAIT_F32, .s = (float)factor};

    begin = begin < s->first ? s->first : begin;
    end = end > s->first + s->count ? s->first + s->count : end;
    if (begin >= end)
        return 0;
    scale.x = s->master + (begin - s->first);
    scale.n = end - begin;
    if (shards->state_ops->scale(shards->state_q, &scale) < 0)
        return -1;
    if (!plait_optim_is_averaged(&optim->model->config->optim))
        return 0;
    scale.x = (float *)s->state[0] + (begin - s->first);
    return shards->state_ops->scale(shards->state_q, &scale);
}

static int scale_heads(struct plait_optim *optim)
{
    int width = plait_model_head_dim(&optim->model->config->model);

    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];
        const struct plait_tensor *t = s->tensor;
        size_t each = width * t->local_shape[1];

        if (!is_query(t) && !is_key(t))
            continue;
        for (size_t h = 0; h < t->local_shape[0] / width; h++) {
            double factor = factor_of(optim, t, t->local_first / width + h);

            if (factor < 1 &&
                scale_range(optim, s, h * each, (h + 1) * each, factor) < 0)
                return -1;
        }
    }
    return 0;
}

static bool is_clipped(const struct plait_optim *optim,
                       const struct plait_tensor *t)
{
    size_t width = plait_model_head_dim(&optim->model->config->model);

    if (!is_query(t) && !is_key(t))
        return false;
    for (size_t h = 0; h < t->local_shape[0] / width; h++)
        if (factor_of(optim, t, t->local_first / width + h) < 1)
            return true;
    return false;
}

/* The weights follow where a head was clipped. The ranks that share a region
 * have the same heads and all logits, and gather the same ones. */
static int follow_clipped(struct plait_optim *optim)
{
    const struct plait_model *model = optim->model;
    bool *clipped = optim->qk_clip->clipped;

    memset(clipped, 0, model->nregions * sizeof(*clipped));
    for (int i = 0; i < model->ntensors; i++)
        if (is_clipped(optim, &model->tensors[i]))
            clipped[model->tensors[i].region] = true;
    for (int i = 0; i < model->nregions; i++)
        if (clipped[i] && plait_optim_follow_region(optim, i) < 0)
            return -1;
    if (plait_optim_finish_gathering(optim) < 0)
        return -1;
    plait_optim_announce(optim);
    return 0;
}

int plait_optim_qk_clip(struct plait_optim *optim, bool stepped,
                        double *max_logit)
{
    double tau = optim->model->config->optim.qk_clip, max = -INFINITY;
    const struct plait_qk_clip *x = optim->qk_clip;

    if (!x)
        return 0;
    if (share_logits(optim) < 0 || forget_peaks(optim) < 0)
        return -1;
    for (size_t i = 0; i < x->nlogits; i++)
        max = fmax(max, x->logits[i]);
    if (stepped && max > tau &&
        (plait_optim_settle(optim) < 0 || scale_heads(optim) < 0 ||
         follow_clipped(optim) < 0))
        return -1;
    *max_logit = max;
    return 0;
}
