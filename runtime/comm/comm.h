/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_COMM_H
#define PLAIT_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "topology/error.h"
#include "topology/launch.h"
#include "topology/site.h"

/* Process groups behind one vtable: nccl (GPUs), mpi (CPUs, and GPUs staged
 * through the host), self (one process).
 *
 * Every operation is ordered: it starts after the work that was on queue `q`
 * when it was called. With req NULL, work put on q later runs after it. With
 * req, it runs beside q's later work until plait_comm_wait(), which makes
 * the given queue (not the host) wait for it. Between CPUs a thread of the
 * process moves it meanwhile: the caller goes on computing, and must leave
 * both buffers alone until the wait (send may be read). Any number may be
 * under way, and waited for in any order. Ranks of a group start the same
 * operations in the same order; those of different groups need no order
 * among them. Point-to-point is matched by (peer, tag).
 * 0, or -1 with errno and plait_comm_error(). A communicator that failed or
 * was aborted fails every later call: it can only be destroyed. */

struct plait_comm;
struct plait_request;
struct plait_trace;

enum plait_comm_kind { PLAIT_COMM_SELF, PLAIT_COMM_MPI, PLAIT_COMM_NCCL };
enum plait_reduce { PLAIT_SUM, PLAIT_MAX };

/* What went over this communicator from this rank, by the textbook count:
 * all-reduce 2 (n-1)/n S, all-gather and reduce-scatter (n-1)/n S with S
 * the whole buffer, all-to-all (n-1)/n S, broadcast and point-to-point S. */
struct plait_comm_stats {
    uint64_t calls;
    uint64_t bytes;
    double wait_s;   /* time in which compute stood still for it */
    double hidden_s; /* time of collectives beside compute, where known */
};

/* The world of this launch. `launch` is NULL for one process or plain
 * mpirun. kind MPI initialises MPI if nobody has; its rank order is made to
 * follow launch->rank. */
struct plait_comm *plait_comm_create(enum plait_comm_kind kind,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     struct plait_error *err);
/* Collective over `parent`: ranks of one color form a group, ordered by
 * key. color < 0: takes part in the call, gets *comm NULL. `name` appears
 * in errors, traces and ncclConfig_t.commName. A group of one rank becomes
 * a self communicator. */
int plait_comm_split(struct plait_comm *parent, int color, int key,
                     const char *name, struct plait_comm **comm,
                     struct plait_error *err);
/* What the groups that are split off from here on stand on: `node` is equal
 * for ranks on one node and for no others; what the network can do. Without
 * it nothing is known of either, and NCCL chooses all by itself. */
void plait_comm_set_network(struct plait_comm *comm,
                            const struct plait_site_network *network,
                            uint64_t node);
/* NULL-safe, keeps errno. Collective where the backend needs it. */
void plait_comm_destroy(struct plait_comm *comm);
/* Not collective: give up at once and wake peers where the backend can. */
void plait_comm_abort(struct plait_comm *comm);

/* Notice it when a process of the world on this node ends without having
 * destroyed its communicator: what waits for it waits for ever. gone(arg,
 * what) is called once, from a thread of its own, `what` naming the rank;
 * first_left: of those on this node that are left, this is the first, so that
 * one may speak for all. Until `world` is destroyed. Collective. */
int plait_comm_watch(struct plait_comm *world,
                     void (*gone)(void *arg, const char *what, bool first_left),
                     void *arg, struct plait_error *err);

int plait_comm_rank(const struct plait_comm *comm);
int plait_comm_size(const struct plait_comm *comm);
const char *plait_comm_name(const struct plait_comm *comm);
const char *plait_comm_error(const struct plait_comm *comm);
void plait_comm_stats(const struct plait_comm *comm,
                      struct plait_comm_stats *stats);
/* Count on from there: transfers that are recorded count once, while they are
 * not made, and not at all when they are. */
void plait_comm_set_stats(struct plait_comm *comm,
                          const struct plait_comm_stats *stats);
/* Whether transfers, with requests and waits, can be recorded as part of a
 * graph (kernels.h): all of them is then the device's work. What is started
 * in a recording is waited for in it, and nothing else. */
bool plait_comm_records(const struct plait_comm *comm);
/* Note every transfer from here on in `trace`, which outlives comm; NULL:
 * none. */
void plait_comm_set_trace(struct plait_comm *comm, struct plait_trace *trace);

/* Zeroed memory of dev like that of ops->alloc(), for what is transferred step
 * after step: NCCL shows it to a group's GPUs, NVSwitches and NICs, which then
 * reach it without copies in between. It does so at the group's first
 * collective from or to it (not for messages), so that with such memory the
 * ranks of a group act alike: all of them take it, of one size, and at the
 * same distance from its beginning, or none does. Give it back while `world`
 * is there, which made the groups. NULL with ENOMEM; NULL may be given back.
 * Other backends take the device's own as it is, and so does no world: NULL. */
void *plait_comm_alloc(struct plait_comm *world, const struct plait_ops *ops,
                       struct plait_device *dev, size_t bytes);
void plait_comm_free(struct plait_comm *world, const struct plait_ops *ops,
                     struct plait_device *dev, void *ptr);

/* Buffers are device memory; counts are elements. In place: recv == send
 * (all_gather: send == recv + rank * n; reduce_scatter: recv == send +
 * rank * n). Types: fp32, bf16, fp16, int32; sums of bf16 and fp16 are made
 * in fp32. */
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
/* part r of send[size * n] goes to rank r; part s of recv comes from s */
int plait_comm_all_to_all(struct plait_comm *comm, const void *send, void *recv,
                          size_t n, enum plait_dtype type,
                          struct plait_queue *q, struct plait_request **req);
int plait_comm_broadcast(struct plait_comm *comm, void *buf, size_t n,
                         enum plait_dtype type, int root, struct plait_queue *q,
                         struct plait_request **req);
/* req must not be NULL for send and recv unless they are meant to finish
 * before q's later work. NCCL has no tags: there, messages between two
 * ranks of one communicator are matched in the order they were posted. */
int plait_comm_send(struct plait_comm *comm, const void *buf, size_t n,
                    enum plait_dtype type, int peer, int tag,
                    struct plait_queue *q, struct plait_request **req);
int plait_comm_recv(struct plait_comm *comm, void *buf, size_t n,
                    enum plait_dtype type, int peer, int tag,
                    struct plait_queue *q, struct plait_request **req);
/* Work on `q` from here on waits for *req, which is freed and set NULL. */
int plait_comm_wait(struct plait_request **req, struct plait_queue *q);
/* Let requests that are under way advance; cheap. A backend may hold back
 * sends and receives until here, or until any wait, so that those posted
 * side by side go as one group and two neighbours cannot block each other. */
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
