/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/gradsync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/parallel/naive.h"
#include "runtime/parallel/reduce.h"
#include "runtime/parallel/zero.h"

/* What torch's DDP found worth its while: the first bucket is small because
 * backward has nothing else to send yet. */
#define FIRST_BUCKET_BYTES ((size_t)1 << 20)

/* Buckets under way at once where they travel in another type. */
#define WIRES 2

/* Regions [first, last], summed together. */
struct bucket {
    int first, last;
    int ready; /* regions whose gradients are complete */
    size_t n;  /* elements */
    struct plait_route route;
    struct plait_reduction sum;
};

struct plait_gradsync {
    struct plait_model *model;
    struct plait_shards *shards;
    int microbatches;
    int *seen;      /* [regions] micro-batches this step */
    int *bucket_of; /* [regions] */
    int nbuckets;
    struct bucket *bucket;
    void *wire[WIRES];             /* NULL unless grad_reduce is bf16 */
    struct bucket *wire_of[WIRES]; /* who has it */
    int next_wire;
    float *scratch; /* a whole region: for a tied tensor that is sharded, or
                       what the naive sum receives */
    struct plait_zero *zero; /* ZeRO 2 and 3, else NULL */
};

static struct plait_shard *shard_of(struct plait_gradsync *sync, int region)
{
    return &sync->shards->shard[region];
}

/* -- buckets ------------------------------------------------------------- */

static size_t region_bytes(const struct plait_shard *s)
{
    return s->part * s->parts * sizeof(float);
}

/* Whether region i may join the bucket of its neighbour i + 1. */
static bool joins(struct plait_gradsync *sync, int i, size_t bytes,
                  size_t limit)
{
    struct plait_shard *s = shard_of(sync, i), *next = shard_of(sync, i + 1);

    return s->parts == 1 && bytes < limit && s->comm == next->comm &&
           s->region->chunk == next->region->chunk;
}

static void choose_route(struct plait_gradsync *sync, struct bucket *b)
{
    struct plait_parallel *par = sync->model->par;
    struct plait_shard *s = shard_of(sync, b->first);
    const struct plait_nodewise *nodes =
        s->region->expert ? &par->expert : &par->dense;
    int i;

    for (i = b->first; i <= b->last; i++)
        b->n += region_bytes(shard_of(sync, i)) / sizeof(float);
    if (sync->shards->zero)
        plait_shard_route(s, &b->route);
    else if (plait_nodewise_pays(par, nodes,
                                 sync->model->config->parallel.all_reduce,
                                 b->n * sizeof(float)))
        plait_route_hierarchical(&b->route, nodes);
    else
        plait_route_whole(&b->route, s->comm);
}

static void make_buckets(struct plait_gradsync *sync)
{
    double mib = sync->model->config->parallel.bucket_mib;
    size_t limit = FIRST_BUCKET_BYTES, bytes = 0;
    struct bucket *b = NULL;
    int i;

    if (mib * (1 << 20) < limit)
        limit = mib * (1 << 20);
    for (i = sync->shards->n - 1; i >= 0; i--) {
        if (!b || !joins(sync, i, bytes, limit)) {
            if (b)
                limit = mib * (1 << 20);
            b = &sync->bucket[sync->nbuckets++];
            b->last = i;
            bytes = 0;
        }
        b->first = i;
        bytes += region_bytes(shard_of(sync, i));
        sync->bucket_of[i] = sync->nbuckets - 1;
    }
    for (i = 0; i < sync->nbuckets; i++)
        choose_route(sync, &sync->bucket[i]);
}

/* A free wire, which may have to be waited for; NULL where none is used. */
static int take_wire(struct plait_gradsync *sync, struct bucket *b, void **wire)
{
    int i = sync->next_wire;

    *wire = sync->wire[i];
    if (!*wire)
        return 0;
    if (sync->wire_of[i] &&
        plait_reduction_finish(sync->model->par, &sync->wire_of[i]->sum) < 0)
        return -1;
    sync->wire_of[i] = b;
    sync->next_wire = (i + 1) % WIRES;
    return 0;
}

static int start_bucket(struct plait_gradsync *sync, struct bucket *b)
{
    void *wire;

    if (!plait_route_travels(&b->route))
        return 0;
    if (take_wire(sync, b, &wire) < 0)
        return -1;
    return plait_reduction_start(sync->model->par, &b->sum, &b->route,
                                 shard_of(sync, b->first)->region->grad, wire,
                                 b->n);
}

