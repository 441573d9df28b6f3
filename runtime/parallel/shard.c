/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/shard.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/kernels.h"

/* Parts start at multiples of so many elements, for vectors and cache lines. */
#define PART_ALIGN 64
#define CAST_CHUNK ((size_t)1 << 20) /* elements cast at a time */

static size_t padded_size(const struct plait_shard *s)
{
    return s->part * s->parts;
}

/* Whether sums and gathers in two steps cost less. */
static bool in_steps(const struct plait_shards *shards,
                     const struct plait_hierarchy *nodes, size_t bytes)
{
    const struct plait_mesh *mesh = shards->model->mesh;
    const struct plait_parallel_config *c = &shards->model->config->parallel;

    return c->shard_group == PLAIT_SHARD_ALL &&
           plait_hierarchy_is_faster(mesh, nodes, c->all_reduce, bytes);
}

static void cut_region(struct plait_shards *shards, struct plait_shard *s,
                       struct plait_region *region)
{
    struct plait_mesh *mesh = shards->model->mesh;
    const struct plait_hierarchy *nodes =
        region->expert ? &mesh->expert : &mesh->dense;
    size_t end, align = PART_ALIGN;
    int index;

    s->region = region;
    s->comm =
        mesh->group[region->expert ? PLAIT_GROUP_EXPERT_DP : PLAIT_GROUP_DP_CP];
    if (plait_sync_parts(&shards->model->config->sync))
        s->comm = mesh->group[PLAIT_GROUP_CP];
    if (shards->zero &&
        in_steps(shards, nodes, region->count * sizeof(float))) {
        s->steps = nodes;
    } else if (nodes->intra_node && shards->zero &&
               shards->model->config->parallel.shard_group ==
                   PLAIT_SHARD_NODE) {
        s->comm = nodes->intra_node;
        s->replicas = nodes->inter_node;
    } else if (nodes->intra_node && !shards->zero) {
        /* a hierarchical sum divides the region into so many parts */
        align *= plait_comm_size(nodes->intra_node);
    }
    s->parts = shards->zero ? plait_comm_size(s->comm) : 1;
    index = shards->zero ? plait_comm_rank(s->comm) : 0;
    if (s->steps)
        index = plait_comm_rank(nodes->intra_node) *
                    plait_comm_size(nodes->inter_node) +
                plait_comm_rank(nodes->inter_node);
    s->part = (region->count + s->parts - 1) / s->parts;
    s->part = (s->part + align - 1) / align * align;
    s->first = index * s->part;
    end = s->first + s->part;
    if (end > region->count)
        end = region->count;
    s->owned = end > s->first ? end - s->first : 0;
}

static bool is_offloaded(const struct plait_shards *shards)
{
    return shards->model->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER;
}

static void *allocate_state(struct plait_shards *shards, size_t bytes)
{
    return shards->state_ops->alloc(shards->state_dev, bytes ? bytes : 1);
}

/* Choose the device of masters and states. */
static int open_state(struct plait_shards *shards)
{
    struct plait_mesh *mesh = shards->model->mesh;

    shards->state_ops = is_offloaded(shards) ? plait_ops_cpu() : mesh->ops;
    shards->state_dev = mesh->dev;
    shards->state_q = mesh->q;
    if (!is_offloaded(shards))
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
        shards->state_ops->free(shards->state_dev, shards->states);
    }
    if (!is_offloaded(shards))
        return;
    if (shards->state_q)
        shards->state_ops->queue_destroy(shards->state_q);
    if (shards->state_dev)
        shards->state_ops->device_destroy(shards->state_dev);
}

/* Elements of all regions as they are kept: whole, or this rank's parts. */
static size_t sum_elements(const struct plait_shards *shards, bool parts)
{
    size_t sum = 0;

    for (int i = 0; i < shards->n; i++)
        sum += parts ? shards->shard[i].part : padded_size(&shards->shard[i]);
    return sum;
}

/* Set the place of each shard and region in the model's weights. */
static void place_weights(struct plait_shards *shards)
{
    size_t size = plait_dtype_size(shards->model->type);
    char *at = shards->model->weights;

    for (int i = 0; i < shards->n; i++) {
        struct plait_shard *s = &shards->shard[i];

        s->weight = at;
        if (shards->zero < 3) {
            s->region->weight = at;
            s->weight = at + s->first * size;
        }
        at += (shards->zero < 3 ? padded_size(s) : s->part) * size;
    }
}

struct plait_shards *plait_shards_create(struct plait_model *model,
                                         struct plait_error *err)
{
    struct plait_shards *shards = calloc(1, sizeof(*shards));

