/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, as the module plait_nccl.so. Each communicator has a stream of its own,
 * ordered by events with the queues of its callers. Communicators are
 * non-blocking, so that a peer that is gone cannot block this process: calls in
 * progress are polled, and abort() ends them. NCCL rounds to the type after
 * each addition: 16-bit types are summed in fp32 only pair by pair.
 *
 * Transfers of groups overlap: gradients are reduced while tensor parallel
 * ranks exchange activations. Their kernels must not start in different orders
 * on two GPUs that lack room for both, so NCCL is told to keep the order of
 * this program, which is the same on all ranks. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/same_build.h"
#include "runtime/comm/nccl/nccl_private.h"
#include "runtime/comm/nccl/policy.h"

/* Exported beside plait_nccl_create(). */
extern const struct plait_build plait_nccl_build;
__attribute__((visibility("default")))
const struct plait_build plait_nccl_build = PLAIT_NCCL_BUILD;

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 1)
#error "NCCL 2.19 or later is needed (ncclCommSplit, ncclMemAlloc)"
#endif

/* With more ranks per unique id, connecting becomes slow. */
#define RANKS_PER_ID 1024

static const struct plait_comm_vtable nccl_vtable;

/* -- life ----------------------------------------------------------------- */

/* Translate policy.h's settings, as far as this version of NCCL has them. */
static void apply_policy(const struct plait_group_policy *p,
                         ncclConfig_t *config)
{
    if (p->min_ctas > 0)
        config->minCTAs = p->min_ctas;
    if (p->max_ctas > 0)
        config->maxCTAs = p->max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 2)
    if (p->traffic_class >= 0)
        config->trafficClass = p->traffic_class;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    if (p->collnet >= 0)
        config->collnetEnable = p->collnet;
    if (p->nvls_ctas > 0)
        config->nvlsCTAs = p->nvls_ctas;
    if (p->efficient)
        config->CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    if (p->channels_per_peer > 0)
        config->nChannelsPerNetPeer = p->channels_per_peer;
#endif
}

/* Registered memory has made NCCL hang or fail on some machines
 * (NVIDIA/nccl#1735, #2241), and no run of Plait has proved it yet. */
static bool wants_windows(void)
{
    const char *wanted = getenv("PLAIT_NCCL_WINDOWS");

    return wanted != NULL && strcmp(wanted, "1") == 0;
}

static ncclConfig_t choose_config(struct nccl_comm *c,
                                  const struct plait_group_site *site)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct plait_group_policy policy;

    config.blocking = 0;
    config.splitShare = 0; /* a group must be able to fail alone */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    config.commName = c->base.name;
#endif
    plait_group_policy_choose(site, &policy);
    apply_policy(&policy, &config);
    c->room = policy.room;
    c->of_passes = site->axis == PLAIT_COMM_AXIS_TP;
    c->windows = policy.windows && wants_windows();
    return config;
}

/* The stream has high priority: where transfers compete with compute, other
 * ranks wait for them. */
