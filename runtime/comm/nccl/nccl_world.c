/* SPDX-License-Identifier: Apache-2.0 */
/* What the communicators of a world share, and how they end when a rank is
 * lost or NCCL has failed. NCCL's kernels would wait for the lost peer, perhaps
 * for ever, because NCCL does not notice the loss; and what NCCL's own threads
 * notice, a link that is down, it tells whoever asks. The thread that trains
 * waits for the kernels meanwhile, so another one asks. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/comm/nccl/nccl_private.h"
#include "topology/base/clock.h"
#include "topology/base/thread.h"

/* How often to ask the host communicator whether a rank is lost. */
#define LOOK_NS 20000000
/* NCCL is asked every so many looks. */
#define ASK_LOOKS 10
/* NCCL may notice that a peer is gone before the hosts' connections do. In an
 * elastic run the loss counts, so they have so many seconds. */
#define GRACE_S 20
/* How long to wait for a call that uses the communicator before it is aborted
 * anyway: the call itself may wait for what only the abort ends. */
#define CALL_NS 200000000

/* Seconds that NCCL has to abort all communicators, which waits for the thread
 * that trains to destroy its graphs. */
#define ABORT_S 60

ncclComm_t nccl_take(struct nccl_comm *c)
{
    const struct timespec until = plait_clock_in(CLOCK_REALTIME, CALL_NS);
    ncclComm_t nccl;
    int busy;

    busy = pthread_mutex_timedlock(&c->lock, &until);
    nccl = c->nccl;
    c->nccl = NULL;
    if (busy == 0)
        pthread_mutex_unlock(&c->lock);
    return nccl;
}

/* Aborts all as one group: then NCCL tells all their kernels to end before it
 * waits for any, which may be queued behind another communicator's. NCCL also
 * waits for graphs with their transfers, which the training thread destroys: so
 * no lock is held here. */
static void abort_all(struct nccl_world *w)
{
    ncclComm_t *taken;
    int n = 0;

    pthread_mutex_lock(&w->lock);
    taken = w->taken;
    w->taken = NULL;
    for (struct nccl_comm *c = w->first; c != NULL; c = c->next) {
        ncclComm_t nccl = nccl_take(c);

        if (nccl != NULL)
            taken[n++] = nccl;
    }
    pthread_mutex_unlock(&w->lock);
    nccl_abort_within(taken, n, ABORT_S);
}

/* What NCCL has to say of c, into w->why; the list is locked. Errors of CUDA
 * are left to the thread that trains, whose calls fail too. */
static bool ask_about(struct nccl_world *w, struct nccl_comm *c)
{
    ncclResult_t state = ncclSuccess;
    const char *detail = "";
    int last = atomic_load(&c->last);

    if (!atomic_load(&c->ready) || pthread_mutex_trylock(&c->lock) != 0)
        return false; /* the thread that trains looks at its calls' results */
    if (c->nccl != NULL &&
        ncclCommGetAsyncError(c->nccl, &state) == ncclSuccess &&
        nccl_is_broken(state)) {
        detail = ncclGetLastError(c->nccl);
        snprintf(w->why, sizeof(w->why), "rank %d: %s: NCCL: %s: %s%s%s",
                 w->host->rank, c->base.name,
                 last > 0 ? plait_transfer_names[last - 1] : "idle",
                 ncclGetErrorString(state), *detail != '\0' ? ": " : "",
                 detail);
    }
    pthread_mutex_unlock(&c->lock);
    return w->why[0] != '\0';
}

static bool ask_all(struct nccl_world *w)
{
    bool broken = false;

    pthread_mutex_lock(&w->lock);
    for (struct nccl_comm *c = w->first; c != NULL && !broken; c = c->next)
        broken = ask_about(w, c);
    pthread_mutex_unlock(&w->lock);
    return broken;
}

/* The other ranks may never learn it from NCCL: this one leaves them, and those
 * that wait for it on the host see that. */
static void leave_hosts(struct nccl_world *w)
{
    pthread_mutex_lock(&w->lock);
    for (struct nccl_comm *c = w->first; c != NULL; c = c->next) {
        struct plait_comm *host = c->owner ? w->host : c->base.host;

        if (host == NULL)
            continue;
        plait_comm_fail(host, "%s", w->why);
        if (host->vtable->leaves)
            host->vtable->abort(host);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Whether the world has ended. `looks`: how often it was looked at. */
static bool look_once(struct nccl_world *w, int looks)
{
    bool elastic = w->host->vtable->look != NULL;

    if (elastic && w->host->vtable->look(w->host)) {
        w->why[0] = '\0';
    } else {
        if (w->why[0] == '\0' && (looks % ASK_LOOKS != 0 || !ask_all(w)))
            return false;
        if (w->noticed == 0)
            w->noticed = plait_clock_now();
        if (elastic && plait_clock_now() - w->noticed < GRACE_S)
            return false;
    }
    atomic_store(&w->lost, true);
    if (!elastic)
        leave_hosts(w);
    abort_all(w);
    return true;
}

static void *watch_world(void *arg)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    struct nccl_world *w = arg;

    for (int looks = 1; !atomic_load(&w->leave) && !look_once(w, looks);
         looks = looks % ASK_LOOKS + 1)
        nanosleep(&pause, NULL);
    return NULL;
}

struct nccl_world *nccl_world_create(struct plait_comm *host,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev)
{
    struct nccl_world *w = calloc(1, sizeof(*w));

    if (w == NULL)
        return NULL;
    w->host = host;
    w->ops = ops;
    w->dev = dev;
    pthread_mutex_init(&w->lock, NULL);
    nccl_log_begin(w);
    w->memory = nccl_memory_create();
    if (w->memory != NULL)
        w->watched = plait_thread_create(&w->watch, watch_world, w) == 0;
    if (w->watched)
        return w;
    nccl_world_destroy(w);
    errno = ENOMEM;
    return NULL;
}

void nccl_world_settle(struct nccl_world *w)
{
    if (!w->watched || !atomic_load(&w->lost))
        return;
    pthread_join(w->watch, NULL);
    w->watched = false;
}

void nccl_world_destroy(struct nccl_world *w)
{
    int saved = errno;

    if (w == NULL)
        return;
    atomic_store(&w->leave, true);
    if (w->watched)
        pthread_join(w->watch, NULL);
    nccl_log_end(w);
    nccl_memory_destroy(w->memory, w->ops, w->dev);
    pthread_mutex_destroy(&w->lock);
    free(w->taken);
    free(w);
    errno = saved;
}

int nccl_world_add(struct nccl_world *w, struct nccl_comm *c)
{
    ncclComm_t *taken;

    pthread_mutex_lock(&w->lock);
    taken = realloc(w->taken, ((size_t)w->n + 1) * sizeof(*taken));
    if (taken != NULL) {
        w->taken = taken;
        w->n++;
        c->next = w->first;
        w->first = c;
    }
    pthread_mutex_unlock(&w->lock);
    return taken != NULL ? 0 : -1;
}

void nccl_world_remove(struct nccl_world *w, struct nccl_comm *c)
{
    struct nccl_comm **link;

    pthread_mutex_lock(&w->lock);
    for (link = &w->first; *link != c; link = &(*link)->next)
        ;
    *link = c->next;
    w->n--;
    pthread_mutex_unlock(&w->lock);
}
