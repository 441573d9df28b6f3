/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BACKEND_H
#define PLAIT_RUNTIME_COMM_BACKEND_H

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/comm/call.h"
#include "runtime/comm/comm.h"
#include "runtime/trace/activity.h"

/* What a backend implements. comm.c counts, measures times, and keeps a failed
 * communicator from being used again; a backend only moves data. */

/* A kind has the number that the record gives to such an operation. */
enum plait_transfer_kind {
    PLAIT_ALL_REDUCE = PLAIT_OP_ALL_REDUCE,
    PLAIT_REDUCE_SCATTER = PLAIT_OP_REDUCE_SCATTER,
    PLAIT_ALL_GATHER = PLAIT_OP_ALL_GATHER,
    PLAIT_BROADCAST = PLAIT_OP_BROADCAST, /* send == recv == the buffer */
    PLAIT_SEND = PLAIT_OP_SEND,           /* recv NULL */
    PLAIT_RECV = PLAIT_OP_RECV            /* send NULL */
};

/* One operation of comm.h; n and the buffers mean what they mean there. */
struct plait_transfer {
    enum plait_transfer_kind kind;
    const void *send;
    void *recv;
    size_t n;
    enum plait_dtype type;
    enum plait_reduce op;
    int peer; /* or the root of a broadcast */
    int tag;
};

/* A backend's request starts with this. */
struct plait_request {
    struct plait_comm *comm;
    enum plait_transfer_kind kind; /* comm.c sets this, tag, bytes and peer */
    uint64_t tag, bytes;           /* for the record */
    int peer;
    /* When it began and ended, by plait_clock_now(). comm.c sets begun to the
     * time of the call and ended to 0; a backend that can measure both sets
     * them in wait(). */
    double begun, ended;
};

/* Collective: plait_error_consensus() of the ranks that make a world over
 * `met`; notes a failure for plait_comm_agreed(). */
int plait_comm_agree_over(struct plait_comm *met, int rc,
                          struct plait_error *err);

/* What a rank asks for in a split. */
struct plait_group_request {
    uint64_t domain;
    int color, key;
    int rank; /* in the world */
};

/* What is known of a group before it is made. */
struct plait_group_site {
    enum plait_comm_axis axis;
    bool known;  /* whether the fields below are set */
    int domains; /* how many its ranks are in: plait_comm_set_network() */
    const struct plait_site_network *network;
    /* [size of the parent] What its ranks ask for; NULL: there is no split. */
    struct plait_group_request *asked;
};

/* Finds the ranks of the parent that ask for the same color: returns how many
 * they are, their lowest rank in the world, and their site except for the axis,
 * to be cleared. Collective; -1: out of memory, or the parent has failed. */
int plait_group_site_find(struct plait_comm *parent,
                          const struct plait_split *into,
                          struct plait_group_site *site, int *first);
void plait_group_site_clear(struct plait_group_site *site);

struct plait_comm_vtable {
    const char *name; /* "self", "mpi", "nccl", "socket", "tcp" */
    bool records;     /* plait_comm_records() */
    bool shows;       /* peers see what a rank enters, in every transfer */
    /* plait_comm_advances(); NULL: yes */
    bool (*advances)(const struct plait_comm *comm);
    bool (*orders)(void); /* plait_comm_orders(); NULL: no */
    /* plait_comm_remark(); NULL: none */
    const char *(*remark)(const struct plait_comm *world);
    bool (*overlaps)(int driver); /* plait_comm_overlaps(); NULL: yes */
    /* plait_comm_describe(); NULL: the links are not for the backend to choose
     */
    void (*describe)(struct plait_comm *comm, char *text, size_t size);
    void (*destroy)(struct plait_comm *comm);
    void (*abort)(struct plait_comm *comm); /* NULL: nothing to wake */
    /* abort() leaves the others, who see that; where it is false, it ends their
     * processes before they can say why. */
    bool leaves;
    /* plait_comm_lost(); NULL: the backend cannot tell */
    bool (*lost)(const struct plait_comm *comm);
    /* The same, after reading what the peers have sent until now. Any thread.
     * NULL where lost is NULL. */
    bool (*look)(struct plait_comm *comm);
    /* plait_comm_take_members(), plait_comm_shared_cores(), plait_comm_rest()
     * and plait_comm_break(). NULL: the backend has no members, knows nothing
     * of cores, cannot rest, cannot be broken. */
    struct plait_members *(*take_members)(struct plait_comm *comm);
    int (*shared_cores)(const struct plait_comm *comm, int *ranks);
    void (*rest)(struct plait_comm *comm);
    void (*break_all)(struct plait_comm *comm);
    /* plait_comm_difference(); NULL: ranks are not compared */
    const char *(*difference)(const struct plait_comm *comm);
    /* Fails the communicator with this reason on all ranks at once. NULL: the
     * backend cannot. */
    void (*refuse)(struct plait_comm *comm, const char *why);
    /* Collective; color < 0: take part, *comm is set NULL. Not called for a
     * group of one rank. */
    int (*split)(struct plait_comm *parent, const struct plait_split *into,
                 const struct plait_group_site *site, struct plait_comm **comm,
                 struct plait_error *err); /* errno ETIMEDOUT: it was late */
    /* Start the transfer; with req NULL, finish it as comm.h says. */
    int (*run)(struct plait_comm *comm, const struct plait_transfer *t,
               struct plait_queue *q, struct plait_request **req);
    /* Make q wait for req. comm.c frees it, also on failure. */
    int (*wait)(struct plait_request *req, struct plait_queue *q);
    int (*progress)(struct plait_comm *comm); /* NULL: transfers need no help */
    /* plait_comm_alloc(); NULL: the device allocates. */
    void *(*alloc)(struct plait_comm *comm, size_t bytes);
    void (*free)(struct plait_comm *comm, void *ptr);
    /* Host values; NULL where comm->host carries them. */
    int (*barrier)(struct plait_comm *comm);
    int (*host_broadcast)(struct plait_comm *comm, void *buf, size_t bytes,
                          int root);
    int (*host_all_gather)(struct plait_comm *comm, const void *send,
                           void *recv, size_t bytes);
    int (*host_all_reduce)(struct plait_comm *comm, double *values, size_t n,
                           enum plait_reduce op);
};

