/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/shard.h"

#include <errno.h>
#include <stdlib.h>

/* Parts start where vector instructions and cache lines like it. */
#define PART_ALIGN 64

static size_t whole(const struct plait_shard *s)
{
    return s->part * s->parts;
}

/* Whether to go over nodes in steps, after what that costs. */
static bool in_steps(const struct plait_shards *shards,
                     const struct plait_nodewise *nodes, size_t bytes)
{
    const struct plait_parallel *par = shards->model->par;
    const struct plait_parallel_config *c = &shards->model->config->parallel;

    return c->shard_group == PLAIT_SHARD_ALL &&
           plait_nodewise_pays(par, nodes, c->all_reduce, bytes);
}

static void cut(struct plait_shards *shards, struct plait_shard *s,
                struct plait_region *region)
{
    struct plait_parallel *par = shards->model->par;
    const struct plait_nodewise *nodes =
        region->expert ? &par->expert : &par->dense;
    size_t end, align = PART_ALIGN;
    int index;

    s->region = region;
    s->comm =
        par->group[region->expert ? PLAIT_GROUP_EXPERT_DP : PLAIT_GROUP_DP_CP];
    if (shards->zero &&
        in_steps(shards, nodes, region->count * sizeof(float))) {
        s->steps = nodes;
    } else if (nodes->inside && shards->zero &&
               shards->model->config->parallel.shard_group ==
                   PLAIT_SHARD_NODE) {
        s->comm = nodes->inside;
        s->replicas = nodes->across;
    } else if (nodes->inside && !shards->zero) {
        /* the sum is made in so many parts */
        align *= plait_comm_size(nodes->inside);
    }
    s->parts = shards->zero ? plait_comm_size(s->comm) : 1;
    index = shards->zero ? plait_comm_rank(s->comm) : 0;
    if (s->steps)
        index =
            plait_comm_rank(nodes->inside) * plait_comm_size(nodes->across) +
            plait_comm_rank(nodes->across);
    s->part = (region->count + s->parts - 1) / s->parts;
    s->part = (s->part + align - 1) / align * align;
    s->first = index * s->part;
    end = s->first + s->part;
    if (end > region->count)
        end = region->count;
    s->owned = end > s->first ? end - s->first : 0;
}

static void *allocate(struct plait_shards *shards, size_t bytes)
{
    struct plait_parallel *par = shards->model->par;

    return plait_parallel_alloc(par, bytes ? bytes : 1);
}

static bool offloaded(const struct plait_shards *shards)
{
    return shards->model->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER;
}

static float *allocate_state(struct plait_shards *shards, size_t n)
{
    size_t bytes = n * sizeof(float);

    return shards->state_ops->alloc(shards->state_dev, bytes ? bytes : 1);
}

/* Where masters and moments live. */
static int open_state(struct plait_shards *shards)
{
    struct plait_parallel *par = shards->model->par;

    shards->state_ops = offloaded(shards) ? plait_ops_cpu() : par->ops;
    shards->state_dev = par->dev;
    shards->state_q = par->q;
    if (!offloaded(shards))
        return 0;
    shards->state_dev = shards->state_ops->device_create(0, 0);
    shards->state_q =
        shards->state_dev
            ? shards->state_ops->queue_create(shards->state_dev, 0)
            : NULL;
    return shards->state_q ? 0 : -1;
}

static void close_state(struct plait_shards *shards)
{
    if (!shards->state_ops)
        return;
    if (shards->state_dev) {
        shards->state_ops->free(shards->state_dev, shards->masters);
        shards->state_ops->free(shards->state_dev, shards->moments);
    }
    if (!offloaded(shards))
        return;
    if (shards->state_q)
        shards->state_ops->queue_destroy(shards->state_q);
    if (shards->state_dev)
        shards->state_ops->device_destroy(shards->state_dev);
}

static int allocate_all(struct plait_shards *shards)
{
    size_t size = plait_dtype_size(shards->model->type);
    bool masters = shards->model->type != PLAIT_F32 || offloaded(shards);
    size_t wholes = 0, parts = 0;
    int i;

    for (i = 0; i < shards->n; i++) {
        wholes += whole(&shards->shard[i]);
        parts += shards->shard[i].part;
    }
    shards->weights =
        allocate(shards, (shards->zero < 3 ? wholes : parts) * size);
    shards->grads_bytes = (shards->zero < 2 ? wholes : parts) * sizeof(float);
    shards->grads = allocate(shards, shards->grads_bytes);
    shards->moments = allocate_state(shards, 2 * parts);
    if (masters)
        shards->masters = allocate_state(shards, parts);
    if (!shards->weights || !shards->grads || !shards->moments)
        return -1;
    return !masters || shards->masters ? 0 : -1;
}

