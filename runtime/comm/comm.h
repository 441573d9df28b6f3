/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_COMM_H
#define PLAIT_RUNTIME_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/types.h"
#include "runtime/comm/tally.h"
#include "topology/base/error.h"
#include "topology/job/site.h"
#include "topology/layout/launch.h"

/* Process groups behind one vtable: nccl (GPUs), mpi (CPUs, with shared memory
 * in a node, and GPUs staged through the host), socket (CPUs, TCP and shared
 * memory, without MPI), self (one process), and tcp, which has no transfers and
 * carries NCCL's host values where there is no MPI.
 *
 * Every transfer is ordered: it starts after the work that was on queue `q`
 * when it was called. With req NULL, work put on q later runs after it. With
 * req, it runs concurrently with q's later work until plait_comm_wait(), which
 * makes the given queue wait for it. Transfers of mpi and socket are the host's
 * work: there the host waits, and meanwhile a thread of the process moves the
 * data, if MPI allows threads; else data moves only in waits and in
 * plait_comm_progress(). Leave both buffers alone until the wait (the send
 * buffer may be read). Any number of transfers may be under way, and waited for
 * in any order.
 *
 * The ranks of a group start the same transfers in the same order. Between
 * groups mpi and socket need no order; with NCCL, two ranks must start the
 * transfers of groups that both are in in the same order, or they may wait for
 * each other (before NCCL 2.26, transfers of two groups that overlap in time
 * may do so anyway). Point-to-point is matched by (peer, tag), with NCCL by
 * peer and order.
 *
 * Returns 0, or -1 with errno and plait_comm_error(). A communicator that
 * failed or was aborted starts no more transfers: it can only be destroyed.
 * With socket, the loss of one process fails all transfers of all groups, on
 * all ranks. */

struct plait_ops; /* these three: kernels/kernels.h */
struct plait_device;
struct plait_queue;
struct plait_comm;
struct plait_request;
struct plait_trace;
struct plait_record;

enum plait_comm_kind {
    PLAIT_COMM_SELF,
    PLAIT_COMM_MPI,
    PLAIT_COMM_NCCL,
    PLAIT_COMM_SOCKET
};
enum plait_reduce {
    PLAIT_SUM,
    PLAIT_MAX,
    PLAIT_WORST /* as PLAIT_MAX, of errors: no number is taken for one */
};

/* The parallel axis whose traffic a communicator carries. NCCL's channels,
 * traffic class and memory windows are chosen by it (policy.h). */
enum plait_comm_axis {
    PLAIT_COMM_AXIS_NONE, /* control values, or traffic of any kind */
    PLAIT_COMM_AXIS_TP,
    PLAIT_COMM_AXIS_CP,
    PLAIT_COMM_AXIS_EP,
    PLAIT_COMM_AXIS_DP, /* gradients and weights, of the experts too */
    PLAIT_COMM_AXIS_PP,
    PLAIT_COMM_AXIS_EMBEDDING /* gradients of tied embeddings, between the
                                 first and the last pipeline stage */
};

/* What went over this communicator from this rank, by the textbook count:
 * all-reduce 2 (n-1)/n S, all-gather and reduce-scatter (n-1)/n S with S
 * the whole buffer, broadcast S on every rank, and point-to-point S on the
 * sender. */
struct plait_comm_stats {
    uint64_t calls;
    uint64_t bytes;
    double wait_s;   /* that the host was blocked in transfers */
    double hidden_s; /* of collectives while the host computed; 0: NCCL */
    struct plait_tally tally; /* of its transfers, without messages */
};

/* What a transfer sends and where it puts what it receives, in the order of
 * MPI's arguments: n elements of a type. A broadcast has its one buffer in
 * both; a message uses the one that its direction names. */
struct plait_buffers {
    const void *send;
    void *recv;
    size_t n;
    enum plait_dtype type;
};

/* The world of this launch. `launch` is NULL for one process or plain mpirun;
 * kind SOCKET needs one that has a rendezvous. kind MPI initialises MPI unless
 * that is done; its ranks are ordered by launch->rank. */
struct plait_comm *plait_comm_create(enum plait_comm_kind kind,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     struct plait_error *err);
/* plait_comm_create() in two halves, for ranks that must agree in between on
 * what they compute on. meet: a world of `kind` (SELF, MPI or SOCKET) that
 * carries host values only. over: the world above it, of the same kind or one
 * that it can serve: NCCL or MPI over SOCKET, NCCL over MPI. Collective. Takes
 * over `met`, except on failure. */
struct plait_comm *plait_comm_meet(enum plait_comm_kind kind,
                                   const struct plait_launch *launch,
                                   struct plait_error *err);
struct plait_comm *
plait_comm_over(struct plait_comm *met, enum plait_comm_kind kind,
                const struct plait_ops *ops, struct plait_device *dev,
                const struct plait_launch *launch, struct plait_error *err);
/* Whether plait_comm_over() has failed on all ranks of `met` together, and they
 * know it: `met` is then left to end in order. */
bool plait_comm_agreed(const struct plait_comm *met);
/* Into which group a rank goes. Ranks of one color form a group, ordered by
 * key; color < 0: none. `name` appears in errors, traces and
 * ncclConfig_t.commName, and has no other effect. */
