/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/zero.h"

#include <errno.h>
#include <stdlib.h>

/* Reductions under way beside the backward of the next blocks. */
#define IN_FLIGHT 2

/* Equal buffers, used again and again. */
struct pool {
    size_t bytes;
    int count, nfree;
    void **free; /* [count], the first nfree are free */
};

struct reduction {
    int region; /* -1: none */
    float *sum; /* [part] of the largest region */
    float *whole;
    struct plait_request *req;
};

struct plait_zero {
    struct plait_shards *shards;
    struct pool weights, grads;
    int *users; /* [regions] of the gathered weights */
    struct reduction reduction[IN_FLIGHT];
    int next; /* reduction to use */
};

static struct plait_parallel *parallel(struct plait_zero *zero)
{
    return zero->shards->model->par;
}

/* -- buffers ------------------------------------------------------------- */

/* A new buffer is zero; what comes back must be as its users want it. */
static void *pool_get(struct plait_zero *zero, struct pool *pool)
{
    struct plait_parallel *par = parallel(zero);
    void **more;

    if (pool->nfree > 0)
        return pool->free[--pool->nfree];
    more = realloc(pool->free, (pool->count + 1) * sizeof(*more));
    if (!more)
        return NULL;
    pool->free = more;
    pool->count++;
    return par->ops->alloc(par->dev, pool->bytes);
}

static void pool_put(struct pool *pool, void *buffer)
{
    pool->free[pool->nfree++] = buffer;
}

static void pool_destroy(struct plait_zero *zero, struct pool *pool)
{
    struct plait_parallel *par = parallel(zero);

    while (pool->nfree > 0)
        par->ops->free(par->dev, pool->free[--pool->nfree]);
    free(pool->free);
}

/* -- weights ------------------------------------------------------------- */

static int gather(struct plait_zero *zero, int i)
{
    struct plait_shard *s = &zero->shards->shard[i];
    struct plait_model *model = zero->shards->model;

    s->region->weight = pool_get(zero, &zero->weights);
    if (!s->region->weight)
        return -1;
    if (plait_comm_all_gather(s->comm, s->weight, s->region->weight, s->part,
                              model->type, model->par->q, NULL) < 0)
        return -1;
    plait_model_weights_changed(model, s->region);
    return 0;
}

int plait_zero_acquire(struct plait_zero *zero, int i, bool gradient)
{
    struct plait_region *region = zero->shards->shard[i].region;

    if (gradient && !region->grad) {
        region->grad = pool_get(zero, &zero->grads);
        if (!region->grad)
            return -1;
    }
    if (zero->shards->zero < 3 || zero->users[i]++ > 0)
        return 0;
    return gather(zero, i);
}

int plait_zero_release(struct plait_zero *zero, int i)
{
    struct plait_region *region = zero->shards->shard[i].region;

    if (zero->shards->zero < 3 || --zero->users[i] > 0)
        return 0;
    pool_put(&zero->weights, region->weight);
    region->weight = NULL;
    return 0;
}

/* -- gradients ----------------------------------------------------------- */

static int complete(struct plait_zero *zero, struct reduction *r)
{
    struct plait_parallel *par = parallel(zero);
    struct plait_shard *s;

    if (r->region < 0)
        return 0;
    s = &zero->shards->shard[r->region];
    r->region = -1;
    if (plait_comm_wait(&r->req, par->q) < 0 ||
        par->ops->add(par->q, PLAIT_F32, s->grad, s->grad, r->sum,
                      s->part) < 0 ||
        par->ops->fill_zero(par->q, r->whole,
                            s->part * s->parts * sizeof(float)) < 0)
        return -1;
    pool_put(&zero->grads, r->whole);
    return 0;
}

int plait_zero_reduce(struct plait_zero *zero, int i)
{
    struct plait_model *model = zero->shards->model;
    struct plait_shard *s = &zero->shards->shard[i];
    struct reduction *r = &zero->reduction[zero->next];

    /* The head of a later micro-batch may have joined an earlier one. */
    if (!s->region->grad)
        return 0;
    if (plait_model_complete_gradient(model, s->region) < 0 ||
        complete(zero, r) < 0)
        return -1;
    zero->next = (zero->next + 1) % IN_FLIGHT;
    r->region = i;
    r->whole = s->region->grad;
    s->region->grad = NULL;
    return plait_comm_reduce_scatter(s->comm, r->whole, r->sum, s->part,
                                     PLAIT_F32, PLAIT_SUM, model->par->q,
                                     &r->req);
}

int plait_zero_finish(struct plait_zero *zero)
{
    int i;

    for (i = 0; i < IN_FLIGHT; i++)
        if (complete(zero, &zero->reduction[(zero->next + i) % IN_FLIGHT]) < 0)
            return -1;
    return 0;
}

/* -- life ---------------------------------------------------------------- */

struct plait_zero *plait_zero_create(struct plait_shards *shards,
                                     struct plait_error *err)
{
    struct plait_zero *zero = calloc(1, sizeof(*zero));
    size_t part = 0, whole = 0;
    int i;

    if (!zero)
        goto error;
    zero->shards = shards;
    for (i = 0; i < shards->n; i++) {
        struct plait_shard *s = &shards->shard[i];

        part = s->part > part ? s->part : part;
        whole = s->part * s->parts > whole ? s->part * s->parts : whole;
    }
    zero->weights.bytes = whole * plait_dtype_size(shards->model->type);
    zero->grads.bytes = whole * sizeof(float);
    zero->users = calloc(shards->n, sizeof(*zero->users));
    if (!zero->users)
        goto error;
    for (i = 0; i < IN_FLIGHT; i++) {
        struct plait_parallel *par = parallel(zero);

        zero->reduction[i].region = -1;
        zero->reduction[i].sum =
            par->ops->alloc(par->dev, part * sizeof(float));
        if (!zero->reduction[i].sum)
            goto error;
    }
    return zero;

error:
    plait_errorf(err, "out of memory");
    plait_zero_destroy(zero);
    errno = ENOMEM;
    return NULL;
}

void plait_zero_destroy(struct plait_zero *zero)
{
    struct plait_parallel *par;
    int saved = errno, i;

    if (!zero)
        return;
    par = parallel(zero);
    for (i = 0; i < IN_FLIGHT; i++)
        if (zero->reduction[i].sum)
            par->ops->free(par->dev, zero->reduction[i].sum);
    pool_destroy(zero, &zero->weights);
    pool_destroy(zero, &zero->grads);
    free(zero->users);
    free(zero);
    errno = saved;
}
