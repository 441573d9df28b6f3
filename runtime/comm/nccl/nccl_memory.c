/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that NCCL uses without copies. It comes from ncclMemAlloc(), and a
 * window registers it with a group, at equal offsets on all ranks: NCCL's
 * kernels then access the peers' memory directly and reduce in the NVSwitches.
 * Where the group's GPUs cannot reach each other, NCCL registers it with NVLS
 * and NICs only. NCCL decides what is available (NCCL_WIN_ENABLE,
 * NCCL_LOCAL_REGISTER). If a window cannot be made on one rank, all do without,
 * and transfers work as usual. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/comm/nccl/nccl_private.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
typedef ncclWindow_t registration;
#else
typedef void *registration;
#endif

/* Says that a group has a region registered, or has found that it cannot. */
struct window {
    struct window *next;
    struct nccl_comm *comm;
    registration handle; /* NULL: nothing to undo */
};

struct region {
    struct region *next;
    char *base;
    size_t bytes;
    bool unused; /* freed while the world was being aborted */
    struct window *windows;
};

struct nccl_memory {
    struct region *regions;
};

struct nccl_memory *nccl_memory_create(void)
{
    return calloc(1, sizeof(struct nccl_memory));
}

void nccl_memory_destroy(struct nccl_memory *memory,
                         const struct plait_ops *ops, struct plait_device *dev)
{
    while (memory != NULL && memory->regions != NULL) {
        struct region *r = memory->regions;

        memory->regions = r->next;
        if (r->unused)
            ops->free(dev, r->base);
        free(r);
    }
    free(memory);
}

/* -- windows -------------------------------------------------------------- */

static ncclResult_t register_window(struct nccl_comm *c, const struct region *r,
                                    registration *handle)
{
    ncclResult_t result = ncclInvalidUsage;

    pthread_mutex_lock(&c->lock);
    if (c->nccl != NULL)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
        result = ncclCommWindowRegister(c->nccl, r->base, r->bytes, handle,
                                        NCCL_WIN_COLL_SYMMETRIC);
#else
        result = ncclCommRegister(c->nccl, r->base, r->bytes, handle);
#endif
    pthread_mutex_unlock(&c->lock);
    return result;
}

static void deregister_window(struct nccl_comm *c, registration handle)
{
    pthread_mutex_lock(&c->lock);
    if (c->nccl != NULL)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
        ncclCommWindowDeregister(c->nccl, handle);
#else
        ncclCommDeregister(c->nccl, handle);
#endif
    pthread_mutex_unlock(&c->lock);
}

/* Whether the value is the same on all ranks of c: 1 or 0; -1: c has failed. */
static int is_common(struct nccl_comm *c, uint64_t mine)
{
    struct plait_comm *host = c->base.host;
    uint64_t *all = calloc(c->base.size, sizeof(*all));
    int common = 1;

    if (all == NULL ||
        host->vtable->host_all_gather(host, &mine, all, sizeof(mine)) < 0) {
        free(all);
        return plait_comm_fail(&c->base,
                               "%s: cannot agree on the memory to register: "
                               "%s",
                               c->base.name,
                               host->failed ? host->error : "out of memory");
    }
    for (int i = 0; i < c->base.size; i++)
        if (all[i] != mine)
            common = 0;
    free(all);
    return common;
}

/* A registration stays only if it succeeded on all ranks. `result`: this
 * rank's. */
static int agree_on_window(struct nccl_comm *c, struct window *w,
                           ncclResult_t result)
{
    static const char what[] = "register memory (PLAIT_NCCL_WINDOWS=0 "
                               "does without)";
    ncclResult_t state;
    int common;

    if (c->base.failed) {
        errno = EIO;
        return -1;
    }
    common = is_common(c, result == ncclSuccess);
    if (common < 0)
        return -1;
    if (common && result == ncclSuccess)
        return 0;
    if (result == ncclSuccess && w->handle != NULL)
        deregister_window(c, w->handle);
    w->handle = NULL;
    c->windows = false; /* and try no others */
    state = nccl_state(c);
    return !c->late && (state == ncclSuccess || state == ncclInProgress)
               ? 0
               : nccl_failed(c, what, state);
}

