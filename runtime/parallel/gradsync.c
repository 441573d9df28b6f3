/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/gradsync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/mesh/reduce.h"
#include "runtime/parallel/naive.h"
#include "runtime/parallel/tied.h"
#include "runtime/parallel/zero.h"

/* How a step's gradients are summed, without ZeRO 2 and 3:
 *
 * The model's backward calls grad_ready() for each region, last layer first,
 * once per micro-batch. A region's gradient is complete when this was the last
 * micro-batch of the step. When that holds for all regions of a bucket, its sum
 * is started, and the backward of the layers before it computes meanwhile. A
 * sum of several collectives (reduce.h) needs someone who starts the next one:
 * each grad_ready() does that for all buckets. plait_gradsync_finish()
 * completes what is left.
 *
 * A group's collectives are matched by the order in which its ranks make them.
 * So buckets, their paths, and the places where sums are started and advanced
 * must be the same on all ranks of a group. They are: the ranks that share
 * weights have the same stage, hence the same regions and the same schedule of
 * micro-batches, and bucket sizes follow from the configuration. Never start a
 * bucket because of what this rank alone has measured.
 *
 * The gradients belong to the shards (shard.h), and buckets are ranges of them:
 * regions of a bucket are neighbours in memory, so that one collective sums
 * them in place. With parallel.grad_reduce bf16 a bucket is sent from a copy.
 * There are WIRES such buffers, taken in turn, and a bucket waits for the sum
 * that used its buffer before.
 *
 * ZeRO 2 and 3 have no room for whole gradients: each region is summed to its
 * owners after every micro-batch (zero.c), and there are no buckets. */

/* As in torch's DDP: a small first bucket starts the transfers early. */
#define FIRST_BUCKET_BYTES ((size_t)1 << 20)

/* For flat sums: MPI counts at most 2^31 - 1 elements. */
#define FLAT_BUCKET_BYTES ((size_t)1 << 32)

/* Buckets under way at once where they are sent as bf16. */
#define WIRES 2

/* Regions [first, last], summed together. */
struct bucket {
    int first, last;
    int ready; /* regions whose gradients are complete */
    size_t n;  /* elements */
    struct plait_reduction_path path;
    struct plait_reduction sum;
};

struct plait_gradsync {
    struct plait_model *model;
    struct plait_shards *shards;
    bool across; /* sum over replicas that train apart in other steps */
    int microbatches;
    int *seen;      /* [regions] micro-batches done in this step, and [regions]
                       as kept */
    int *bucket_of; /* [regions] */
    int nbuckets;
    struct bucket *bucket;         /* [regions], and [regions] as kept */
    void *wire[WIRES];             /* NULL unless grad_reduce is bf16 */
    struct bucket *wire_of[WIRES]; /* the bucket that uses the wire */
    int next_wire;
    float *scratch; /* room for one whole region: to gather a tied tensor
                       that is sharded, or to receive in a naive sum */
    struct plait_zero *zero; /* ZeRO 2 and 3, else NULL */
    struct plait_small_norms *norms;
};

static struct plait_shard *shard_of(struct plait_gradsync *sync, int region)
{
    return &sync->shards->shard[region];
}

static enum plait_grad_sync kind_of(const struct plait_gradsync *sync)
{
    return sync->model->config->parallel.grad_sync;
}

/* -- buckets ------------------------------------------------------------- */

static size_t region_bytes(const struct plait_shard *s)
{
    return s->part * s->parts * sizeof(float);
}

/* Whether region i may join the bucket of its neighbour i + 1. */
static bool joins_next(struct plait_gradsync *sync, int i, size_t bytes,
                       size_t limit)
{
    struct plait_shard *s = shard_of(sync, i), *next = shard_of(sync, i + 1);

    return s->parts == 1 && bytes < limit && s->comm == next->comm &&
           (s->region->chunk == next->region->chunk ||
            kind_of(sync) == PLAIT_GRAD_FLAT);
}

/* Whether gradients are summed inside each replica only. */
static bool stays_inside(const struct plait_gradsync *sync)
{
    return plait_sync_parts(&sync->model->config->sync) && !sync->across;
}

