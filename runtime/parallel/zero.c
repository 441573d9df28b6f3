/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/zero.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/mesh/reduce.h"

/* Life of a region's whole gradient: the first block that adds to it takes a
 * buffer of the pool (plait_zero_acquire); when the micro-batch's gradient is
 * complete, the buffer goes over to a reduction (plait_zero_reduce), and the
 * region has none; when the sum has arrived, it is added to this rank's part,
 * and the buffer goes back to the pool. At most IN_FLIGHT sums are under way:
 * the next one first completes the oldest. So there are two or three buffers of
 * a layer's size, however many layers there are.
 *
 * Life of a region's whole weights with ZeRO 3: prefetched while the block
 * before it computes, or gathered when they are acquired; kept while anybody
 * uses them or they are prefetched; then their buffer goes back to the pool.
 * Blocks may share a region (tied embeddings), hence the number of users.
 *
 * A buffer goes back to the pool while the device may still work with it. That
 * is safe, as whoever takes it next uses it on the same queue, after that work,
 * or in a transfer that begins when the queue has come so far.
 *
 * On all ranks of a group the hooks are called in the same order, as these have
 * the same layers and schedule. So the gathers and sums of the group match, and
 * buffers are taken and allocated alike, as plait_comm_alloc() requires. */

/* Reductions that may be under way while the next blocks run backward. */
#define IN_FLIGHT 2

struct buffer {
    size_t bytes;
    void *data;
    bool taken;
    bool kept; /* `taken` as kept */
};

/* Buffers of a few sizes that are reused. Ranks of a group take the same ones
 * in the same order. */
struct pool {
    int n;
    struct buffer *buffer;
};

/* The state of a region's gathered weights. */
struct gathered {
    int users;
    bool wanted; /* prefetched and not acquired yet */
    bool ready;  /* the model knows of them */
    struct plait_gathering gathering;
};

struct reduction {
    int region; /* its gradient; -1: unused */
    float *whole;
    void *wire; /* NULL unless grad_reduce is bf16 */
    struct plait_reduction sum;
};

/* A region as plait_zero_keep() found it. */
struct kept {
    struct gathered gathered;
    void *weight;
    float *grad;
};

struct plait_zero {
    struct plait_shards *shards;
    struct pool weights, grads, wires;
    struct gathered *gathered;         /* [regions] */
    bool *begun;                       /* [regions] parts have a sum of this
                                          step */
    struct plait_reduction_path *path; /* [regions] of the gradients */
    struct reduction reduction[IN_FLIGHT];
    int next;          /* the reduction to use next */
    struct kept *kept; /* [regions] */
    int kept_next;
    struct plait_small_norms *norms; /* not owned; NULL: not trained */
};

static struct plait_mesh *mesh_of(struct plait_zero *zero)
{
    return zero->shards->model->mesh;
}

static size_t padded_size(const struct plait_shard *s)
{
    return s->part * s->parts;
}

/* -- buffers ------------------------------------------------------------- */

/* Take a free buffer. Its contents are undefined. */
static void *pool_get(struct plait_zero *zero, struct pool *pool, size_t bytes)
{
    struct plait_mesh *mesh = mesh_of(zero);
    struct buffer *b;

    for (int i = 0; i < pool->n; i++) {
        b = &pool->buffer[i];
        if (b->taken || b->bytes != bytes)
            continue;
        b->taken = true;
        return b->data;
    }
    b = realloc(pool->buffer, (pool->n + 1) * sizeof(*b));
    if (!b)
        return NULL;
    pool->buffer = b;
    b += pool->n;
    *b = (struct buffer){
        .bytes = bytes, .data = plait_mesh_alloc(mesh, bytes), .taken = true};
    if (b->data)
        pool->n++;
    return b->data;
}

static void pool_put(struct pool *pool, void *data)
{
    for (int i = 0; i < pool->n; i++)
        if (pool->buffer[i].data == data)
            pool->buffer[i].taken = false;
}

static void pool_keep(struct pool *pool)
{
    for (int i = 0; i < pool->n; i++)
        pool->buffer[i].kept = pool->buffer[i].taken;
}

static void pool_restore(struct pool *pool)
{
    for (int i = 0; i < pool->n; i++)
        pool->buffer[i].taken = pool->buffer[i].kept;
}

static void pool_destroy(struct plait_zero *zero, struct pool *pool)
{
    struct plait_mesh *mesh = mesh_of(zero);

    for (int i = 0; i < pool->n; i++)
        plait_mesh_free(mesh, pool->buffer[i].data);
    free(pool->buffer);
}

/* -- weights ------------------------------------------------------------- */

