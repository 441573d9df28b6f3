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
    bool planned; /* started under a plan: launch holds */
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_comm *comm;       /* NULL: this process has no seat */
    struct plait_comm *all;        /* comm, and where there are more processes
                                      than seats, these too; of an elastic run
                                      on GPUs apart from comm, and without
                                      transfers of the device's memory */
    struct plait_members *members; /* of an elastic run, else NULL */
    struct plait_gpu_facts gpu;    /* of dev, where that is one */
    char no_gpu[240];              /* why this rank is on none; else "" */
    int node_ranks; /* ranks on this node, as the launcher says */
    int threads;    /* that this rank computes with on processors */
};

/* Collective over all processes of the run. device: "auto", "cuda" or "cpu".
 * comm, how ranks on CPUs talk: "mpi", "socket" or "auto", which is mpi where a
 * launcher of MPI started them and else socket. On failure, what was made stays
 * for plait_world_close(). */
int plait_world_open(struct plait_world *world, const char *device,
                     const char *comm, struct plait_error *err);
void plait_world_close(struct plait_world *world);

/* The cores of this node where its ranks are more than those and take turns on
 * them, 0 elsewhere; *ranks: how many there are. */
int plait_world_shared_cores(const struct plait_world *world, int *ranks);
/* Set in the environment: the run goes on over the ranks that are left where
 * some have died. Ranks over sockets can, and on GPUs those over NCCL that have
 * met by sockets. */
bool plait_world_elastic(void);
/* Likewise, of such a run: how many of its processes have no seat at first. */
int plait_world_spares(void);
/* What outlives a world that has lost ranks: its members, and the GPU with its
 * context. Not collective. */
void plait_world_keep(struct plait_world *world, struct plait_world *kept);
/* Whether the GPU, if there is one, still works: CUDA takes no call after one
 * that went wrong on it. -1 with err. */
int plait_world_check_device(const struct plait_world *world,
                             struct plait_error *err);
/* The world of those present, of whom the first have seats in launch->layout,
 * which becomes the world's. Takes what was kept. Collective; on failure as
 * above, and the members are still there. */
int plait_world_again(struct plait_world *world, const struct plait_world *kept,
                      const struct plait_launch *launch,
                      struct plait_error *err);

/* Collective: -1 on every rank if rc < 0 on any, with the errno of the lowest
 * such rank that has text in err. That rank keeps its text and the others' is
 * emptied, so that the user reads one line. Allocates no memory. */
int plait_error_consensus(struct plait_comm *world, int rc,
                          struct plait_error *err);
/* Collective: give all ranks what rank 0 has read, so that a shared file system
 * serves one reader and not thousands. On rank 0, *text is malloc'ed and has
 * *size bytes if rc is 0, and is freed on failure; elsewhere rc is 0, and both
 * are results. The caller frees *text. */
int plait_broadcast_text(struct plait_comm *world, int rc, char **text,
                         size_t *size, struct plait_error *err);

/* The rank as the launcher's environment has it, before there is a world;
 * 0 where nothing says. */
int plait_rank_hint(void);

#endif