static void choose_path(struct plait_gradsync *sync, struct bucket *b)
{
    struct plait_mesh *mesh = sync->model->mesh;
    struct plait_shard *s = shard_of(sync, b->first);
    bool expert = s->region->expert;
    const struct plait_hierarchy *nodes = expert ? &mesh->expert : &mesh->dense;

    b->n = 0;
    for (int i = b->first; i <= b->last; i++)
        b->n += region_bytes(shard_of(sync, i)) / sizeof(float);
    if (sync->shards->zero)
        plait_shard_reduction_path(s, &b->path);
    else if (stays_inside(sync))
        plait_reduction_path_whole(&b->path, s->comm);
    else if (plait_hierarchy_is_faster(mesh, nodes,
                                       sync->model->config->parallel.all_reduce,
                                       b->n * sizeof(float)))
        plait_reduction_path_hierarchical(&b->path, nodes);
    else
        plait_reduction_path_whole(
            &b->path,
            mesh->group[expert ? PLAIT_GROUP_EXPERT_DP : PLAIT_GROUP_DP_CP]);
}

static void choose_paths(struct plait_gradsync *sync)
{
    for (int i = 0; i < sync->nbuckets; i++)
        choose_path(sync, &sync->bucket[i]);
}

void plait_gradsync_across(struct plait_gradsync *sync, bool replicas)
{
    if (sync->across == replicas)
        return;
    sync->across = replicas;
    choose_paths(sync);
}

static void make_buckets(struct plait_gradsync *sync)
{
    size_t most = plait_mesh_bucket_bytes(sync->model->mesh,
                                          &sync->model->config->parallel);
    size_t limit = most < FIRST_BUCKET_BYTES ? most : FIRST_BUCKET_BYTES;
    size_t bytes = 0;
    struct bucket *b = NULL;

    if (kind_of(sync) == PLAIT_GRAD_FLAT)
        limit = most = FLAT_BUCKET_BYTES;
    for (int i = sync->shards->n - 1; i >= 0; i--) {
        if (!b || !joins_next(sync, i, bytes, limit)) {
            if (b)
                limit = most;
            b = &sync->bucket[sync->nbuckets++];
            b->last = i;
            bytes = 0;
        }
        b->first = i;
        bytes += region_bytes(shard_of(sync, i));
        sync->bucket_of[i] = sync->nbuckets - 1;
    }
    choose_paths(sync);
}

/* Get the next bf16 buffer and wait for its last use; *wire is NULL where
 * gradients are sent as fp32. */
static int take_wire(struct plait_gradsync *sync, struct bucket *b, void **wire)
{
    int i = sync->next_wire;

    *wire = sync->wire[i];
    if (!*wire)
        return 0;
    if (sync->wire_of[i] &&
        plait_reduction_finish(sync->model->mesh, &sync->wire_of[i]->sum) < 0)
        return -1;
    sync->wire_of[i] = b;
    sync->next_wire = (i + 1) % WIRES;
    return 0;
}

static int start_bucket(struct plait_gradsync *sync, struct bucket *b)
{
    void *wire;

    if (!plait_reduction_path_has_steps(&b->path))
        return 0;
    if (take_wire(sync, b, &wire) < 0)
        return -1;
    return plait_reduction_start(sync->model->mesh, &b->sum, &b->path,
                                 shard_of(sync, b->first)->region->grad, wire,
                                 b->n);
}

static int advance_buckets(struct plait_gradsync *sync)
{
    for (int i = 0; i < sync->nbuckets; i++)
        if (plait_reduction_advance(sync->model->mesh, &sync->bucket[i].sum) <
            0)
            return -1;
    return 0;
}

/* -- hooks --------------------------------------------------------------- */

/* Backward has added a micro-batch's gradient of the region. */
static int grad_ready(void *arg, struct plait_region *region, int microbatch)
{
    struct plait_gradsync *sync = arg;
    int i = region - sync->model->regions;
    struct bucket *b = &sync->bucket[sync->bucket_of[i]];

    (void)microbatch; /* unused: backward may run in any order */
    if (sync->zero)
        return plait_zero_reduce(sync->zero, i) < 0
                   ? -1
                   : plait_comm_progress(sync->model->mesh->world);
    if (++sync->seen[i] < sync->microbatches)
        return plait_small_norms_reach(sync->norms, i, sync->seen[i]);
    if (plait_model_complete_gradient(sync->model, region) < 0 ||
        plait_small_norms_reach(sync->norms, i, sync->seen[i]) < 0)
        return -1;
    if (kind_of(sync) != PLAIT_GRAD_BUCKETED)
        return 0;
    if (advance_buckets(sync) < 0)
        return -1;
    if (++b->ready == b->last - b->first + 1 && start_bucket(sync, b) < 0)
        return -1;
    return plait_comm_progress(sync->model->mesh->world);
}