static int advance_buckets(struct plait_gradsync *sync)
{
    int i;

    for (i = 0; i < sync->nbuckets; i++)
        if (plait_reduction_advance(sync->model->par, &sync->bucket[i].sum) < 0)
            return -1;
    return 0;
}

/* -- hooks --------------------------------------------------------------- */

static bool naive(const struct plait_gradsync *sync)
{
    return sync->model->config->parallel.grad_sync == PLAIT_GRAD_NAIVE;
}

static int grad_ready(void *arg, struct plait_region *region, int microbatch)
{
    struct plait_gradsync *sync = arg;
    int i = region - sync->model->regions;
    struct bucket *b = &sync->bucket[sync->bucket_of[i]];

    (void)microbatch; /* schedules may run backward in any order */
    if (sync->zero)
        return plait_zero_reduce(sync->zero, i) < 0
                   ? -1
                   : plait_comm_progress(sync->model->par->world);
    if (++sync->seen[i] < sync->microbatches)
        return 0;
    if (plait_model_complete_gradient(sync->model, region) < 0)
        return -1;
    if (naive(sync))
        return 0;
    if (advance_buckets(sync) < 0)
        return -1;
    if (++b->ready == b->last - b->first + 1 && start_bucket(sync, b) < 0)
        return -1;
    return plait_comm_progress(sync->model->par->world);
}

static int prefetch(void *arg, struct plait_region *region)
{
    struct plait_gradsync *sync = arg;

    return plait_zero_prefetch(sync->zero, region - sync->model->regions);
}

static int acquire(void *arg, struct plait_region *region, bool gradient)
{
    struct plait_gradsync *sync = arg;

    return plait_zero_acquire(sync->zero, region - sync->model->regions,
                              gradient);
}

static int release(void *arg, struct plait_region *region)
{
    struct plait_gradsync *sync = arg;

    return plait_zero_release(sync->zero, region - sync->model->regions);
}

int plait_gradsync_begin(struct plait_gradsync *sync, int microbatches)
{
    struct plait_parallel *par = sync->model->par;
    struct plait_shards *shards = sync->shards;
    int i;

    sync->microbatches = microbatches;
    memset(sync->seen, 0, sync->shards->n * sizeof(*sync->seen));
    for (i = 0; i < sync->nbuckets; i++)
        sync->bucket[i].ready = 0;
    /* The parts that ZeRO 2 and 3 add to; and a recording is the same for
     * every micro-batch, so it can only add. */
    if (sync->zero || par->graphs.passes)
        return par->ops->fill_zero(par->q, shards->grads, shards->grads_bytes);
    for (i = 0; i < shards->n; i++)
        if (plait_model_begin_gradient(sync->model, shards->shard[i].region) <
            0)
            return -1;
    return 0;
}

/* -- tied embeddings ----------------------------------------------------- */

/* The first and the last stage cut their regions differently, so a sharded
 * tied tensor is put together before the two meet. */
static int sum_sharded(struct plait_gradsync *sync,
                       const struct plait_tensor *t)
{
    struct plait_parallel *par = sync->model->par;
    struct plait_shard *s = shard_of(sync, t->region);
    float *whole = sync->scratch;

    struct plait_gathering g;

    if (plait_shard_gather(par, s, s->grad, whole, PLAIT_F32, &g) < 0 ||
        plait_shard_gathered(par, &g) < 0)
        return -1;
    if (plait_comm_all_reduce(par->embedding, whole + t->offset,
                              whole + t->offset, t->count, PLAIT_F32, PLAIT_SUM,
                              par->q, NULL) < 0)
        return -1;
    return par->ops->copy(par->q, s->grad, whole + s->first,
                          s->part * sizeof(float));
}

