/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/optim_private.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/comm/consensus.h"

#define INIT_CHUNK ((size_t)1 << 20) /* elements initialised at a time */

/* The part of tensor t in this rank's shard of its region; 0: none. */
static int slice_of(const struct plait_shards *shards,
                    const struct plait_tensor *t,
                    struct plait_optim_slice *slice)
{
    const struct plait_shard *s = &shards->shard[t->region];
    const struct plait_model *model = shards->model;
    size_t size = plait_dtype_size(shards->state_type), at;

    if (!plait_shard_slice(s, t, &slice->first, &slice->count))
        return 0;
    at = t->offset + slice->first - s->first;
    slice->tensor = t;
    slice->at = at;
    slice->master = s->master ? s->master + at : NULL;
    slice->weight = (char *)s->weight + at * plait_dtype_size(model->type);
    for (int k = 0; k < PLAIT_OPTIM_STATES; k++)
        slice->state[k] = s->state[k] ? (char *)s->state[k] + at * size : NULL;
    return 1;
}

static bool is_offloaded(const struct plait_optim *optim)
{
    return optim->model->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER;
}

static int list_slices(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_model *model = optim->model;

    optim->slices = calloc(model->ntensors, sizeof(*optim->slices));
    if (!optim->slices)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];

        optim->nslices +=
            slice_of(optim->shards, t, &optim->slices[optim->nslices]);
    }
    return 0;
}

static int open_codes(struct plait_optim *optim, struct plait_error *err)
{
    if (!plait_optimizers[optim->model->config->optim.kind].codes)
        return 0;
    optim->codes = plait_optim_codes_create(optim->shards, optim->slices,
                                            optim->nslices, err);
    return optim->codes ? 0 : -1;
}

/* What this rank makes without the others. */
static int make_own(struct plait_optim *optim, struct plait_error *err)
{
    optim->shards = plait_shards_create(optim->model, err);
    if (!optim->shards || plait_shards_add_training(optim->shards, err) < 0)
        return -1;
    if (is_offloaded(optim) &&
        !(optim->host = plait_optim_host_create(optim->shards)))
        return plait_errorf(err, "out of memory");
    if (list_slices(optim, err) < 0 || open_codes(optim, err) < 0 ||
        plait_optim_balance_create(optim, err) < 0 ||
        plait_qk_clip_create(optim, err) < 0)
        return -1;
    return plait_directions_create(optim, err);
}

struct plait_optim *plait_optim_create(struct plait_model *model,
                                       struct plait_error *err)
{
    struct plait_optim *optim = calloc(1, sizeof(*optim));
    int rc = optim ? 0 : plait_errorf(err, "out of memory");

    if (optim) {
        optim->model = model;
        optim->rule = plait_optim_rule(model->config->optim.kind);
        rc = make_own(optim, err);
    }
    /* What follows splits off communicators and sums over the world: a rank
     * without memory for its part must not leave the others waiting there. */
    if (plait_error_consensus(model->mesh->world, rc, err) < 0 ||
        plait_error_consensus(model->mesh->world,
                              plait_directions_open(optim, err), err) < 0 ||
        plait_optim_prepare_step(optim, err) < 0 ||
        plait_optim_list_pieces(optim, err) < 0)
        goto error;
    return optim;

error:
    plait_optim_destroy(optim);
    return NULL;
}