/* So many collectives of a group are remembered, to tell one that differs. */
enum { PLAIT_PAST = 64 };

/* A backend's communicator starts with this. */
struct plait_comm {
    const struct plait_comm_vtable *vtable;
    const struct plait_ops *ops; /* NULL: host memory */
    struct plait_device *dev;
    /* The same ranks on the host, for control values; NULL where the
     * backend carries them itself. Owned, split and destroyed by comm.c. */
    struct plait_comm *host;
    int rank, size;
    char name[32];
    bool failed;
    bool agreed; /* plait_comm_agreed() */
    char error[256];
    struct plait_call call; /* the collective that is entered now; a backend
                               copies it when it starts */
    uint64_t ncalls;        /* collectives so far */
    struct plait_call past[PLAIT_PAST]; /* the last transfers, numbered for
                                           themselves, by number modulo
                                           PLAIT_PAST; compare.h */
    uint64_t npast;
    bool differs; /* `error` is what two ranks have entered */
    struct plait_comm_stats stats;
    /* The host's operations are noted in listeners.group: in the record or,
     * without one, in `own`. */
    struct plait_listeners listeners;
    struct plait_record_group own;
    int world_rank;
    int domains; /* plait_comm_domains() */
    /* plait_comm_set_network() */
    bool sited;
    uint64_t domain;
    struct plait_site_network network;
    struct plait_watch *watch; /* NULL: none; watch.c */
};

/* "all-reduce" ...: for errors and traces */
extern const char *const plait_transfer_names[PLAIT_RECV + 1];

/* Which rank of which group a communicator is. */
struct plait_identity {
    const char *name;
    int rank, size;
};

/* Set the fields all backends share; the name is copied. */
void plait_comm_init(struct plait_comm *comm,
                     const struct plait_comm_vtable *vtable,
                     const struct plait_ops *ops, struct plait_device *dev,
                     const struct plait_identity *self);
/* Mark the communicator failed with this reason (the first one stays), set
 * errno to EIO, return -1. */
int plait_comm_fail(struct plait_comm *comm, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Elements of t->send and t->recv; 0 where the rank has no such buffer. */
size_t plait_transfer_send_count(const struct plait_comm *comm,
                                 const struct plait_transfer *t);
size_t plait_transfer_recv_count(const struct plait_comm *comm,
                                 const struct plait_transfer *t);
/* Whether buffers are plain memory of this process. */
bool plait_comm_on_host(const struct plait_comm *comm);

/* Before a collective that this rank can enter only if it is `ready`, as with
 * memory for the result: -1 on all ranks of the group unless all are. Where a
 * backend can refuse, a rank that is not ready does so, and no message is
 * needed; the others fail in the collective. Collective. */
int plait_comm_ready(struct plait_comm *comm, bool ready);

/* Collective if `watch` is not NULL. */
void plait_watch_destroy(struct plait_watch *watch, struct plait_comm *world);

struct plait_comm *plait_self_create(const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const char *name);
struct plait_comm *plait_mpi_create(const struct plait_ops *ops,
                                    struct plait_device *dev,
                                    const struct plait_launch *launch,
                                    struct plait_error *err);

/* A communicator for host values only, connected by the contract's MASTER_ADDR
 * and MASTER_PORT: a host for plait_nccl_create() that needs no MPI. Waits up
 * to timeout_s for the other ranks. NULL with errno and err. */
struct plait_comm *plait_tcp_create(const struct plait_launch *launch,
                                    double timeout_s, struct plait_error *err);

/* The world of sockets. Its ranks exchange their addresses over `star`, made by
 * plait_tcp_create(), which the caller keeps. Waits up to timeout_s for the
 * other ranks. NULL with errno and err. */
struct plait_comm *plait_socket_over(struct plait_comm *star,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     double timeout_s, struct plait_error *err);

/* Seconds in which NCCL makes a communicator or registers memory, by
 * PLAIT_NCCL_TIMEOUT; 0: no limit. Inline for the module below. */
static inline double plait_nccl_limit(void)
{
    const char *text = getenv("PLAIT_NCCL_TIMEOUT");

    return text && *text ? atof(text) : 300;
}

/* The function of the module plait_nccl.so: a world over the ranks of
 * `host`, which carries the unique id now and host values later. The caller
 * keeps `host`. NULL with err; errno ETIMEDOUT: NCCL has not connected this
 * rank in time, and perhaps others. */
struct plait_comm *plait_nccl_create(struct plait_comm *host,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     struct plait_error *err);

#endif