    if (!shards)
        goto error;
    shards->model = model;
    shards->zero = model->config->parallel.zero;
    shards->n = model->nregions;
    shards->shard = calloc(shards->n, sizeof(*shards->shard));
    shards->gathering = calloc(shards->n, sizeof(*shards->gathering));
    if (!shards->shard || !shards->gathering)
        goto error;
    for (int i = 0; i < shards->n; i++)
        cut_region(shards, &shards->shard[i], &model->regions[i]);
    if (plait_model_make_weights(model,
                                 sum_elements(shards, shards->zero == 3)) < 0)
        goto error;
    place_weights(shards);
    return shards;

error:
    plait_errorf(err, "out of memory for %zu weights", model->count);
    plait_shards_destroy(shards);
    errno = ENOMEM;
    return NULL;
}

/* -- training ------------------------------------------------------------ */

static int allocate_training(struct plait_shards *shards)
{
    struct plait_mesh *mesh = shards->model->mesh;
    const struct plait_optim_config *c = &shards->model->config->optim;
    bool masters = (shards->model->type != PLAIT_F32 || is_offloaded(shards) ||
                    plait_optim_is_averaged(c)) &&
                   c->masters == PLAIT_MASTERS_FP32;
    size_t parts = sum_elements(shards, true);

    shards->grads_bytes =
        sum_elements(shards, shards->zero >= 2) * sizeof(float);
    shards->grads =
        plait_mesh_alloc(mesh, shards->grads_bytes ? shards->grads_bytes : 1);
    if (shards->nstates)
        shards->states =
            allocate_state(shards, shards->nstates * parts *
                                       plait_dtype_size(shards->state_type));
    if (masters)
        shards->masters =
            allocate_state(shards, parts * sizeof(*shards->masters));
    if (!shards->grads || (shards->nstates && !shards->states))
        return -1;
    return !masters || shards->masters ? 0 : -1;
}

static void place_training(struct plait_shards *shards)
{
    size_t wholes = 0, parts = 0, all_parts = sum_elements(shards, true);
    size_t size = plait_dtype_size(shards->state_type);

    for (int i = 0; i < shards->n; i++) {
        struct plait_shard *s = &shards->shard[i];

        if (shards->zero < 2) {
            s->region->grad = shards->grads + wholes;
            s->grad = shards->grads + wholes + s->first;
        } else {
            s->grad = shards->grads + parts;
        }
        s->master = shards->masters                    ? shards->masters + parts
                    : shards->model->type == PLAIT_F32 ? s->weight
                                                       : NULL;
        for (int k = 0; k < shards->nstates; k++)
            s->state[k] = shards->states + (k * all_parts + parts) * size;
        wholes += padded_size(s);
        parts += s->part;
    }
}

int plait_shards_add_training(struct plait_shards *shards,
                              struct plait_error *err)
{
    const struct plait_optim_config *c = &shards->model->config->optim;

    shards->nstates = plait_optim_nstates(c);
    shards->state_type =
        plait_optim_state_size(c) == 2 ? PLAIT_BF16_T : PLAIT_F32;
    if (open_state(shards) == 0 && allocate_training(shards) == 0) {
        place_training(shards);
        return 0;
    }
    errno = ENOMEM;
    return plait_errorf(err,
                        "out of memory for the gradients and the optimizer "
                        "state of %zu weights",
                        shards->model->count);
}

/* The transfers use the model's weights, which are freed next. */
static void end_gathers(struct plait_shards *shards)
{
    for (int i = 0; shards->gathering && i < shards->n; i++)
        plait_comm_wait(&shards->gathering[i].req, shards->model->mesh->q);
    free(shards->gathering);
}

void plait_shards_destroy(struct plait_shards *shards)
{
    struct plait_mesh *mesh;
    int saved = errno;

    if (!shards)
        return;
    mesh = shards->model->mesh;
    end_gathers(shards);
    plait_mesh_free(mesh, shards->grads);
    close_state(shards);
    free(shards->shard);
    free(shards);
    errno = saved;
}

void plait_shard_reduction_path(const struct plait_shard *s,
                                struct plait_reduction_path *path)
{
    if (s->steps)
        plait_reduction_path_parts_by_node(path, s->steps);
    else
        plait_reduction_path_parts(path, s->comm, s->replicas);
}

/* -- whole regions ------------------------------------------------------- */

/* Elements owned by the ranks with one position in their nodes. */
static size_t position_share(const struct plait_shard *s)
{
    return s->part * plait_comm_size(s->steps->inter_node);
}

/* The second of two steps, once the first has ended; from then on g->req is
 * its. */
static int gather_in_node(struct plait_gathering *g, struct plait_queue *q)
{
    const struct plait_shard *s = g->shard;
    const char *mine = g->whole;

    g->shard = NULL;
    if (plait_comm_wait(&g->req, q) < 0)
        return -1;
    mine += plait_comm_rank(s->steps->intra_node) * position_share(s) *
            plait_dtype_size(g->type);
    return plait_comm_all_gather(
        s->steps->intra_node,
        &(struct plait_buffers){mine, g->whole, position_share(s), g->type}, q,
        &g->req);
}