static int gather_region(struct plait_zero *zero, int i)
{
    struct plait_shard *s = &zero->shards->shard[i];
    struct plait_model *model = zero->shards->model;

    s->region->weight = pool_get(
        zero, &zero->weights, padded_size(s) * plait_dtype_size(model->type));
    if (!s->region->weight)
        return -1;
    return plait_shard_gather(model->mesh, s, s->weight, s->region->weight,
                              model->type, &zero->gathered[i].gathering);
}

int plait_zero_prefetch(struct plait_zero *zero, int i)
{
    if (zero->shards->zero < 3)
        return 0;
    zero->gathered[i].wanted = true;
    return zero->shards->shard[i].region->weight ? 0 : gather_region(zero, i);
}

static int acquire_weights(struct plait_zero *zero, int i)
{
    struct plait_region *region = zero->shards->shard[i].region;
    struct gathered *g = &zero->gathered[i];

    g->users++;
    g->wanted = false;
    if (g->ready)
        return 0;
    if (!region->weight && gather_region(zero, i) < 0)
        return -1;
    if (plait_shard_gathered(mesh_of(zero), &g->gathering) < 0)
        return -1;
    /* The pass that uses them is under way. */
    if (plait_model_weights_changed(zero->shards->model, region) < 0)
        return -1;
    g->ready = true;
    return 0;
}

int plait_zero_acquire(struct plait_zero *zero, int i, bool gradient)
{
    struct plait_shard *s = &zero->shards->shard[i];
    struct plait_region *region = s->region;

    if (gradient && !region->grad) {
        region->grad =
            pool_get(zero, &zero->grads, padded_size(s) * sizeof(float));
        if (!region->grad ||
            plait_model_begin_gradient(zero->shards->model, region) < 0)
            return -1;
    }
    return zero->shards->zero < 3 ? 0 : acquire_weights(zero, i);
}

int plait_zero_release(struct plait_zero *zero, int i)
{
    struct plait_region *region = zero->shards->shard[i].region;
    struct gathered *g = &zero->gathered[i];

    if (zero->shards->zero < 3 || --g->users > 0 || g->wanted)
        return 0;
    pool_put(&zero->weights, region->weight);
    region->weight = NULL;
    g->ready = false;
    return 0;
}

/* -- a model that is not trained ----------------------------------------- */

static int prefetch_region(void *arg, struct plait_region *region)
{
    struct plait_zero *zero = arg;

    return plait_zero_prefetch(zero, region - zero->shards->model->regions);
}

static int acquire_region(void *arg, struct plait_region *region, bool gradient)
{
    struct plait_zero *zero = arg;

    (void)gradient; /* only forward runs */
    return plait_zero_acquire(zero, region - zero->shards->model->regions,
                              false);
}

static int release_region(void *arg, struct plait_region *region)
{
    struct plait_zero *zero = arg;

    return plait_zero_release(zero, region - zero->shards->model->regions);
}

void plait_zero_serve(struct plait_zero *zero)
{
    zero->shards->model->hooks =
        (struct plait_model_hooks){.prefetch = prefetch_region,
                                   .acquire = acquire_region,
                                   .release = release_region,
                                   .arg = zero};
}

/* -- gradients ----------------------------------------------------------- */

void plait_zero_begin(struct plait_zero *zero, bool zeroed)
{
    for (int i = 0; i < zero->shards->n; i++)
        zero->begun[i] = zeroed;
}

/* The first sum of a step replaces what the last step left in the part. */
static int add_part(struct plait_zero *zero, int region, const float *sum)
{
    struct plait_mesh *mesh = mesh_of(zero);
    struct plait_shard *s = &zero->shards->shard[region];
    bool first = !zero->begun[region];

    zero->begun[region] = true;
    return first
               ? mesh->ops->copy(mesh->q, s->grad, sum, s->part * sizeof(*sum))
               : mesh->ops->add(mesh->q, &(struct plait_add){.type = PLAIT_F32,
                                                             .out = s->grad,
                                                             .a = s->grad,
                                                             .b = sum,
                                                             .n = s->part});
}

static int complete_reduction(struct plait_zero *zero, struct reduction *r)
{
    int i = r->region;

    if (i < 0)
        return 0;
    r->region = -1;
    if (plait_reduction_finish(mesh_of(zero), &r->sum) < 0 ||
        add_part(zero, i, r->whole + zero->shards->shard[i].first) < 0)
        return -1;
    pool_put(&zero->grads, r->whole);
    pool_put(&zero->wires, r->wire);
    return 0;
}

static int advance_reductions(struct plait_zero *zero)
{
    for (int i = 0; i < IN_FLIGHT; i++)
        if (plait_reduction_advance(mesh_of(zero), &zero->reduction[i].sum) < 0)
            return -1;
    return 0;
}