static int prefetch_region(void *arg, struct plait_region *region)
{
    struct plait_gradsync *sync = arg;

    return plait_zero_prefetch(sync->zero, region - sync->model->regions);
}

static int acquire_region(void *arg, struct plait_region *region, bool gradient)
{
    struct plait_gradsync *sync = arg;
    int i = region - sync->model->regions;

    if (plait_shards_await(sync->shards, i) < 0)
        return -1;
    return sync->zero ? plait_zero_acquire(sync->zero, i, gradient) : 0;
}

static bool awaits_weights(void *arg)
{
    return plait_shards_gathering(((struct plait_gradsync *)arg)->shards);
}

static int release_region(void *arg, struct plait_region *region)
{
    struct plait_gradsync *sync = arg;

    return plait_zero_release(sync->zero, region - sync->model->regions);
}

/* For a pass that is recorded as a graph: recording calls the hooks, and if no
 * graph comes of it, the pass runs and calls them again. */
static void keep_state(void *arg)
{
    struct plait_gradsync *sync = arg;
    int n = sync->shards->n;

    memcpy(sync->seen + n, sync->seen, n * sizeof(*sync->seen));
    memcpy(sync->bucket + n, sync->bucket, n * sizeof(*sync->bucket));
    if (sync->zero)
        plait_zero_keep(sync->zero);
}

static void restore_state(void *arg)
{
    struct plait_gradsync *sync = arg;
    int n = sync->shards->n;

    memcpy(sync->seen, sync->seen + n, n * sizeof(*sync->seen));
    memcpy(sync->bucket, sync->bucket + n, n * sizeof(*sync->bucket));
    if (sync->zero)
        plait_zero_restore(sync->zero);
}

int plait_gradsync_small(struct plait_gradsync *sync,
                         struct plait_small_batch *small, double *sum)
{
    return plait_small_norms_read(sync->norms, small, sum);
}

int plait_gradsync_queue_small(struct plait_gradsync *sync,
                               struct plait_small_batch *small, double *pinned)
{
    return plait_small_norms_queue(sync->norms, small, pinned);
}

int plait_gradsync_begin(struct plait_gradsync *sync, int microbatches)
{
    struct plait_mesh *mesh = sync->model->mesh;
    struct plait_shards *shards = sync->shards;

    sync->microbatches = microbatches;
    memset(sync->seen, 0, sync->shards->n * sizeof(*sync->seen));
    for (int i = 0; i < sync->nbuckets; i++)
        sync->bucket[i].ready = 0;
    if (plait_small_norms_begin(sync->norms, microbatches) < 0)
        return -1;
    if (sync->zero)
        plait_zero_begin(sync->zero, mesh->graphs.passes);
    /* A captured graph is the same for every micro-batch, so the first one adds
     * to the gradients too, and they must be zero. */
    if (mesh->graphs.passes)
        return mesh->ops->fill_zero(mesh->q, shards->grads,
                                    shards->grads_bytes);
    if (sync->zero)
        return 0;
    for (int i = 0; i < shards->n; i++)
        if (plait_model_begin_gradient(sync->model, shards->shard[i].region) <
            0)
            return -1;
    return 0;
}

/* -- the end of a step --------------------------------------------------- */

static int sum_naively(struct plait_gradsync *sync)
{
    for (int i = 0; i < sync->shards->n; i++) {
        struct plait_shard *s = shard_of(sync, i);

        if (plait_comm_size(s->comm) > 1 &&
            plait_naive_sum(sync->model->mesh, s->comm, s->grad, sync->scratch,
                            s->part) < 0)
            return -1;
    }
    return 0;
}

static int start_all(struct plait_gradsync *sync)
{
    for (int i = 0; i < sync->nbuckets; i++)
        if (start_bucket(sync, &sync->bucket[i]) < 0)
            return -1;
    return 0;
}

static int finish_sums(void *arg)
{
    struct plait_gradsync *sync = arg;

    for (int i = 0; i < sync->nbuckets; i++)
        if (plait_reduction_finish(sync->model->mesh, &sync->bucket[i].sum) < 0)
            return -1;
    return sync->zero ? plait_zero_finish(sync->zero) : 0;
}