int plait_shard_gather(struct plait_mesh *mesh, const struct plait_shard *s,
                       const void *part, void *whole, enum plait_dtype type,
                       struct plait_gathering *g)
{
    char *to = whole;

    *g = (struct plait_gathering){.begun = true, .whole = whole, .type = type};
    if (!s->steps)
        return plait_comm_all_gather(
            s->comm, &(struct plait_buffers){part, whole, s->part, type},
            mesh->q, &g->req);
    g->shard = s;
    to += plait_comm_rank(s->steps->intra_node) * position_share(s) *
          plait_dtype_size(type);
    if (plait_comm_all_gather(s->steps->inter_node,
                              &(struct plait_buffers){part, to, s->part, type},
                              mesh->q, &g->req) < 0)
        return -1;
    return mesh->aside ? gather_in_node(g, mesh->aside) : 0;
}

int plait_shard_gathered(struct plait_mesh *mesh, struct plait_gathering *g)
{
    g->begun = false;
    if (g->shard && gather_in_node(g, mesh->q) < 0)
        return -1;
    return plait_comm_wait(&g->req, mesh->q);
}

/* -- weights ------------------------------------------------------------- */

bool plait_shard_slice(const struct plait_shard *s,
                       const struct plait_tensor *t, size_t *first,
                       size_t *count)
{
    size_t begin = t->offset, end = t->offset + t->count;

    if (begin < s->first)
        begin = s->first;
    if (end > s->first + s->owned)
        end = s->first + s->owned;
    if (begin >= end)
        return false;
    *first = begin - t->offset;
    *count = end - begin;
    return true;
}

int plait_shards_write_weights(struct plait_shards *shards, void *weights,
                               enum plait_dtype type, const float *from,
                               size_t n)
{
    struct plait_mesh *mesh = shards->model->mesh;
    const struct plait_ops *ops = mesh->ops;
    size_t size = plait_dtype_size(type), now;
    float *staged;
    int rc;

    if (type == PLAIT_F32)
        return ops->to_device(mesh->q, weights, from, n * sizeof(*from));
    staged = ops->alloc(mesh->dev, CAST_CHUNK * sizeof(*staged));
    rc = staged ? 0 : -1;
    for (size_t at = 0; at < n && rc == 0; at += now) {
        now = n - at < CAST_CHUNK ? n - at : CAST_CHUNK;
        rc = ops->to_device(mesh->q, staged, from + at, now * sizeof(*from));
        if (rc == 0)
            rc = ops->cast(mesh->q, &(struct plait_cast){
                                        .to = type,
                                        .from = PLAIT_F32,
                                        .dst = (char *)weights + at * size,
                                        .src = staged,
                                        .n = now});
    }
    if (rc == 0)
        rc = ops->queue_sync(mesh->q);
    ops->free(mesh->dev, staged);
    return rc;
}

/* ZeRO 3 gathers each region when it is used. */
bool plait_shards_gathers(const struct plait_shards *shards, int i)
{
    return shards->zero < 3 && shards->shard[i].parts > 1;
}

bool plait_shards_gathering(const struct plait_shards *shards)
{
    for (int i = 0; i < shards->n; i++)
        if (shards->gathering[i].begun)
            return true;
    return false;
}

int plait_shards_begin_gather(struct plait_shards *shards, int i)
{
    struct plait_model *model = shards->model;
    struct plait_shard *s = &shards->shard[i];

    if (!plait_shards_gathers(shards, i))
        return 0;
    return plait_shard_gather(model->mesh, s, s->weight, s->region->weight,
                              model->type, &shards->gathering[i]);
}

int plait_shards_finish_gather(struct plait_shards *shards, int i)
{
    struct plait_gathering *g = &shards->gathering[i];

    return g->begun ? plait_shard_gathered(shards->model->mesh, g) : 0;
}

int plait_shards_await(struct plait_shards *shards, int i)
{
    if (!shards->gathering[i].begun)
        return 0;
    if (plait_shards_finish_gather(shards, i) < 0)
        return -1;
    return plait_model_weights_changed(shards->model, shards->shard[i].region);
}

int plait_shards_await_all(struct plait_shards *shards)
{
    for (int i = 0; i < shards->n; i++)
        if (plait_shards_await(shards, i) < 0)
            return -1;
    return 0;
}

static int gather_all(struct plait_shards *shards)
{
    for (int i = 0; i < shards->n; i++)
        if (plait_shards_begin_gather(shards, i) < 0)
            return -1;
    for (int i = 0; i < shards->n; i++)
        if (plait_shards_finish_gather(shards, i) < 0)
            return -1;
    return 0;
}

int plait_shards_gather_weights(struct plait_shards *shards,
                                struct plait_error *err)
{
    if (shards->zero == 3)
        return 0;
    if (gather_all(shards) < 0)
        return plait_errorf(err, "cannot gather the weights");
    for (int i = 0; i < shards->n; i++)
        plait_model_weights_changed(shards->model, shards->shard[i].region);
    return 0;
}
