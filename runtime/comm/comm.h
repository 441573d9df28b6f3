/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_COMM_H
#define PLAIT_RUNTIME_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "topology/base/error.h"
#include "topology/job/site.h"
#include "topology/layout/launch.h"

/* Process groups behind one vtable: nccl (GPUs), mpi (CPUs, with shared memory
 * in a node, and GPUs staged through the host), socket (CPUs, TCP and shared
 * memory, without MPI), self (one process), and tcp, which carries NCCL's host
 * values where there is no MPI and no transfers.
 *
 * Every transfer is ordered: it starts after the work that was on queue `q`
 * when it was called. With req NULL, work put on q later runs after it. With
 * req, it runs concurrently with q's later work until plait_comm_wait(), which
 * makes the given queue wait for it; with mpi and socket, whose transfers are
 * the host's work, the host waits. There a thread of the process moves the data
 * meanwhile if MPI allows threads; otherwise it moves in waits and in
 * plait_comm_progress(). Both buffers must be left alone until the wait (send
 * may be read). Any number may be under way, and waited for in any order.
 * Ranks of a group start the same transfers in the same order. Between groups
 * mpi and socket need no order; with NCCL two ranks start transfers of groups
 * that both are in in the same order, or they may wait for each other (and
 * before NCCL 2.26, where those of two groups overlap, may do so anyway).
 * Point-to-point is matched by (peer, tag), with NCCL by peer and order. 0, or
 * -1 with errno and plait_comm_error(). A communicator that failed or was
 * aborted starts no more transfers: it can only be destroyed. With socket a
 * process that is lost fails all transfers of all groups, on all ranks. */

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
enum plait_reduce { PLAIT_SUM, PLAIT_MAX };

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
 * the whole buffer, all-to-all (n-1)/n S, broadcast S on every rank, and
 * point-to-point S on the sender. */
struct plait_comm_stats {
    uint64_t calls;
    uint64_t bytes;
    double wait_s;   /* in which the host was blocked in transfers */
    double hidden_s; /* of collectives while the host computed; 0 with NCCL */
};

/* The world of this launch. `launch` is NULL for one process or plain
 * mpirun; kind SOCKET needs one that has a rendezvous. kind MPI initialises MPI
 * if nobody has; its rank order is made to follow launch->rank. */
struct plait_comm *plait_comm_create(enum plait_comm_kind kind,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     struct plait_error *err);
/* Its two halves, for ranks that agree first on what they compute on. First
 * what a world of `kind` (SELF, MPI or SOCKET) begins with: values of the host
 * alone. Then the world over it, of any kind that the first half serves: one
 * by SOCKET also NCCL and MPI, one by MPI also NCCL. Collective; takes `met`,
 * but on failure. */
struct plait_comm *plait_comm_meet(enum plait_comm_kind kind,
                                   const struct plait_launch *launch,
                                   struct plait_error *err);
struct plait_comm *
plait_comm_over(struct plait_comm *met, enum plait_comm_kind kind,
                const struct plait_ops *ops, struct plait_device *dev,
                const struct plait_launch *launch, struct plait_error *err);
/* Collective over `parent`: ranks of one color form a group, ordered by
 * key. color < 0: takes part in the call, gets *comm NULL. `name` appears
 * in errors, traces and ncclConfig_t.commName, and decides nothing. A group
 * of one rank becomes a self communicator. */
int plait_comm_split(struct plait_comm *parent, int color, int key,
                     enum plait_comm_axis axis, const char *name,
                     struct plait_comm **comm, struct plait_error *err);
/* For the groups that are split off from here on: what the network can do,
 * and `node`, equal for ranks on one node and for no others. Without it NCCL's
 * defaults stand for what depends on either. */
void plait_comm_set_network(struct plait_comm *comm,
                            const struct plait_site_network *network,
                            uint64_t node);
/* For this world and the groups that are split off from here on: note in
 * `record`, which outlives them, what the host enters and waits in. */
void plait_comm_set_record(struct plait_comm *world,
                           struct plait_record *record);
/* NULL: none. */
struct plait_record *plait_comm_record(const struct plait_comm *comm);
/* NULL-safe, keeps errno. Collective where the backend needs it. */
void plait_comm_destroy(struct plait_comm *comm);
/* Not collective: give up at once. nccl and tcp close this communicator, and
 * tcp's peers see that; socket closes all of this world, and the peers see it;
 * mpi ends all processes of MPI's world (MPI_Abort). */
void plait_comm_abort(struct plait_comm *comm);

/* Notice when another process of the world on this node ends without having
 * destroyed its communicator, as transfers with it would never complete.
 * gone(arg, what) is called on the lowest of the ranks that are left on this
 * node, from a thread of its own; `what` names the rank that has ended. The
 * other ranks wait until that one calls plait_comm_kill_node(). Lasts until
 * `world` is destroyed. Collective. Before Linux 5.3 nothing is noticed. */
int plait_comm_watch(struct plait_comm *world,
                     void (*gone)(void *arg, const char *what), void *arg,
                     struct plait_error *err);
/* For gone(): ends the other processes of the world on this node at once. */
void plait_comm_kill_node(const struct plait_comm *world);

int plait_comm_rank(const struct plait_comm *comm);
int plait_comm_size(const struct plait_comm *comm);
/* On how many nodes the ranks of a group are; 1 where plait_comm_set_network()
 * did not say. */
