/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/gradsync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/parallel/zero.h"

/* What torch's DDP found worth its while: the first bucket is small because
 * backward has nothing else to send yet. */
#define FIRST_BUCKET_BYTES ((size_t)1 << 20)

/* Regions [first, last], reduced by one call. */
struct bucket {
    int first, last;
    int ready; /* regions whose gradients are complete */
    struct plait_request *req;
};

struct plait_gradsync {
    struct plait_model *model;
    struct plait_shards *shards;
    int microbatches;
    int *seen;      /* [regions] micro-batches this step */
    int *bucket_of; /* [regions] */
    int nbuckets;
    struct bucket *bucket;
    float *scratch; /* a whole region, for a tied tensor that is sharded */
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

static void make_buckets(struct plait_gradsync *sync)
{
    double mib = sync->model->config->parallel.bucket_mib;
    size_t limit = FIRST_BUCKET_BYTES, bytes = 0;
    struct bucket *b = NULL;
    int i;

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
}

static int start_bucket(struct plait_gradsync *sync, struct bucket *b)
{
    struct plait_shard *s = shard_of(sync, b->first);
    struct plait_queue *q = sync->model->par->q;
    size_t n = 0;
    int i;

    if (s->parts > 1)
        return plait_comm_reduce_scatter(s->comm, s->region->grad, s->grad,
                                         s->part, PLAIT_F32, PLAIT_SUM, q,
                                         &b->req);
    if (plait_comm_size(s->comm) == 1)
        return 0;
    for (i = b->first; i <= b->last; i++)
        n += shard_of(sync, i)->part;
    return plait_comm_all_reduce(s->comm, s->grad, s->grad, n, PLAIT_F32,
                                 PLAIT_SUM, q, &b->req);
}

/* -- hooks --------------------------------------------------------------- */

static int grad_ready(void *arg, struct plait_region *region, int microbatch)
{
    struct plait_gradsync *sync = arg;
    int i = region - sync->model->regions;
    struct bucket *b = &sync->bucket[sync->bucket_of[i]];

    (void)microbatch; /* schedules may run backward in any order */
    if (sync->zero)
        return plait_zero_reduce(sync->zero, i);
    if (++sync->seen[i] < sync->microbatches)
        return 0;
    if (plait_model_complete_gradient(sync->model, region) < 0)
        return -1;
    if (++b->ready == b->last - b->first + 1 && start_bucket(sync, b) < 0)
        return -1;
    return plait_comm_progress(sync->model->par->world);
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
    int i;

    sync->microbatches = microbatches;
    memset(sync->seen, 0, sync->shards->n * sizeof(*sync->seen));
    for (i = 0; i < sync->nbuckets; i++)
        sync->bucket[i].ready = 0;
    return par->ops->fill_zero(par->q, sync->shards->grads,
                               sync->shards->grads_bytes);
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

    if (plait_comm_all_gather(s->comm, s->grad, whole, s->part, PLAIT_F32,
                              par->q, NULL) < 0)
        return -1;
    if (plait_comm_all_reduce(par->embedding, whole + t->offset,
                              whole + t->offset, t->count, PLAIT_F32,
                              PLAIT_SUM, par->q, NULL) < 0)
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
                                       s->grad + t->offset, t->count,
                                       PLAIT_F32, PLAIT_SUM, par->q, NULL);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int plait_gradsync_finish(struct plait_gradsync *sync)
{
    int i;

    for (i = 0; i < sync->nbuckets; i++)
        if (plait_comm_wait(&sync->bucket[i].req, sync->model->par->q) < 0)
            return -1;
    if (sync->zero && plait_zero_finish(sync->zero) < 0)
        return -1;
    return sum_tied(sync);
}

/* -- life ---------------------------------------------------------------- */

static int make_scratch(struct plait_gradsync *sync)
{
    struct plait_parallel *par = sync->model->par;
    size_t room = 0;
    int i;

    for (i = 0; par->embedding && i < sync->model->ntensors; i++) {
        struct plait_shard *s = shard_of(sync, sync->model->tensors[i].region);

        if (sync->model->tensors[i].tied && s->parts > 1 &&
            region_bytes(s) > room)
            room = region_bytes(s);
    }
    if (room == 0)
        return 0;
    sync->scratch = par->ops->alloc(par->dev, room);
    return sync->scratch ? 0 : -1;
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
    make_buckets(sync);
    if (shards->zero >= 2) {
        sync->zero = plait_zero_create(shards, err);
        if (!sync->zero)
            goto error;
        model->hooks.acquire = acquire;
        model->hooks.release = release;
    }
    model->hooks.grad_ready = grad_ready;
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
    int saved = errno;

    if (!sync)
        return;
    par = sync->model->par;
    if (sync->scratch)
        par->ops->free(par->dev, sync->scratch);
    plait_zero_destroy(sync->zero);
    free(sync->seen);
    free(sync->bucket_of);
    free(sync->bucket);
    free(sync);
    errno = saved;
}