/* Give every shard its place in the buffers. */
static void place_all(struct plait_shards *shards)
{
    size_t size = plait_dtype_size(shards->model->type);
    size_t wholes = 0, parts = 0, all_parts = 0;
    int i;

    for (i = 0; i < shards->n; i++)
        all_parts += shards->shard[i].part;
    for (i = 0; i < shards->n; i++) {
        struct plait_shard *s = &shards->shard[i];
        char *weights = shards->weights;

        if (shards->zero < 3) {
            s->region->weight = weights + wholes * size;
            s->weight = weights + (wholes + s->first) * size;
        } else {
            s->weight = weights + parts * size;
        }
        if (shards->zero < 2) {
            s->region->grad = shards->grads + wholes;
            s->grad = shards->grads + wholes + s->first;
        } else {
            s->grad = shards->grads + parts;
        }
        s->master = shards->masters ? shards->masters + parts : s->weight;
        s->m = shards->moments + parts;
        s->v = shards->moments + all_parts + parts;
        wholes += whole(s);
        parts += s->part;
    }
}

struct plait_shards *plait_shards_create(struct plait_model *model,
                                         struct plait_error *err)
{
    struct plait_shards *shards = calloc(1, sizeof(*shards));
    int i;

    if (!shards)
        goto error;
    shards->model = model;
    shards->zero = model->config->parallel.zero;
    shards->n = model->nregions;
    shards->shard = calloc(shards->n, sizeof(*shards->shard));
    if (!shards->shard)
        goto error;
    for (i = 0; i < shards->n; i++)
        cut(shards, &shards->shard[i], &model->regions[i]);
    if (open_state(shards) < 0 || allocate_all(shards) < 0)
        goto error;
    place_all(shards);
    return shards;

error:
    plait_errorf(err,
                 "out of memory for %zu weights, their gradients and "
                 "optimizer state",
                 model->count);
    plait_shards_destroy(shards);
    errno = ENOMEM;
    return NULL;
}

void plait_shards_destroy(struct plait_shards *shards)
{
    struct plait_parallel *par;
    int saved = errno;

    if (!shards)
        return;
    par = shards->model->par;
    plait_parallel_free(par, shards->weights);
    plait_parallel_free(par, shards->grads);
    close_state(shards);
    free(shards->shard);
    free(shards);
    errno = saved;
}

void plait_shard_route(const struct plait_shard *s, struct plait_route *route)
{
    if (s->steps)
        plait_route_parts_by_node(route, s->steps);
    else
        plait_route_parts(route, s->comm, s->replicas);
}

/* -- whole regions ------------------------------------------------------- */

/* This node's share of the region: its ranks' parts are spread over it. */
static size_t share(const struct plait_shard *s)
{
    return s->part * plait_comm_size(s->steps->across);
}

int plait_shard_gather(struct plait_parallel *par, const struct plait_shard *s,
                       const void *part, void *whole, enum plait_dtype type,
                       struct plait_gathering *g)
{
    char *to = whole;

    *g = (struct plait_gathering){.whole = whole, .type = type};
    if (!s->steps)
        return plait_comm_all_gather(s->comm, part, whole, s->part, type,
                                     par->q, &g->req);
    g->shard = s;
    to += plait_comm_rank(s->steps->inside) * share(s) * plait_dtype_size(type);
    return plait_comm_all_gather(s->steps->across, part, to, s->part, type,
                                 par->q, &g->req);
}

int plait_shard_gathered(struct plait_parallel *par, struct plait_gathering *g)
{
    const struct plait_shard *s = g->shard;
    const char *mine = g->whole;

    if (plait_comm_wait(&g->req, par->q) < 0)
        return -1;
    if (!s)
        return 0;
    g->shard = NULL;
    mine += plait_comm_rank(s->steps->inside) * share(s) *
            plait_dtype_size(g->type);
    return plait_comm_all_gather(s->steps->inside, mine, g->whole, share(s),
                                 g->type, par->q, NULL);
}
