/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_WORLD_H
#define PLAIT_RUNTIME_COMM_WORLD_H

#include <stdbool.h>

#include "runtime/comm/comm.h"
#include "runtime/comm/members.h"

/* What a program of the runtime starts from: its launch, its device, and the
 * communicator of all its processes. */
struct plait_world {
    struct plait_launch launch;
    bool planned; /* started under a plan: launch is valid */
    bool by_mpi;  /* ranks on CPUs have agreed on MPI under --comm auto */
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_comm *comm;       /* NULL: this process has no seat: it is a
                                      spare */
    struct plait_comm *all;        /* all processes, spare ones too; else the
                                      same as comm. In an elastic run on GPUs
                                      always a communicator of its own,
                                      without transfers of device memory */
    struct plait_comm *left;       /* by which the ranks met that could not be
                                      connected then, else NULL */
    struct plait_members *members; /* of an elastic run, else NULL */
    struct plait_gpu_facts gpu;    /* of dev, if that is a GPU */
    char no_gpu[240];              /* why this rank uses no GPU; else "" */
    int node_ranks;                /* ranks on this node, by the launcher */
    int threads;                   /* that this rank computes with on CPUs */
};

/* Collective over all processes of the run. device: "auto", "cuda" or "cpu".
 * comm, for ranks on CPUs: "mpi", "socket", or "auto": without a plan mpi; with
 * one socket, but mpi where an MPI launcher started the ranks of a run that is
 * not elastic on several nodes, each with an RDMA device. On failure, what was
 * made stays for plait_world_close(). */
int plait_world_open(struct plait_world *world, const char *device,
                     const char *comm, struct plait_error *err);
/* Its two halves: the ranks meet and agree on what they compute on, when
 * world->all carries values of hosts; and their devices are connected. What
 * watches over the second half has world->all, which lives until the end of it
 * if plait_world_waits_for_nccl(), and is then the host of the new one. */
int plait_world_meet(struct plait_world *world, const char *device,
                     const char *comm, struct plait_error *err);
int plait_world_connect(struct plait_world *world, const char *device,
                        const char *comm, struct plait_error *err);
bool plait_world_waits_for_nccl(const struct plait_world *world,
                                const char *comm);
/* Seconds in which some rank must get on while the devices are connected, twice
 * NCCL's own limit (PLAIT_NCCL_TIMEOUT); 0: no limit. */
int plait_world_patience(void);
void plait_world_close(struct plait_world *world);

/* How many cores the ranks of this node share and take turns on, if there are
 * more ranks than cores; else 0. *ranks: how many ranks share them. */
int plait_world_shared_cores(const struct plait_world *world, int *ranks);
/* What is open to others where the ranks have met over TCP without a secret, as
 * PLAIT_SECRET=none asks: one line for rank 0 to print. NULL elsewhere. */
const char *plait_world_exposed(const struct plait_world *world);
/* That ranks of this node see no GPU but their own, and what to do: one line
 * for rank 0 to print. NULL: they do, or it does not matter. */
const char *plait_world_lone_gpu(const struct plait_world *world);
/* Whether the environment asks for an elastic run, which goes on with the ranks
 * that are left after some have died. Ranks over sockets can do so, and on GPUs
 * those over NCCL that have met over sockets. */
bool plait_world_elastic(void);
/* How many processes of an elastic run have no seat at first. */
int plait_world_spares(void);
/* Moves to `kept` what outlives a world that has lost ranks: its members, and
 * the GPU with its context. Not collective. */
void plait_world_keep(struct plait_world *world, struct plait_world *kept);
/* Whether the GPU, if there is one, still works: after a failed operation CUDA
 * refuses all calls. -1 with err. */
int plait_world_check_device(const struct plait_world *world,
                             struct plait_error *err);
/* Opens the world of the members that are present; the first of them have seats
 * in launch->layout. Takes over `kept`. Collective. On failure, what was made
 * stays for plait_world_close(), and the members are still valid. */
int plait_world_again(struct plait_world *world, const struct plait_world *kept,
                      const struct plait_launch *launch,
                      struct plait_error *err);

/* The rank by the launcher's environment, before there is a world; 0 if not
 * set. */
int plait_rank_hint(void);

#endif