static int open_window(struct nccl_comm *c, struct region *r)
{
    int common = is_common(c, r->bytes);
    struct window *w;

    if (common < 0)
        return -1;
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return plait_comm_fail(&c->base, "%s: out of memory", c->base.name);
    w->comm = c;
    w->next = r->windows;
    r->windows = w;
    if (!common)
        return 0;
    /* NCCL stores the handle when the call is complete. */
    return agree_on_window(
        c, w,
        nccl_await(c, register_window(c, r, &w->handle), plait_nccl_limit()));
}

/* The windows of a failed communicator are freed by NCCL when it is aborted. It
 * may still write the handle of one that was late, which therefore stays. */
static void close_window(struct window *w)
{
    struct nccl_comm *c = w->comm;

    if (w->handle != NULL && !c->base.failed &&
        c->base.ops->queue_sync(c->q) == 0)
        deregister_window(c, w->handle);
    if (!c->late)
        free(w);
}

/* -- regions -------------------------------------------------------------- */

static struct region *find_region(const struct nccl_memory *memory,
                                  const void *ptr)
{
    struct region *r = memory->regions;

    while (r != NULL && !((const char *)ptr >= r->base &&
                          (const char *)ptr < r->base + r->bytes))
        r = r->next;
    return r;
}

static int use_pointer(struct nccl_comm *c, const void *ptr)
{
    struct region *r = find_region(c->world->memory, ptr);
    struct window *w = r != NULL ? r->windows : NULL;

    while (w != NULL && w->comm != c)
        w = w->next;
    return r == NULL || w != NULL ? 0 : open_window(c, r);
}

int nccl_memory_use(struct nccl_comm *c, const struct plait_transfer *t)
{
    if (!c->windows ||
        (t->kind != PLAIT_ALL_REDUCE && t->kind != PLAIT_REDUCE_SCATTER &&
         t->kind != PLAIT_ALL_GATHER))
        return 0;
    return use_pointer(c, t->send) < 0 || use_pointer(c, t->recv) < 0 ? -1 : 0;
}

void nccl_memory_leave(struct nccl_comm *c)
{
    for (struct region *r = c->world->memory->regions; r != NULL; r = r->next) {
        struct window **link = &r->windows, *w;

        while (*link != NULL && (*link)->comm != c)
            link = &(*link)->next;
        w = *link;
        if (w == NULL)
            continue;
        *link = w->next;
        close_window(w);
    }
}

static void release_memory(void *ptr)
{
    ncclMemFree(ptr);
}

void *nccl_memory_alloc(struct nccl_comm *world, size_t bytes)
{
    const struct plait_ops *ops = world->base.ops;
    struct region *r = calloc(1, sizeof(*r));
    void *base = NULL;

    if (r == NULL)
        return NULL;
    r->bytes = bytes > 0 ? bytes : 1;
    /* Any operation on a queue selects its device for this thread. */
    if (ops->queue_sync(world->q) < 0 ||
        ncclMemAlloc(&base, r->bytes) != ncclSuccess)
        goto error;
    if (ops->adopt(world->base.dev, base, r->bytes, release_memory) < 0)
        goto error;
    r->base = base;
    r->next = world->world->memory->regions;
    world->world->memory->regions = r;
    return base;

error:
    if (base != NULL)
        ncclMemFree(base);
    free(r);
    errno = ENOMEM;
    return NULL;
}

void nccl_memory_free(struct nccl_comm *world, void *ptr)
{
    struct region **link = &world->world->memory->regions, *r;

    while (*link != NULL && (*link)->base != ptr)
        link = &(*link)->next;
    r = *link;
    if (r == NULL)
        return;
    while (r->windows != NULL) {
        struct window *w = r->windows;

        r->windows = w->next;
        close_window(w);
    }
    /* Still registered with communicators that are being aborted: free it
     * later. */
    if (atomic_load(&world->world->lost)) {
        r->unused = true;
        return;
    }
    *link = r->next;
    world->base.ops->free(world->base.dev, ptr);
    free(r);
}