int plait_zero_reduce(struct plait_zero *zero, int i)
{
    struct plait_model *model = zero->shards->model;
    struct plait_shard *s = &zero->shards->shard[i];
    struct reduction *r = &zero->reduction[zero->next];
    bool bf16 = model->config->parallel.grad_reduce == PLAIT_GRAD_BF16;

    /* The head's gradient may be that of several micro-batches, reduced with an
     * earlier one. */
    if (!s->region->grad)
        return 0;
    if (plait_model_complete_gradient(model, s->region) < 0 ||
        plait_small_norms_add(zero->norms, i, s->region->grad) < 0 ||
        complete_reduction(zero, r) < 0 || advance_reductions(zero) < 0)
        return -1;
    zero->next = (zero->next + 1) % IN_FLIGHT;
    r->region = i;
    r->whole = s->region->grad;
    s->region->grad = NULL;
    r->wire = NULL;
    if (!plait_reduction_path_has_steps(&zero->path[i]))
        return 0;
    if (bf16)
        r->wire = pool_get(zero, &zero->wires,
                           padded_size(s) * plait_dtype_size(PLAIT_BF16_T));
    if (bf16 && !r->wire)
        return -1;
    return plait_reduction_start(model->mesh, &r->sum, &zero->path[i], r->whole,
                                 r->wire, padded_size(s));
}

int plait_zero_finish(struct plait_zero *zero)
{
    struct plait_mesh *mesh = mesh_of(zero);

    for (int i = 0; i < IN_FLIGHT; i++)
        if (complete_reduction(
                zero, &zero->reduction[(zero->next + i) % IN_FLIGHT]) < 0)
            return -1;
    for (int i = 0; i < zero->shards->n; i++) {
        const struct plait_shard *s = &zero->shards->shard[i];

        if (s->region->grad) { /* that no pass has reduced */
            errno = EPROTO;
            return -1;
        }
        if (!zero->begun[i] &&
            mesh->ops->fill_zero(mesh->q, s->grad, s->part * sizeof(float)) < 0)
            return -1;
    }
    return 0;
}

/* -- a pass that cannot be captured --------------------------------------- */

void plait_zero_keep(struct plait_zero *zero)
{
    for (int i = 0; i < zero->shards->n; i++) {
        const struct plait_region *region = zero->shards->shard[i].region;

        zero->kept[i] = (struct kept){.gathered = zero->gathered[i],
                                      .weight = region->weight,
                                      .grad = region->grad};
    }
    pool_keep(&zero->weights);
    pool_keep(&zero->grads);
    pool_keep(&zero->wires);
    zero->kept_next = zero->next;
}

/* plait_zero_keep() does not store which gradients the next product overwrites:
 * where a pass begins, a region has no gradient buffer or (the head alone) one
 * that its products have filled. */
void plait_zero_restore(struct plait_zero *zero)
{
    for (int i = 0; i < zero->shards->n; i++) {
        struct plait_region *region = zero->shards->shard[i].region;

        zero->gathered[i] = zero->kept[i].gathered;
        region->weight = zero->kept[i].weight;
        region->grad = zero->kept[i].grad;
    }
    pool_restore(&zero->weights);
    pool_restore(&zero->grads);
    pool_restore(&zero->wires);
    for (int i = 0; i < IN_FLIGHT; i++)
        zero->reduction[i] = (struct reduction){.region = -1};
    zero->next = zero->kept_next;
}

/* -- life ---------------------------------------------------------------- */

struct plait_zero *plait_zero_create(struct plait_shards *shards,
                                     struct plait_small_norms *norms,
                                     struct plait_error *err)
{
    struct plait_zero *zero = calloc(1, sizeof(*zero));

    if (!zero)
        goto error;
    zero->shards = shards;
    zero->norms = norms;
    for (int i = 0; i < IN_FLIGHT; i++)
        zero->reduction[i].region = -1;
    zero->gathered = calloc(shards->n, sizeof(*zero->gathered));
    zero->path = calloc(shards->n, sizeof(*zero->path));
    zero->begun = calloc(shards->n, sizeof(*zero->begun));
    zero->kept = calloc(shards->n, sizeof(*zero->kept));
    if (!zero->gathered || !zero->path || !zero->begun || !zero->kept)
        goto error;
    for (int i = 0; i < shards->n; i++)
        plait_shard_reduction_path(&shards->shard[i], &zero->path[i]);
    return zero;

error:
    plait_errorf(err, "out of memory");
    plait_zero_destroy(zero);
    errno = ENOMEM;
    return NULL;
}

void plait_zero_destroy(struct plait_zero *zero)
{
    int saved = errno;

    if (!zero)
        return;
    pool_destroy(zero, &zero->weights);
    pool_destroy(zero, &zero->grads);
    pool_destroy(zero, &zero->wires);
    free(zero->gathered);
    free(zero->path);
    free(zero->begun);
    free(zero->kept);
    free(zero);
    errno = saved;
}
