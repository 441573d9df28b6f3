/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_COMM_PRIVATE_H
#define PLAIT_RUNTIME_COMM_COMM_PRIVATE_H

#include <stdbool.h>

#include "runtime/comm/comm.h"
#include "runtime/comm/trace.h"
#include "runtime/stuck/record.h"

/* What a backend implements. comm.c checks arguments, counts, times, and
 * keeps a failed communicator from being used again; a backend only moves
 * data. */

enum plait_transfer_kind {
    PLAIT_ALL_REDUCE,
    PLAIT_REDUCE_SCATTER,
    PLAIT_ALL_GATHER,
    PLAIT_ALL_TO_ALL,
    PLAIT_BROADCAST, /* send == recv == the buffer */
    PLAIT_SEND,      /* recv NULL */
    PLAIT_RECV       /* send NULL */
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
    enum plait_transfer_kind kind; /* comm.c's, as are the next three */
    uint64_t tag, bytes;           /* of the record */
    int peer;
    /* When it began and ended, by plait_trace_now(). comm.c sets begun to the
     * time of the call and ended to 0; a backend that measures them sets both
     * in wait(). */
    double begun, ended;
};

/* What is known of a group before it is made. */
struct plait_group_site {
    enum plait_comm_axis axis;
    bool known; /* whether the fields below are */
    int nodes;  /* that its ranks are on */
    const struct plait_site_network *network;
};

/* Of the ranks of the parent that ask for my color: how many they are, the
 * lowest of them in the world, and their site but for its axis. Collective;
 * -1: out of memory, or the parent has failed. */
int plait_group_site_find(struct plait_comm *parent, int color,
                          struct plait_group_site *site, int *first);

struct plait_comm_vtable {
    const char *name;     /* "self", "mpi", "nccl", "socket", "tcp" */
    bool records;         /* plait_comm_records() */
    bool (*orders)(void); /* plait_comm_orders(); NULL: no */
    void (*destroy)(struct plait_comm *comm);
    void (*abort)(struct plait_comm *comm); /* NULL: nothing to wake */
    /* plait_comm_lost(), NULL: it does not tell */
    bool (*lost)(const struct plait_comm *comm);
    /* The same by what the peers have sent until now, by any thread; NULL where
     * lost is. */
    bool (*look)(struct plait_comm *comm);
    /* Collective; color < 0: take part, *comm is set NULL. Not called for a
     * group of one rank. */
    int (*split)(struct plait_comm *parent, int color, int key,
                 const char *name, const struct plait_group_site *site,
                 struct plait_comm **comm, struct plait_error *err);
    /* Start the transfer; with req NULL, finish it as comm.h says. */
    int (*run)(struct plait_comm *comm, const struct plait_transfer *t,
               struct plait_queue *q, struct plait_request **req);
    /* Make q wait for req. comm.c frees it, also on failure. */
    int (*wait)(struct plait_request *req, struct plait_queue *q);
    int (*progress)(struct plait_comm *comm); /* NULL: moves by itself */
    /* plait_comm_alloc(); NULL: the device's own will do. */
    void *(*alloc)(struct plait_comm *comm, size_t bytes);
    void (*free)(struct plait_comm *comm, void *ptr);
    /* Host values; NULL where comm->host does them. */
    int (*barrier)(struct plait_comm *comm);
    int (*host_broadcast)(struct plait_comm *comm, void *buf, size_t bytes,
                          int root);
    int (*host_all_gather)(struct plait_comm *comm, const void *send,
                           void *recv, size_t bytes);
    int (*host_all_reduce)(struct plait_comm *comm, double *values, size_t n,
                           enum plait_reduce op);
};

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
    char error[256];
    struct plait_comm_stats stats;
    struct plait_trace *trace; /* NULL: none */
    /* What the host does, noted in `own` where there is no record. */
    struct plait_record *record;
    struct plait_record_group *noted, own;
    int world_rank;
    int nodes; /* plait_comm_nodes() */
    /* plait_comm_set_network() */
    bool sited;
    uint64_t node;
    struct plait_site_network network;
    struct plait_watch *watch; /* NULL: none; watch.c */
};

/* "all-reduce" ...: for errors and traces */
extern const char *const plait_transfer_names[PLAIT_RECV + 1];

/* Set the fields all backends share. */
void plait_comm_init(struct plait_comm *comm,
                     const struct plait_comm_vtable *vtable,
                     const struct plait_ops *ops, struct plait_device *dev,
                     int rank, int size, const char *name);
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

/* Collective where there is one; NULL-safe. */
void plait_watch_destroy(struct plait_watch *watch, struct plait_comm *world);

struct plait_comm *plait_self_create(const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const char *name);
struct plait_comm *plait_mpi_create(const struct plait_ops *ops,
                                    struct plait_device *dev,
                                    const struct plait_launch *launch,
                                    struct plait_error *err);

/* Host values alone, by the contract's MASTER_ADDR and MASTER_PORT: a host
 * for plait_nccl_create() that needs no MPI. Waits up to timeout_s for the
 * other ranks. NULL with errno and err. */
struct plait_comm *plait_tcp_create(const struct plait_launch *launch,
                                    double timeout_s, struct plait_error *err);

/* The world of sockets over `star`, which plait_tcp_create() has made and which
 * stays the caller's. Waits up to timeout_s for the other ranks. NULL with
 * errno and err. */
struct plait_comm *plait_socket_over(struct plait_comm *star,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     double timeout_s, struct plait_error *err);

/* The one symbol of the module plait_nccl.so, "plait_nccl_create": a world
 * over the ranks of `host`, which carries the unique id now and host values
 * later. `host` stays the caller's. */
struct plait_comm *plait_nccl_create(struct plait_comm *host,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     struct plait_error *err);

#endif