int plait_comm_nodes(const struct plait_comm *comm);
/* Whether the communicator or the host one beside it has failed. */
bool plait_comm_failed(const struct plait_comm *comm);
/* Whether that is because a peer was lost, which ended every transfer of every
 * rank; false where a backend does not tell. */
bool plait_comm_lost(const struct plait_comm *comm);
/* The same ranks with transfers of the host's memory, where those of comm are
 * of the device's: NCCL's, of a world over sockets. */
struct plait_comm *plait_comm_of_hosts(struct plait_comm *comm);
/* Why the last call failed, never NULL: the communicator's own error, or
 * errno's where the call failed without failing the communicator. */
const char *plait_comm_error(const struct plait_comm *comm);
void plait_comm_stats(const struct plait_comm *comm,
                      struct plait_comm_stats *stats);
/* Replace the counts: a transfer in a graph is counted once, when it is
 * captured and not made, and not when the graph is replayed. */
void plait_comm_set_stats(struct plait_comm *comm,
                          const struct plait_comm_stats *stats);
/* Whether transfers, with requests and waits, can be captured in a graph
 * (kernels.h), being the device's work alone. What is started in a capture
 * must be waited for in it, and nothing else. */
bool plait_comm_records(const struct plait_comm *comm);
/* Whether transfers of several groups then keep the order in which the host
 * started them. */
bool plait_comm_orders(const struct plait_comm *comm);
/* Note every transfer from here on in `trace`, which outlives comm; NULL:
 * none. */
void plait_comm_set_trace(struct plait_comm *comm, struct plait_trace *trace);

/* Zeroed memory of dev like that of ops->alloc(), for buffers that are
 * transferred in every step. NCCL registers it with a group at the group's
 * first collective on it (not for messages), so that the GPUs, NVSwitches and
 * NICs use it without copies. So the ranks of a group must agree: all pass such
 * memory, of the same size and at the same offset, or none does. Free it
 * before `world` is destroyed. NULL with ENOMEM; freeing NULL does nothing.
 * With other backends, and with world NULL, it is ops->alloc()'s. */
void *plait_comm_alloc(struct plait_comm *world, const struct plait_ops *ops,
                       struct plait_device *dev, size_t bytes);
void plait_comm_free(struct plait_comm *world, const struct plait_ops *ops,
                     struct plait_device *dev, void *ptr);

/* Buffers are device memory; counts are elements, with mpi at most INT_MAX of
 * them. In place: recv == send (all_gather: send == recv + rank * n;
 * reduce_scatter: recv == send + rank * n). Types: fp32, bf16, fp16, int32,
 * fp64.
 * A sum of bf16 or fp16 makes each addition in fp32. In shared memory it is
 * rounded once, at the end; mpi's and socket's messages and nccl round it to
 * the type after each addition, so that it loses precision with the number of
 * ranks. */
int plait_comm_all_reduce(struct plait_comm *comm, const void *send, void *recv,
                          size_t n, enum plait_dtype type, enum plait_reduce op,
                          struct plait_queue *q, struct plait_request **req);
/* recv[n] of rank r = reduction over the ranks of send[r*n .. r*n+n) */
int plait_comm_reduce_scatter(struct plait_comm *comm, const void *send,
                              void *recv, size_t n, enum plait_dtype type,
                              enum plait_reduce op, struct plait_queue *q,
                              struct plait_request **req);
/* recv[size * n] = the send[n] of every rank, in rank order */
int plait_comm_all_gather(struct plait_comm *comm, const void *send, void *recv,
                          size_t n, enum plait_dtype type,
                          struct plait_queue *q, struct plait_request **req);
/* part r of send[size * n] goes to rank r; part s of recv comes from s.
 * Not in place with NCCL. Only tests call it. */
int plait_comm_all_to_all(struct plait_comm *comm, const void *send, void *recv,
                          size_t n, enum plait_dtype type,
                          struct plait_queue *q, struct plait_request **req);
int plait_comm_broadcast(struct plait_comm *comm, void *buf, size_t n,
                         enum plait_dtype type, int root, struct plait_queue *q,
                         struct plait_request **req);
/* With req NULL, q's later work waits for the message (mpi: the host does).
 * tag: tags.h. NCCL has no tags: there, messages between two ranks of one
 * communicator are matched in the order they were posted. */
int plait_comm_send(struct plait_comm *comm, const void *buf, size_t n,
                    enum plait_dtype type, int peer, int tag,
                    struct plait_queue *q, struct plait_request **req);
int plait_comm_recv(struct plait_comm *comm, void *buf, size_t n,
                    enum plait_dtype type, int peer, int tag,
                    struct plait_queue *q, struct plait_request **req);
/* Work on `q` from here on waits for *req, which is freed and set NULL. */
int plait_comm_wait(struct plait_request **req, struct plait_queue *q);
/* Let requests that are under way advance; cheap. NCCL's sends and receives
 * with requests are held back until here, or until another transfer or a wait
 * of the same communicator, so that neighbouring ones start as one group:
 * one by one, two peers could block each other. */
int plait_comm_progress(struct plait_comm *comm);

/* Small host values, blocking; for control, not for the step's data. */
int plait_comm_barrier(struct plait_comm *comm);
int plait_comm_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                              int root);
int plait_comm_host_all_gather(struct plait_comm *comm, const void *send,
                               void *recv, size_t bytes);
int plait_comm_host_all_reduce(struct plait_comm *comm, double *values,
                               size_t n, enum plait_reduce op);

#endif