int plait_gradsync_finish(struct plait_gradsync *sync)
{
    if (kind_of(sync) == PLAIT_GRAD_NAIVE && sum_naively(sync) < 0)
        return -1;
    if (kind_of(sync) == PLAIT_GRAD_FLAT && start_all(sync) < 0)
        return -1;
    if (finish_sums(sync) < 0)
        return -1;
    return plait_tied_sum(sync->shards, sync->scratch);
}

/* -- life ---------------------------------------------------------------- */

/* Whether the region needs scratch for a second copy of its gradient. */
static bool wants_scratch(struct plait_gradsync *sync, int region)
{
    struct plait_shard *s = shard_of(sync, region);

    if (kind_of(sync) == PLAIT_GRAD_NAIVE)
        return plait_comm_size(s->comm) > 1 && plait_comm_rank(s->comm) == 0;
    if (!sync->model->mesh->embedding || s->parts == 1)
        return false;
    for (int i = 0; i < sync->model->ntensors; i++)
        if (sync->model->tensors[i].region == region &&
            sync->model->tensors[i].tied)
            return true;
    return false;
}

static int make_scratch(struct plait_gradsync *sync)
{
    struct plait_mesh *mesh = sync->model->mesh;
    size_t room = 0;

    for (int i = 0; i < sync->shards->n; i++)
        if (wants_scratch(sync, i) && region_bytes(shard_of(sync, i)) > room)
            room = region_bytes(shard_of(sync, i));
    if (room == 0)
        return 0;
    sync->scratch = mesh->ops->alloc(mesh->dev, room);
    return sync->scratch ? 0 : -1;
}

/* Buffers for sums that are sent as bf16; ZeRO 2 and 3 have their own. */
static int make_wires(struct plait_gradsync *sync)
{
    struct plait_mesh *mesh = sync->model->mesh;
    size_t room = 0;

    if (sync->model->config->parallel.grad_reduce != PLAIT_GRAD_BF16 ||
        sync->zero)
        return 0;
    for (int i = 0; i < sync->nbuckets; i++)
        if (plait_reduction_path_has_steps(&sync->bucket[i].path) &&
            sync->bucket[i].n > room)
            room = sync->bucket[i].n;
    for (int i = 0; i < WIRES && room > 0; i++) {
        sync->wire[i] =
            plait_mesh_alloc(mesh, room * plait_dtype_size(PLAIT_BF16_T));
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
    sync->seen = calloc(2 * shards->n, sizeof(*sync->seen));
    sync->bucket_of = calloc(shards->n, sizeof(*sync->bucket_of));
    sync->bucket = calloc(2 * shards->n, sizeof(*sync->bucket));
    sync->norms = plait_small_norms_create(model);
    if (!sync->seen || !sync->bucket_of || !sync->bucket || !sync->norms ||
        make_scratch(sync) < 0)
        goto error;
    if (shards->zero >= 2) {
        sync->zero = plait_zero_create(shards, sync->norms, err);
        if (!sync->zero)
            goto error;
        model->hooks.prefetch = prefetch_region;
        model->hooks.release = release_region;
    }
    if (shards->zero) {
        model->hooks.acquire = acquire_region;
        model->hooks.awaits = awaits_weights;
    }
    /* Start in the mode of step 0, so that the wires are made as large as they
     * will be needed. */
    sync->across = plait_sync_parts(&model->config->sync) &&
                   !plait_sync_apart(&model->config->sync, 0);
    make_buckets(sync);
    if (make_wires(sync) < 0)
        goto error;
    model->hooks.grad_ready = grad_ready;
    model->hooks.settle = finish_sums;
    model->hooks.keep = keep_state;
    model->hooks.restore = restore_state;
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
    struct plait_mesh *mesh;
    int saved = errno;

    if (!sync)
        return;
    mesh = sync->model->mesh;
    for (int i = 0; i < WIRES; i++)
        plait_mesh_free(mesh, sync->wire[i]);
    mesh->ops->free(mesh->dev, sync->scratch);
    plait_zero_destroy(sync->zero);
    plait_small_norms_destroy(sync->norms);
    free(sync->seen);
    free(sync->bucket_of);
    free(sync->bucket);
    free(sync);
    errno = saved;
}