void plait_optim_destroy(struct plait_optim *optim)
{
    int saved = errno;

    if (!optim)
        return;
    plait_optim_forget_step(optim);
    plait_directions_close(optim);
    plait_optim_host_destroy(optim->host);
    plait_optim_balance_destroy(optim);
    plait_qk_clip_destroy(optim);
    plait_optim_codes_destroy(optim->codes);
    free(optim->slices);
    free(optim->pieces);
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

struct plait_shards *plait_optim_shards(const struct plait_optim *optim)
{
    return optim->shards;
}

struct plait_replicas *plait_optim_replicas(const struct plait_optim *optim)
{
    return optim->replicas;
}

void plait_optim_set_replicas(struct plait_optim *optim,
                              struct plait_replicas *replicas)
{
    optim->replicas = replicas;
}

int plait_optim_read(const struct plait_optim *optim, void *to,
                     const void *state, size_t bytes)
{
    const struct plait_shards *s = optim->shards;

    return s->state_ops->to_host(s->state_q, to, state, bytes);
}

int plait_optim_write(const struct plait_optim *optim, void *state,
                      const void *from, size_t bytes)
{
    const struct plait_shards *s = optim->shards;

    return s->state_ops->to_device(s->state_q, state, from, bytes);
}

/* -- weights ------------------------------------------------------------- */

/* Whether gradients are taken beside the masters, as schedule-free optimizers
 * do, and the weights are to be used for that. */
static bool is_ahead(const struct plait_optim *optim)
{
    return plait_optim_is_averaged(&optim->model->config->optim) &&
           !optim->lent;
}

static int lead_masters(struct plait_optim *optim, const struct plait_shard *s)
{
    const struct plait_model *model = optim->model;
    struct plait_update p = {.rule = PLAIT_UPDATE_LEAD,
                             .type = model->type,
                             .beta1 = model->config->optim.betas[0],
                             .step = 1};
    struct plait_update_run run = {.master = s->master,
                                   .state = {s->state[0], s->state[1]},
                                   .grad = s->grad,
                                   .weight = s->weight,
                                   .n = s->part};

    return model->mesh->ops->update(model->mesh->q, &p, &run, 1);
}

/* Computes a shard's weights from its masters. */
static int follow_masters(struct plait_optim *optim,
                          const struct plait_shard *s)
{
    struct plait_model *model = optim->model;

    if (optim->host)
        return plait_optim_host_follow(optim->host, s);
    if (!s->master || (void *)s->master == s->weight)
        return 0;
    if (is_ahead(optim))
        return lead_masters(optim, s);
    return model->mesh->ops->cast(model->mesh->q,
                                  &(struct plait_cast){.to = model->type,
                                                       .from = PLAIT_F32,
                                                       .dst = s->weight,
                                                       .src = s->master,
                                                       .n = s->part});
}

int plait_optim_settle(struct plait_optim *optim)
{
    return plait_shards_await_all(optim->shards);
}

int plait_optim_gather_region(struct plait_optim *optim, int i)
{
    if (optim->host && plait_optim_host_finish(optim->host) < 0)
        return -1;
    return plait_shards_begin_gather(optim->shards, i);
}

int plait_optim_finish_gathering(struct plait_optim *optim)
{
    bool ahead = optim->model->mesh->graphs.ahead;

    for (int i = 0; i < optim->shards->n && !ahead; i++)
        if (plait_shards_finish_gather(optim->shards, i) < 0)
            return -1;
    return 0;
}

/* The model is told of weights that are still gathered once they have arrived,
 * and of those that ZeRO 3 gathers by zero.c. */
void plait_optim_announce(struct plait_optim *optim)
{
    struct plait_shards *shards = optim->shards;

    for (int i = 0; i < shards->n && shards->zero < 3; i++)
        if (!shards->gathering[i].begun)
            plait_model_weights_changed(optim->model, shards->shard[i].region);
}

int plait_optim_refresh(struct plait_optim *optim, struct plait_error *err)
{
    struct plait_model *model = optim->model;

    if (plait_optim_settle(optim) < 0)
        return plait_errorf(err, "cannot gather the weights");
    for (int i = 0; i < optim->shards->n; i++)
        if (follow_masters(optim, &optim->shards->shard[i]) < 0)
            return plait_errorf(err, "cannot cast the weights: %s",
                                plait_queue_error(model->mesh->q));
    if (plait_optim_tell_balance(optim) < 0)
        return plait_errorf(err, "cannot gather the routers' biases");
    return plait_shards_gather_weights(optim->shards, err);
}

int plait_optim_follow_region(struct plait_optim *optim, int i)
{
    if (follow_masters(optim, &optim->shards->shard[i]) < 0)
        return -1;
    return plait_optim_gather_region(optim, i);
}

/* Makes the model's weights what is evaluated, or what gradients are taken
 * at. */
static int lend(struct plait_optim *optim, bool lent, struct plait_error *err)
{
    if (!plait_optim_is_averaged(&optim->model->config->optim))
        return 0;
    optim->lent = lent;
    return plait_optim_refresh(optim, err);
}

int plait_optim_lend(struct plait_optim *optim, struct plait_error *err)
{
    return lend(optim, true, err);
}

int plait_optim_return(struct plait_optim *optim, struct plait_error *err)
{
    return lend(optim, false, err);
}

/* Initialises a slice's masters, or its weights if these have none, only the
 * elements of this rank. */
static int init_slice(struct plait_optim *optim,
                      const struct plait_optim_slice *s, uint64_t seed,
                      float *buffer)
{
    size_t n;

    for (size_t at = 0; at < s->count; at += n) {
        n = s->count - at < INIT_CHUNK ? s->count - at : INIT_CHUNK;
        plait_model_init_tensor(s->tensor, seed, s->first + at, n, buffer);
        if (s->master ? plait_optim_write(optim, s->master + at, buffer,
                                          n * sizeof(*buffer)) < 0
                      : plait_optim_write_bf16(
                            optim, (uint16_t *)s->weight + at, n, buffer) < 0)
            return -1;
    }
    return 0;
}

int plait_optim_init(struct plait_optim *optim, uint64_t seed,
                     struct plait_error *err)
{
    float *buffer = malloc(INIT_CHUNK * sizeof(*buffer));
    int rc = 0;

    if (!buffer)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < optim->nslices && rc == 0; i++)
        rc = init_slice(optim, &optim->slices[i], seed, buffer);
    free(buffer);
    if (rc < 0)
        return plait_errorf(err, "cannot store the initial weights: %s",
                            plait_queue_error(optim->model->mesh->q));
    return plait_optim_refresh(optim, err);
}
