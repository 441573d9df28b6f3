/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_NCCL_NCCL_PRIVATE_H
#define PLAIT_RUNTIME_COMM_NCCL_NCCL_PRIVATE_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "runtime/comm/backend.h"

/* What the files of the module share. */

struct nccl_event;
struct nccl_request;
struct nccl_memory;
struct nccl_comm;

/* What the communicators of a world share. A thread asks NCCL for errors and,
 * where the host communicator can tell that ranks are lost, watches it; then it
 * aborts all NCCL communicators: otherwise their transfers, and the thread that
 * trains, would wait for ever. */
struct nccl_world {
    struct plait_comm *host; /* the same ranks, for host values */
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct nccl_memory *memory;
    pthread_mutex_t lock; /* of the list */
    struct nccl_comm *first;
    int n;
    ncclComm_t *taken; /* [n] room for abort_all(); NULL: it has run */
    atomic_bool lost, leave;
    char why[240];  /* what NCCL has said; "" where the hosts know of a loss.
                       Valid once it is lost */
    double noticed; /* when it said so; the watch's own */
    bool watched;
    pthread_t watch;
    int log;      /* NCCL's log, in memory; -1: none */
    off_t log_at; /* what is read of it */
};

/* What the log says of a communicator; channels 0: nothing. */
struct nccl_links {
    int channels, nvls;
    char ways[64];
};

struct nccl_comm {
    struct plait_comm base;
    struct nccl_world *world;
    struct nccl_comm *next; /* in the world's list */
    struct nccl_links links;
    bool owner;           /* it is the world's communicator */
    bool late;            /* NCCL has not made it in time */
    pthread_mutex_t lock; /* of nccl: abort() runs in another thread */
    ncclComm_t nccl;      /* NULL once aborted */
    struct plait_queue *q;
    struct nccl_event *idle; /* events for reuse */
    /* Sends and receives that are passed to NCCL together, as one group: one by
     * one, two peers could wait for each other. */
    struct nccl_request *held, **held_end;
    struct nccl_request *open; /* not waited for yet */
    bool windows;              /* policy.h */
    int room;                  /* likewise */
    bool of_passes; /* its collectives belong to forward and backward, not to
                       gradients and weights */
    int nopen[2];   /* open collectives; [1]: that each forward has beside it */
    atomic_int last;   /* the kind of its last transfer + 1 */
    atomic_bool ready; /* connected, and not being destroyed */
};

static inline struct nccl_comm *nccl_of(struct plait_comm *comm)
{
    return (struct nccl_comm *)comm;
}

/* -- what calls have come to: nccl_wait.c ---------------------------------- */

/* -1 with err where PLAIT_NCCL_TIMEOUT is no time. */
int nccl_limit_check(struct plait_error *err);
/* The state that NCCL reports for the communicator. Call without the lock. */
ncclResult_t nccl_state(struct nccl_comm *c);
/* Marks c failed: `what` with NCCL's text for r. -1 with errno. */
int nccl_failed(struct nccl_comm *c, const char *what, ncclResult_t r);
/* Whether it says that the network or NCCL itself has failed: not in progress,
 * and no error of CUDA. */
bool nccl_is_broken(ncclResult_t state);
/* Waits until the NCCL call that returned `r` has completed, and returns its
 * result; ncclInProgress if c has failed meanwhile, or if it has taken longer
 * than `seconds`, and c is late. seconds 0: no limit. Call without the lock. */
ncclResult_t nccl_await(struct nccl_comm *c, ncclResult_t r, double seconds);
/* The same, but fails the communicator: 0 or -1. */
int nccl_settle_within(struct nccl_comm *c, const char *what, ncclResult_t r,
                       double seconds);
int nccl_settle(struct nccl_comm *c, const char *what, ncclResult_t r);
/* Aborts all[n] as one group, and frees the array. An abort may wait for ever
 * for what NCCL or a driver never ends: after `seconds` this returns without
 * it. */
void nccl_abort_within(ncclComm_t *all, int n, double seconds);
/* Of one that NCCL has not made in time, which gets a few seconds. */
void nccl_abort_late(ncclComm_t nccl);
/* Whether all ranks of the world say that they are ready. Collective over the
 * hosts. Err only where the ranks cannot be asked. */
bool nccl_all_ready(struct nccl_comm *c, bool ready, struct plait_error *err);

/* -- what is shared: nccl_world.c ------------------------------------------ */

/* NULL with errno. */
struct nccl_world *nccl_world_create(struct plait_comm *host,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev);
/* Call when all its communicators are gone. `world` may be NULL. */
void nccl_world_destroy(struct nccl_world *world);
/* -1: out of memory. */
int nccl_world_add(struct nccl_world *world, struct nccl_comm *c);
void nccl_world_remove(struct nccl_world *world, struct nccl_comm *c);
/* Waits until the aborted communicators are gone. Destroy graphs with their
 * transfers first: NCCL waits for those. */
void nccl_world_settle(struct nccl_world *world);
/* Takes the NCCL communicator out of c, which has none afterwards; NULL:
 * another thread has taken it. */
ncclComm_t nccl_take(struct nccl_comm *c);

/* -- NCCL's log: nccl_log.c ------------------------------------------------ */

/* Before NCCL's first call; after its first call; at the end. */
void nccl_log_begin(struct nccl_world *world);
void nccl_log_opened(struct nccl_world *world);
void nccl_log_end(struct nccl_world *world);
/* What has been written since the last time is of this communicator. */
void nccl_log_take(struct nccl_comm *c);
/* For the vtable. */
void nccl_describe(struct plait_comm *comm, char *text, size_t size);

/* -- transfers: nccl_transfer.c -------------------------------------------- */

/* For the vtable. */
int nccl_run(struct plait_comm *comm, const struct plait_transfer *t,
             struct plait_queue *q, struct plait_request **req);
int nccl_wait(struct plait_request *req, struct plait_queue *q);
int nccl_progress(struct plait_comm *comm);
/* Passes the sends and receives that were held back to NCCL. */
int nccl_flush(struct nccl_comm *c);
/* Destroys the events for reuse, and requests that were not waited for before
 * the communicator was lost. */
void nccl_events_destroy(struct nccl_comm *c);

/* -- memory of plait_comm_alloc() ----------------------------------------- */

struct nccl_memory *nccl_memory_create(void);
/* Memory that was not freed stays with the device. `memory` may be NULL. */
void nccl_memory_destroy(struct nccl_memory *memory,
                         const struct plait_ops *ops, struct plait_device *dev);
void *nccl_memory_alloc(struct nccl_comm *world, size_t bytes);
void nccl_memory_free(struct nccl_comm *world, void *ptr);
/* Call before a transfer: registers memory that is used with `c` for the first
 * time. The ranks of c call it for the same transfers, so they register the
 * same memory in the same order. Memory whose size differs between ranks is not
 * registered. */
int nccl_memory_use(struct nccl_comm *c, const struct plait_transfer *t);
/* Call before c ends. */
void nccl_memory_leave(struct nccl_comm *c);

#endif