struct plait_split {
    int color, key;
    enum plait_comm_axis axis;
    const char *name;
};

/* Collective over `parent`. A rank with color < 0 takes part in the call and
 * gets *comm NULL. A group of one rank becomes a self communicator. */
int plait_comm_split(struct plait_comm *parent, const struct plait_split *into,
                     struct plait_comm **comm, struct plait_error *err);
/* For groups that are split off from now on: what the network can do, and
 * `domain`, equal for ranks that reach each other without it and for no others:
 * those of a node, or of an NVLink domain of several. Without this call, NCCL's
 * defaults are used for what depends on either. */
void plait_comm_set_network(struct plait_comm *comm,
                            const struct plait_site_network *network,
                            uint64_t domain);
/* For this world and groups that are split off from now on: note in `record`,
 * which must outlive them, what the host enters and waits for. */
void plait_comm_set_record(struct plait_comm *world,
                           struct plait_record *record);
/* The record that was set; NULL: none. */
struct plait_record *plait_comm_record(const struct plait_comm *comm);
/* NULL-safe, keeps errno. Collective where the backend needs it. */
void plait_comm_destroy(struct plait_comm *comm);
/* Gives up at once; not collective. nccl and tcp close this communicator (tcp's
 * peers see that), socket closes the whole world (the peers see that), and mpi
 * ends all processes of MPI's world (MPI_Abort). */
void plait_comm_abort(struct plait_comm *comm);

/* Notices that another process of the world on this node has ended without
 * destroying its communicator: transfers with it would never complete. Then
 * gone(arg, what) is called on the lowest rank that is left on this node, from
 * a thread of its own; `what` names the rank that has ended. The other ranks
 * wait until that one calls plait_comm_kill_node(). Lasts until `world` is
 * destroyed. Collective. Before Linux 5.3 nothing is noticed. */
int plait_comm_watch(struct plait_comm *world,
                     void (*gone)(void *arg, const char *what), void *arg,
                     struct plait_error *err);
/* For gone(): kills the other processes of the world on this node. */
void plait_comm_kill_node(const struct plait_comm *world);

int plait_comm_rank(const struct plait_comm *comm);
int plait_comm_size(const struct plait_comm *comm);
/* How many domains the ranks of the group are in; 1 without
 * plait_comm_set_network(). */
int plait_comm_domains(const struct plait_comm *comm);
/* Whether the communicator, or the one for host values below it, has failed. */
bool plait_comm_failed(const struct plait_comm *comm);
/* Whether it failed because a process was lost, which fails every transfer on
 * every rank; false where a backend cannot tell. */
bool plait_comm_lost(const struct plait_comm *comm);
/* The communicator of the same ranks that transfers host memory: for NCCL over
 * sockets the sockets' one, else comm itself. */
struct plait_comm *plait_comm_of_hosts(struct plait_comm *comm);
/* Why the last call failed, never NULL: the communicator's own error, or that
 * of errno where the call failed without failing the communicator. */
const char *plait_comm_error(const struct plait_comm *comm);
void plait_comm_stats(const struct plait_comm *comm,
                      struct plait_comm_stats *stats);
/* Replaces the counts. A transfer in a graph is counted when it is captured,
 * though it is not made then, and not when the graph is replayed: the caller
 * has to correct both. */
void plait_comm_set_stats(struct plait_comm *comm,
                          const struct plait_comm_stats *stats);
/* Whether transfers, requests and waits can be captured in a graph (kernels.h),
 * because they need no work of the host. A transfer that is started in a
 * capture must be waited for in it, and no other transfer may be. */
bool plait_comm_records(const struct plait_comm *comm);
/* Whether a transfer with a request moves while the host computes. */
bool plait_comm_advances(const struct plait_comm *comm);
/* Whether captured transfers of several groups keep the order in which the host
 * started them. */
bool plait_comm_orders(const struct plait_comm *comm);
/* What is known to go wrong with the library under it, one line; else NULL. */
const char *plait_comm_remark(const struct plait_comm *world);
/* Whether transfers of several groups that one graph starts run at the same
 * time, with this version of CUDA's driver (12090: 12.9). */
bool plait_comm_overlaps(const struct plait_comm *comm, int driver);
/* Whether the backend chooses among links by itself. Then text is by which it
 * has sent until now, as far as this rank knows it, "" where it does not. */
bool plait_comm_describe(struct plait_comm *comm, char *text, size_t size);
/* Note every transfer from now on in `trace`, which must outlive comm; NULL:
 * none. */
void plait_comm_set_trace(struct plait_comm *comm, struct plait_trace *trace);

/* Zeroed memory of dev like that of ops->alloc(), for buffers that are
 * transferred in every step. NCCL registers it with a group at the group's
 * first collective on it (not for messages), so that GPUs, NVSwitches and NICs
 * use it without copies. The ranks of a group must agree: either all pass such
 * memory, of the same size and at the same offset, or none does. Free it before
 * `world` is destroyed. NULL with ENOMEM; freeing NULL does nothing. With other
 * backends, and with world NULL, ops->alloc() is used. */
