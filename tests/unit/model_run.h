/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_MODEL_RUN_H
#define PLAIT_TESTS_UNIT_MODEL_RUN_H

#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "model_util.h"
#include "tap.h"

/* A model with weights, gradients and activations that a test runs by hand, as
 * the trainer would, without optimizer and schedule. */
struct run {
    struct plait_mesh mesh;
    struct plait_comm *self;
    struct plait_model *model;
    void *weights;
    float *grads;
    double *loss;
};

static inline void give_up(const char *what, const struct plait_error *err)
{
    printf("Bail out! %s: %s\n", what, err ? err->text : "failed");
    exit(1);
}

/* Opens device and queue of `ops`, and a group of one rank for every axis. */
static inline void open_device(struct run *r, const struct plait_ops *ops)
{
    struct plait_error err;

    r->mesh.ops = ops;
    r->mesh.dev = ops->device_create(0, 1);
    r->mesh.q = ops->queue_create(r->mesh.dev, 0);
    r->self = plait_comm_create(PLAIT_COMM_SELF, ops, r->mesh.dev, NULL, &err);
    if (!r->self)
        give_up("self", &err);
    for (int i = 0; i < PLAIT_NGROUPS; i++)
        r->mesh.group[i] = r->self;
}

/* Weights that reveal mistakes: ten times the usual deviation, and biases and
 * norms whose elements differ. */
static inline void lively(const struct plait_tensor *t, float *out)
{
    struct plait_tensor noise = *t;
    float *more = malloc(t->count * sizeof(*more));

    noise.init_std = 0.2;
    plait_model_init_tensor(&noise, 5, 0, noise.count, more);
    for (size_t i = 0; i < t->count; i++)
        out[i] = more[i] + (t->init_std > 0 ? 0 : t->init_const);
    free(more);
}

static inline void set_tensor(struct run *r, const struct plait_tensor *t,
                              const float *values)
{
    const struct plait_ops *ops = r->mesh.ops;
    struct plait_region *region = &r->model->regions[t->region];
    float *wide = ops->alloc(r->mesh.dev, t->count * sizeof(*wide));
    char *to =
        (char *)region->weight + t->offset * plait_dtype_size(r->model->type);

    ops->to_device(r->mesh.q, wide, values, t->count * sizeof(*wide));
    ops->cast(r->mesh.q, &(struct plait_cast){.to = r->model->type,
                                              .from = PLAIT_F32,
                                              .dst = to,
                                              .src = wide,
                                              .n = t->count});
    ops->queue_sync(r->mesh.q);
    ops->free(r->mesh.dev, wide);
    plait_model_weights_changed(r->model, region);
}

static inline void clear_grads(struct run *r)
{
    r->mesh.ops->fill_zero(r->mesh.q, r->grads,
                           r->model->count * sizeof(*r->grads));
}

/* mesh and its groups must be set; `slots`: micro-batches in flight. */
static inline void open_model(struct run *r,
                              const struct plait_job_config *config, int slots)
{
    const struct plait_ops *ops = r->mesh.ops;
    struct plait_error err;
    size_t size;

    r->model = plait_model_create(config, &r->mesh, &err);
    if (!r->model || plait_model_reserve(r->model, slots,
                                         config->train.micro_batch, &err) < 0)
        give_up("model", &err);
    size = plait_dtype_size(r->model->type);
    r->weights = ops->alloc(r->mesh.dev, r->model->count * size);
    r->grads = ops->alloc(r->mesh.dev, r->model->count * sizeof(*r->grads));
    r->loss = ops->alloc(r->mesh.dev, 2 * sizeof(*r->loss));
    for (int i = 0; i < r->model->nregions; i++) {
        struct plait_region *g = &r->model->regions[i];

        g->weight = (char *)r->weights + g->begin * size;
        g->grad = r->grads + g->begin;
    }
    for (int i = 0; i < r->model->ntensors; i++) {
        const struct plait_tensor *t = &r->model->tensors[i];
        float *v = malloc(t->count * sizeof(*v));

        lively(t, v);
        set_tensor(r, t, v);
        free(v);
    }
}

static inline void close_model(struct run *r)
{
    const struct plait_ops *ops = r->mesh.ops;

    plait_model_destroy(r->model);
    ops->free(r->mesh.dev, r->weights);
    ops->free(r->mesh.dev, r->grads);
    ops->free(r->mesh.dev, r->loss);
}

static inline void close_run(struct run *r)
{
    const struct plait_ops *ops = r->mesh.ops;

    close_model(r);
    plait_comm_destroy(r->self);
    ops->queue_destroy(r->mesh.q);
    ops->device_destroy(r->mesh.dev);
}

static inline float *grad_of(const struct run *r, const struct plait_tensor *t)
{
    float *v = malloc(t->count * sizeof(*v));

    r->mesh.ops->to_host(r->mesh.q, v,
                         r->model->regions[t->region].grad + t->offset,
                         t->count * sizeof(*v));
    return v;
}

/* What gradients are of: with the loss of model.mtp_layers by its weight. */
static inline double take_loss(struct run *r)
{
    const struct plait_model_config *m = &r->model->config->model;
    double loss[2];

    r->mesh.ops->to_host(r->mesh.q, loss, r->loss, sizeof(loss));
    r->mesh.ops->fill_zero(r->mesh.q, r->loss, sizeof(loss));
    return loss[0] + (m->mtp_layers ? m->mtp_loss * loss[1] : 0);
}

/* Tokens, some of which repeat, and targets, one of which is masked. */
static inline struct plait_batch
make_batch(const struct plait_job_config *config, int32_t *tokens,
           int32_t *targets)
{
    int n = config->train.micro_batch * config->model.seq_len;
    struct plait_batch b = {.batch = config->train.micro_batch,
                            .seq_len = config->model.seq_len,
                            .tokens = tokens,
                            .targets = targets,
                            .loss_scale = 1};

    for (int i = 0; i < n; i++) {
        tokens[i] = (i * i * 7 + i / 3) % config->model.vocab;
        targets[i] = (i * 31 + 5) % config->model.vocab;
    }
    targets[n / 2] = -1;
    targets[0] = config->model.vocab - 1;
    return b;
}

#endif