static struct nccl_comm *make_comm(struct nccl_world *world,
                                   const struct plait_ops *ops,
                                   struct plait_device *dev,
                                   const struct plait_identity *self)
{
    struct nccl_comm *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    plait_comm_init(&c->base, &nccl_vtable, ops, dev, self);
    c->world = world;
    c->held_end = &c->held;
    pthread_mutex_init(&c->lock, NULL);
    c->q = ops->queue_create(dev, 1);
    if (c->q != NULL && nccl_world_add(world, c) == 0)
        return c;
    ops->queue_destroy(c->q);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

static void free_comm(struct nccl_comm *c)
{
    nccl_world_remove(c->world, c);
    nccl_events_destroy(c);
    if (c->owner)
        nccl_world_destroy(c->world);
    c->base.ops->queue_destroy(c->q);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void nccl_abort(struct plait_comm *comm)
{
    ncclComm_t nccl = nccl_take(nccl_of(comm));

    if (nccl != NULL && nccl_of(comm)->late)
        nccl_abort_late(nccl);
    else if (nccl != NULL)
        ncclCommAbort(nccl);
}

static int finalize(struct nccl_comm *c)
{
    ncclResult_t r = ncclInvalidUsage;

    pthread_mutex_lock(&c->lock);
    if (c->nccl != NULL)
        r = ncclCommFinalize(c->nccl);
    pthread_mutex_unlock(&c->lock);
    return nccl_settle_within(c, "finalize", r, plait_nccl_limit());
}

static void nccl_destroy(struct plait_comm *comm)
{
    struct nccl_comm *c = nccl_of(comm);
    ncclComm_t nccl;

    atomic_store(&c->ready, false);
    nccl_memory_leave(c);
    if (!comm->failed && comm->ops->queue_sync(c->q) == 0 && finalize(c) == 0) {
        nccl = nccl_take(c);
        if (nccl != NULL)
            ncclCommDestroy(nccl);
    }
    nccl_abort(comm);
    free_comm(c);
}

/* A unique id, or why its rank has none. */
struct unique {
    ncclUniqueId id;
    int32_t result;
};

/* The unique ids of a world, each made by the first of the ranks it serves. All
 * ranks learn the first failure, which its rank reports. */
static ncclResult_t share_ids(struct plait_comm *host, int n, ncclUniqueId *ids)
{
    struct unique u;

    for (int i = 0; i < n; i++) {
        int root = (int)((int64_t)i * host->size / n);

        memset(&u, 0, sizeof(u));
        if (host->rank == root)
            u.result = ncclGetUniqueId(&u.id);
        if (host->vtable->host_broadcast(host, &u, sizeof(u), root) < 0)
            return ncclSystemError;
        if (u.result != ncclSuccess) {
            host->agreed = true;
            return host->rank == root ? (ncclResult_t)u.result
                                      : ncclRemoteError;
        }
        ids[i] = u.id;
    }
    return ncclSuccess;
}

static ncclResult_t init_rank(struct nccl_comm *c, int nids, ncclUniqueId *ids,
                              ncclConfig_t *config)
{
    ncclResult_t r;

    pthread_mutex_lock(&c->lock);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
    if (nids > 1)
        r = ncclCommInitRankScalable(&c->nccl, c->base.size, c->base.rank, nids,
                                     ids, config);
    else
#endif
        r = ncclCommInitRankConfig(&c->nccl, c->base.size, ids[0], c->base.rank,
                                   config);
    (void)nids;
    pthread_mutex_unlock(&c->lock);
    return r;
}

static int id_count(int size)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
    return (size + RANKS_PER_ID - 1) / RANKS_PER_ID;
#else
    (void)size;
    return 1;
#endif
}

/* What this rank does alone before it meets the others in NCCL. */
static int prepare_alone(struct nccl_comm *c, const ncclUniqueId *ids,
                         struct plait_error *err)
{
    if (ids == NULL)
        return plait_errorf(err, "NCCL: out of memory");
    /* Any operation on a queue selects its device for this thread. */
    if (c->base.ops->queue_sync(c->q) < 0)
        return plait_errorf(err, "rank %d: NCCL: no CUDA stream", c->base.rank);
    return nccl_limit_check(err);
}

/* NCCL waits for all ranks: so they say first that they are there. */
static int connect_all(struct nccl_comm *c, int nids, ncclUniqueId *ids,
                       struct plait_error *err)
{
    const struct plait_group_site unknown = {.axis = PLAIT_COMM_AXIS_NONE};
    ncclConfig_t config;
    ncclResult_t r;

    if (!nccl_all_ready(c, prepare_alone(c, ids, err) == 0, err))
        return -1;
    r = share_ids(c->world->host, nids, ids);
    if (r != ncclSuccess)
        return r == ncclRemoteError
                   ? -1
                   : plait_errorf(err, "rank %d: NCCL: no unique id: %s",
                                  c->base.rank, ncclGetErrorString(r));
    config = choose_config(c, &unknown);
    if (nccl_settle_within(c, "connect", init_rank(c, nids, ids, &config),
                           plait_nccl_limit()) == 0)
        return 0;
    return plait_errorf(err, "rank %d: %s", c->base.rank, c->base.error);
}

/* errno ETIMEDOUT: NCCL was late. */
static int connect_world(struct nccl_comm *c, struct plait_error *err)
{
    int nids = id_count(c->base.size), rc;
    ncclUniqueId *ids = calloc((size_t)nids, sizeof(*ids));

    rc = connect_all(c, nids, ids, err);
    nccl_log_opened(c->world);
    nccl_log_take(c);
    free(ids);
    errno = c->late ? ETIMEDOUT : EIO;
    return rc;
}

__attribute__((visibility("default"))) struct plait_comm *
plait_nccl_create(struct plait_comm *host, const struct plait_ops *ops,
                  struct plait_device *dev, const struct plait_launch *launch,
                  struct plait_error *err)
{
    struct nccl_world *world = nccl_world_create(host, ops, dev);
    const struct plait_identity self = {"world", host->rank, host->size};
    struct nccl_comm *c = world ? make_comm(world, ops, dev, &self) : NULL;
    int saved;

    (void)launch;
    /* Effective from NCCL 2.26 on; a value set by the user stays. */
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    if (c == NULL) {
        plait_errorf(err, "NCCL: no stream");
        nccl_world_destroy(world);
        errno = ENOMEM;
        return NULL;
    }
    c->owner = true;
    if (connect_world(c, err) == 0) {
        atomic_store(&c->ready, true);
        return &c->base;
    }
    saved = errno;
    c->base.failed = true;
    nccl_destroy(&c->base);
    errno = saved;
    return NULL;
}

/* The rank and size of the group that ncclCommSplit made. */
static int group_identity(struct nccl_comm *c)
{
    ncclResult_t r = ncclInvalidUsage;

    pthread_mutex_lock(&c->lock);
    if (c->nccl != NULL)
        r = ncclCommUserRank(c->nccl, &c->base.rank);
    if (r == ncclSuccess)
        r = ncclCommCount(c->nccl, &c->base.size);
    pthread_mutex_unlock(&c->lock);
    return r == ncclSuccess ? 0 : nccl_failed(c, "rank", r);
}

static int nccl_split(struct plait_comm *parent, const struct plait_split *into,
                      const struct plait_group_site *site,
                      struct plait_comm **comm, struct plait_error *err)
{
    /* NCCL tells the rank and the size when it has made the group. */
    const struct plait_identity self = {.name = into->name};
    int color = into->color < 0 ? NCCL_SPLIT_NOCOLOR : into->color;
    struct nccl_comm *p = nccl_of(parent), *c;
    ncclConfig_t config;
    ncclResult_t r;
    bool late;

    *comm = NULL;
    c = make_comm(p->world, parent->ops, parent->dev, &self);
    if (c == NULL)
        return plait_errorf(err, "%s: no stream", into->name);
    if (nccl_flush(p) < 0 || parent->ops->queue_sync(c->q) < 0)
        goto error;
    config = choose_config(c, site);
    pthread_mutex_lock(&p->lock);
    r = ncclInvalidUsage;
    if (p->nccl != NULL)
        r = ncclCommSplit(p->nccl, color, into->key, &c->nccl, &config);
    pthread_mutex_unlock(&p->lock);
    /* The new communicator exists once the parent's call is complete. */
    if (nccl_settle_within(p, "split", r, plait_nccl_limit()) < 0)
        goto error;
    if (into->color < 0) {
        free_comm(c);
        return 0;
    }
    if (nccl_settle_within(c, "connect", ncclSuccess, plait_nccl_limit()) < 0 ||
        group_identity(c) < 0)
        goto error;
    nccl_log_take(c);
    atomic_store(&c->ready, true);
    *comm = &c->base;
    return 0;

error:
    plait_errorf(err, "%s",
                 parent->failed   ? parent->error
                 : c->base.failed ? c->base.error
                                  : "no CUDA stream");
    late = p->late || c->late;
    nccl_world_settle(c->world); /* until then c may be written to */
    c->base.failed = true;
    if (!p->late) /* else c may be written to for ever, and stays */
        nccl_destroy(&c->base);
    errno = late ? ETIMEDOUT : EIO;
    return -1;
}

static void *alloc_memory(struct plait_comm *comm, size_t bytes)
{
    return nccl_memory_alloc(nccl_of(comm), bytes);
}

static void free_memory(struct plait_comm *comm, void *ptr)
{
    nccl_memory_free(nccl_of(comm), ptr);
}

/* Whether it keeps the order of transfers, both directly and in a graph. */
static bool keeps_order(void)
{
    const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    int version = 0;

    return ncclGetVersion(&version) == ncclSuccess && version >= 22600 &&
           order && strcmp(order, "1") == 0;
}

/* Versions that are known to fail, in worlds of so many ranks and more. */
static const struct {
    int first, last, ranks;
    const char *what;
} faults[] = {
    {0, 22599, 2,
     "NCCL before 2.26 does not keep the order of several groups' transfers, "
     "and GPUs may wait for each other for ever: install 2.27.3 or later"},
    {22705, 22705, 44,
     "NCCL 2.27.5 has crashed in NVLink domains of 44 ranks and more "
     "(NVIDIA/nccl#2186): install another version"},
};

static const char *nccl_remark(const struct plait_comm *world)
{
    int version = 0;

    if (ncclGetVersion(&version) != ncclSuccess)
        return NULL;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        if (version >= faults[i].first && version <= faults[i].last &&
            world->size >= faults[i].ranks)
            return faults[i].what;
    return NULL;
}

/* NCCL 2.26, and later ones with drivers before 12.9, put all transfers of a
 * graph one after another, whatever their communicators. */
static bool overlaps(int driver)
{
    int version = 0;

    return ncclGetVersion(&version) == ncclSuccess && version >= 22703 &&
           driver >= 12090;
}

static const struct plait_comm_vtable nccl_vtable = {
    .name = "nccl",
    .records = true,
    .orders = keeps_order,
    .remark = nccl_remark,
    .overlaps = overlaps,
    .describe = nccl_describe,
    .destroy = nccl_destroy,
    .abort = nccl_abort,
    .split = nccl_split,
    .run = nccl_run,
    .wait = nccl_wait,
    .progress = nccl_progress,
    .alloc = alloc_memory,
    .free = free_memory,
};