void *plait_comm_alloc(struct plait_comm *world, const struct plait_ops *ops,
                       struct plait_device *dev, size_t bytes);
void plait_comm_free(struct plait_comm *world, const struct plait_ops *ops,
                     struct plait_device *dev, void *ptr);

/* Collectives are called by the names without _at. They note where they were
 * called: ranks that enter different collectives of one group, in sockets, in
 * shared memory and by a rendezvous, then fail at once with a line that has
 * both places (call.h). With NCCL, and over MPI, they do so at the end of a
 * step (compare.h), and at once with PLAIT_CHECK_COLLECTIVES=1, except for
 * transfers of MPI that do not block. */
#define PLAIT_PLACE_TEXT(line) #line
#define PLAIT_PLACE(file, line) file ":" PLAIT_PLACE_TEXT(line)
#define PLAIT_HERE PLAIT_PLACE(__FILE__, __LINE__)
#define plait_comm_all_reduce(...) \
    plait_comm_all_reduce_at(PLAIT_HERE, __VA_ARGS__)
#define plait_comm_reduce_scatter(...) \
    plait_comm_reduce_scatter_at(PLAIT_HERE, __VA_ARGS__)
#define plait_comm_all_gather(...) \
    plait_comm_all_gather_at(PLAIT_HERE, __VA_ARGS__)
#define plait_comm_broadcast(...) \
    plait_comm_broadcast_at(PLAIT_HERE, __VA_ARGS__)
#define plait_comm_barrier(...) plait_comm_barrier_at(PLAIT_HERE, __VA_ARGS__)
#define plait_comm_host_broadcast(...) \
    plait_comm_host_broadcast_at(PLAIT_HERE, __VA_ARGS__)
#define plait_comm_host_all_gather(...) \
    plait_comm_host_all_gather_at(PLAIT_HERE, __VA_ARGS__)
#define plait_comm_host_all_reduce(...) \
    plait_comm_host_all_reduce_at(PLAIT_HERE, __VA_ARGS__)
/* Whether a group has failed because ranks entered different collectives; what
 * they entered, or NULL. */
const char *plait_comm_difference(const struct plait_comm *comm);

/* Buffers are device memory; counts are elements, with mpi at most INT_MAX. In
 * place: recv == send (all_gather: send == recv + rank * n; reduce_scatter:
 * recv == send + rank * n). Types: fp32, bf16, fp16, int32, fp64.
 *
 * Sums of bf16 or fp16 make each addition in fp32. In shared memory the sum is
 * rounded once, at the end. Messages of mpi and socket, and nccl, round it to
 * the type after each addition, so that precision is lost with the number of
 * ranks. */
int plait_comm_all_reduce_at(const char *place, struct plait_comm *comm,
                             const struct plait_buffers *b,
                             enum plait_reduce op, struct plait_queue *q,
                             struct plait_request **req);
/* recv[n] of rank r = reduction over the ranks of send[r*n .. r*n+n) */
int plait_comm_reduce_scatter_at(const char *place, struct plait_comm *comm,
                                 const struct plait_buffers *b,
                                 enum plait_reduce op, struct plait_queue *q,
                                 struct plait_request **req);
/* recv[size * n] = the send[n] of every rank, in rank order */
int plait_comm_all_gather_at(const char *place, struct plait_comm *comm,
                             const struct plait_buffers *b,
                             struct plait_queue *q, struct plait_request **req);
int plait_comm_broadcast_at(const char *place, struct plait_comm *comm,
                            const struct plait_buffers *b, int root,
                            struct plait_queue *q, struct plait_request **req);
/* With req NULL, q's later work waits for the message (mpi: the host does).
 * tag: tags.h. NCCL has no tags: there, messages between two ranks of one
 * communicator are matched in the order they were posted. */
int plait_comm_send(struct plait_comm *comm, const struct plait_buffers *b,
                    int peer, int tag, struct plait_queue *q,
                    struct plait_request **req);
int plait_comm_recv(struct plait_comm *comm, const struct plait_buffers *b,
                    int peer, int tag, struct plait_queue *q,
                    struct plait_request **req);
/* Work on `q` from now on waits for *req, which is freed and set to NULL. */
int plait_comm_wait(struct plait_request **req, struct plait_queue *q);
/* Lets requests under way advance; cheap. NCCL's sends and receives with
 * requests are held back until this call, or another transfer or a wait of the
 * same communicator, so that consecutive ones start as one group: started one
 * by one, two peers could block each other. */
int plait_comm_progress(struct plait_comm *comm);

/* Small host values, blocking; for control, not for the step's data. */
int plait_comm_barrier_at(const char *place, struct plait_comm *comm);
int plait_comm_host_broadcast_at(const char *place, struct plait_comm *comm,
                                 void *buf, size_t bytes, int root);
int plait_comm_host_all_gather_at(const char *place, struct plait_comm *comm,
                                  const void *send, void *recv, size_t bytes);
int plait_comm_host_all_reduce_at(const char *place, struct plait_comm *comm,
                                  double *values, size_t n,
                                  enum plait_reduce op);

#endif