static int sum_tied(struct plait_gradsync *sync)
{
    struct plait_parallel *par = sync->model->par;
    int i;

    for (i = 0; par->embedding && i < sync->model->ntensors; i++) {
        const struct plait_tensor *t = &sync->model->tensors[i];
        struct plait_shard *s = shard_of(sync, t->region);
        int rc;

        if (!t->tied)
            continue;
        if (s->parts > 1)
            rc = sum_sharded(sync, t);
        else
            rc = plait_comm_all_reduce(par->embedding, s->grad + t->offset,
                                       s->grad + t->offset, t->count, PLAIT_F32,
                                       PLAIT_SUM, par->q, NULL);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int sum_naively(struct plait_gradsync *sync)
{
    int i;

    for (i = 0; i < sync->shards->n; i++) {
        struct plait_shard *s = shard_of(sync, i);

        if (plait_comm_size(s->comm) > 1 &&
            plait_naive_sum(sync->model->par, s->comm, s->grad, sync->scratch,
                            s->part) < 0)
            return -1;
    }
    return 0;
}

static int settle(void *arg)
{
    struct plait_gradsync *sync = arg;
    int i;

    for (i = 0; i < sync->nbuckets; i++)
        if (plait_reduction_finish(sync->model->par, &sync->bucket[i].sum) < 0)
            return -1;
    return sync->zero ? plait_zero_finish(sync->zero) : 0;
}

int plait_gradsync_finish(struct plait_gradsync *sync)
{
    if (naive(sync) && sum_naively(sync) < 0)
        return -1;
    if (settle(sync) < 0)
        return -1;
    return sum_tied(sync);
}

/* -- life ---------------------------------------------------------------- */

/* Whether the whole of a region is ever put beside it. */
static bool wants_scratch(struct plait_gradsync *sync, int region)
{
    struct plait_shard *s = shard_of(sync, region);
    int i;

    if (naive(sync))
        return plait_comm_size(s->comm) > 1 && plait_comm_rank(s->comm) == 0;
    if (!sync->model->par->embedding || s->parts == 1)
        return false;
    for (i = 0; i < sync->model->ntensors; i++)
        if (sync->model->tensors[i].region == region &&
            sync->model->tensors[i].tied)
            return true;
    return false;
}

static int make_scratch(struct plait_gradsync *sync)
{
    struct plait_parallel *par = sync->model->par;
    size_t room = 0;
    int i;

    for (i = 0; i < sync->shards->n; i++)
        if (wants_scratch(sync, i) && region_bytes(shard_of(sync, i)) > room)
            room = region_bytes(shard_of(sync, i));
    if (room == 0)
        return 0;
    sync->scratch = par->ops->alloc(par->dev, room);
    return sync->scratch ? 0 : -1;
}

/* Where the sums travel in another type; ZeRO 2 and 3 have their own. */
static int make_wires(struct plait_gradsync *sync)
{
    struct plait_parallel *par = sync->model->par;
    size_t room = 0;
    int i;

    if (sync->model->config->parallel.grad_reduce != PLAIT_GRAD_BF16 ||
        sync->zero)
        return 0;
    for (i = 0; i < sync->nbuckets; i++)
        if (plait_route_travels(&sync->bucket[i].route) &&
            sync->bucket[i].n > room)
            room = sync->bucket[i].n;
    for (i = 0; i < WIRES && room > 0; i++) {
        sync->wire[i] =
            plait_parallel_alloc(par, room * plait_dtype_size(PLAIT_BF16_T));
        if (!sync->wire[i])
            return -1;
    }
    return 0;
}

struct plait_gradsync *plait_gradsync_create(struct plait_model *model,
                                             struct plait_shards *shards,
                                             struct plait_error *err)
{
    struct plait_gradsync *sync = calloc(1, sizeof(*sync));

    if (!sync)
        goto error;
    sync->model = model;
    sync->shards = shards;
    sync->seen = calloc(shards->n, sizeof(*sync->seen));
    sync->bucket_of = calloc(shards->n, sizeof(*sync->bucket_of));
    sync->bucket = calloc(shards->n, sizeof(*sync->bucket));
    if (!sync->seen || !sync->bucket_of || !sync->bucket ||
        make_scratch(sync) < 0)
        goto error;
    if (shards->zero >= 2) {
        sync->zero = plait_zero_create(shards, err);
        if (!sync->zero)
            goto error;
        model->hooks.prefetch = prefetch;
        model->hooks.acquire = acquire;
        model->hooks.release = release;
    }
    make_buckets(sync);
    if (make_wires(sync) < 0)
        goto error;
    model->hooks.grad_ready = grad_ready;
    model->hooks.settle = settle;
    model->hooks.arg = sync;
    return sync;

error:
    plait_errorf(err, "out of memory");
    plait_gradsync_destroy(sync);
    errno = ENOMEM;
    return NULL;
}

void plait_gradsync_destroy(struct plait_gradsync *sync)
{
    struct plait_parallel *par;
    int saved = errno, i;

    if (!sync)
        return;
    par = sync->model->par;
    for (i = 0; i < WIRES; i++)
        plait_parallel_free(par, sync->wire[i]);
    par->ops->free(par->dev, sync->scratch);
    plait_zero_destroy(sync->zero);
    free(sync->seen);
    free(sync->bucket_of);
    free(sync->bucket);
    free(sync);
    errno = saved;
}
