/* SPDX-License-Identifier: Apache-2.0 */
/* What the communicators of a world share, and how they end when a rank is
 * lost: NCCL's kernels would wait for the lost peer, perhaps for ever, because
 * NCCL does not notice the loss. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/comm/nccl/nccl_private.h"
#include "topology/base/clock.h"
#include "topology/base/thread.h"

/* How often to ask the host communicator whether a rank is lost. */
#define LOOK_NS 20000000
/* How long to wait for a call that uses the communicator before it is aborted
 * anyway: the call itself may wait for what only the abort ends. */
#define CALL_NS 200000000

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
    ncclGroupStart();
    for (int i = 0; i < n; i++)
        ncclCommAbort(taken[i]);
    ncclGroupEnd();
    free(taken);
}

static void *watch_host(void *arg)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    struct nccl_world *w = arg;

    while (!atomic_load(&w->leave)) {
        if (w->host->vtable->look(w->host)) {
            atomic_store(&w->lost, true);
            abort_all(w);
            return NULL;
        }
        nanosleep(&pause, NULL);
    }
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
    w->memory = nccl_memory_create();
    if (w->memory != NULL && host->vtable->look != NULL)
        w->watched = plait_thread_create(&w->watch, watch_host, w) == 0;
    if (w->memory != NULL && (w->watched || host->vtable->look == NULL))
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
