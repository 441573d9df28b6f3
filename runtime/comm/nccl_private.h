/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_NCCL_PRIVATE_H
#define PLAIT_RUNTIME_COMM_NCCL_PRIVATE_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/comm/comm_private.h"

/* What the files of the module share. */

struct nccl_event;
struct nccl_request;
struct nccl_memory;
struct nccl_comm;

/* What the communicators of a world share. Where its host tells of ranks that
 * are lost, a thread watches it, and then aborts all of them: their transfers
 * would wait for ever, and the thread that trains with them. */
struct nccl_world {
    struct plait_comm *host; /* of the world's ranks */
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct nccl_memory *memory;
    pthread_mutex_t lock; /* of the list */
    struct nccl_comm *first;
    int n;
    ncclComm_t *taken; /* [n] room for what is aborted; NULL: it was */
    atomic_bool lost, leave;
    bool watched;
    pthread_t watch;
};

struct nccl_comm {
    struct plait_comm base;
    struct nccl_world *world;
    struct nccl_comm *next; /* of the world */
    bool owner;             /* it is the world */
    pthread_mutex_t lock;   /* of nccl: abort() comes from another thread */
    ncclComm_t nccl;        /* NULL once aborted */
    struct plait_queue *q;
    struct nccl_event *idle; /* events for reuse */
    /* Sends and receives that are handed to NCCL together, as one group:
     * one by one, two neighbours could wait for each other. */
    struct nccl_request *held, **held_end;
    struct nccl_request *open; /* not waited for yet */
    bool windows;              /* policy.h */
};

static inline struct nccl_comm *nccl_of(struct plait_comm *comm)
{
    return (struct nccl_comm *)comm;
}

/* What NCCL says of the communicator now. The lock is not held. */
ncclResult_t nccl_state(struct nccl_comm *c);
/* Mark c failed by `what`, with NCCL's text for r. -1 with errno. */
int nccl_failed(struct nccl_comm *c, const char *what, ncclResult_t r);
/* Waits until a call that returned `r` is through, whatever it said: what it
 * has come to, ncclInProgress if c has failed meanwhile. The lock is not held.
 */
ncclResult_t nccl_await(struct nccl_comm *c, ncclResult_t r);
/* The same: 0, or -1 and the communicator has failed. */
int nccl_settle(struct nccl_comm *c, const char *what, ncclResult_t r);

/* -- what is shared: nccl_world.c ------------------------------------------ */

/* NULL with errno. */
struct nccl_world *nccl_world_create(struct plait_comm *host,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev);
/* Once it has no communicator left. NULL-safe. */
void nccl_world_destroy(struct nccl_world *world);
/* -1: out of memory. */
int nccl_world_add(struct nccl_world *world, struct nccl_comm *c);
void nccl_world_remove(struct nccl_world *world, struct nccl_comm *c);
/* Until what was aborted is gone: with no graph left that has transfers of it,
 * for which NCCL waits. */
void nccl_world_settle(struct nccl_world *world);
/* The communicator from c, which has none then; NULL: somebody has taken it. */
ncclComm_t nccl_take(struct nccl_comm *c);

/* -- transfers: nccl_transfer.c -------------------------------------------- */

/* The vtable's. */
int nccl_run(struct plait_comm *comm, const struct plait_transfer *t,
             struct plait_queue *q, struct plait_request **req);
int nccl_wait(struct plait_request *req, struct plait_queue *q);
int nccl_progress(struct plait_comm *comm);
/* Hands NCCL the sends and receives that were held back. */
int nccl_flush(struct nccl_comm *c);
/* The events kept for reuse, and the requests that nobody has waited for when
 * the communicator was lost. */
void nccl_events_destroy(struct nccl_comm *c);

/* -- memory of plait_comm_alloc() ----------------------------------------- */

struct nccl_memory *nccl_memory_create(void);
/* What has not been given back stays the device's. NULL-safe. */
void nccl_memory_destroy(struct nccl_memory *memory,
                         const struct plait_ops *ops, struct plait_device *dev);
void *nccl_memory_alloc(struct nccl_comm *world, size_t bytes);
void nccl_memory_free(struct nccl_comm *world, void *ptr);
/* Before a transfer: registers what it is the first to use with `c`. The
 * ranks of c come here with the same transfers, and so with the same memory,
 * in the same order; what they have of different size stays without. */
int nccl_memory_use(struct nccl_comm *c, const struct plait_transfer *t);
/* c is about to end. */
void nccl_memory_leave(struct nccl_comm *c);

#endif
