/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank computes on, and how all agree. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/world_device.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/comm/backend.h"
#include "runtime/comm/consensus.h"
#include "topology/base/hash.h"
#include "topology/base/hostlist.h"

int plait_env_int(const char *name, int fallback)
{
    const char *text = getenv(name);

    return text && *text ? atoi(text) : fallback;
}

int plait_shared_gpus(void)
{
    return plait_env_int("PLAIT_SHARE_GPUS", 0);
}

/* -- this rank's choice -------------------------------------------------- */

/* w->no_gpu becomes the reason why this rank is not on a GPU. */
static int choose_ops(struct plait_world *w, const char *device,
                      struct plait_error *err)
{
    const char *why = "--device cpu";

    if (!plait_cpu_isa(&why))
        return plait_errorf(err, "%s", why);
    if (w->planned && w->launch.gpu < 0)
        why = "its plan has none";
    errno = ENODEV;
    if (strcmp(device, "cpu") != 0 &&
        !(w->planned && w->launch.gpu < 0 && !strcmp(device, "auto")))
        w->ops = plait_ops_cuda(&why);
    if (!w->ops && !strcmp(device, "cuda"))
        return plait_errorf(err, "--device cuda: %s", why);
    /* If only some ranks were on GPUs, they would wait for each other. */
    if (!w->ops && errno == EIO)
        return plait_errorf(err,
                            "there is a GPU, but it cannot be used: %s "
                            "(--device cpu trains without it)",
                            why);
    snprintf(w->no_gpu, sizeof(w->no_gpu), "%s", w->ops ? "" : why);
    if (!w->ops)
        w->ops = plait_ops_cpu();
    return 0;
}

static int local_rank(const struct plait_world *w)
{
    if (w->planned)
        return w->launch.local_rank;
    return plait_env_int("OMPI_COMM_WORLD_LOCAL_RANK",
                         plait_env_int("SLURM_LOCALID", 0));
}

/* The index of this rank's GPU among those that CUDA shows: with a plan
 * LOCAL_RANK, and 0 for a rank that sees a single GPU (--gpus-per-task=1). */
static int device_index(const struct plait_world *w)
{
    int shared = plait_shared_gpus(), index = local_rank(w);
    struct plait_gpu_facts facts;

    if (shared > 0)
        index %= shared;
    else if (w->planned)
        index = plait_env_int("LOCAL_RANK", index);
    if (w->ops->gpu && index > 0 && w->ops->gpu_facts(1, &facts) < 0)
        return 0;
    return index;
}

/* CUDA may number the GPUs anew: one that has fallen off the bus is skipped. -1
 * with err: CUDA does not show the GPU that w->gpu describes. */
static int find_gpu(const struct plait_world *w, struct plait_error *err)
{
    int index = device_index(w);
    struct plait_gpu_facts facts;

    /* Parts of a GPU (MIG) share its address: then the number tells. */
    if (w->ops->gpu_facts(index, &facts) == 0 &&
        !strcmp(facts.busid, w->gpu.busid))
        return index;
    for (int i = 0; w->ops->gpu_facts(i, &facts) == 0; i++)
        if (!strcmp(facts.busid, w->gpu.busid))
            return i;
    if (w->ops->gpu_facts(index, &facts) < 0)
        return plait_errorf(err, "GPU %s is gone, and there is no other",
                            w->gpu.busid);
    return plait_errorf(err, "GPU %s is gone, and GPU %s has its number (%d)",
                        w->gpu.busid, facts.busid, index);
}

const char *plait_world_lone_gpu(const struct plait_world *w)
{
    struct plait_gpu_facts facts;

    if (!w->ops->gpu || w->node_ranks <= 1 || plait_shared_gpus() > 0 ||
        w->ops->gpu_facts(1, &facts) == 0)
        return NULL;
    return "each rank of a node sees a single GPU, so that NCCL may copy "
           "through the host's memory in place of NVLink: ask for GPUs with "
           "--gpus-per-node, without --gpus-per-task and --gpu-bind";
}

/* How many ranks the launcher has put on this node. */
static int count_node_ranks(void)
{
    const char *slurm = getenv("SLURM_STEP_TASKS_PER_NODE");
    int ranks = plait_env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 0);

    if (!ranks && slurm)
        ranks = plait_hostlist_tasks(slurm, plait_env_int("SLURM_NODEID", 0));
    return ranks > 0 ? ranks : 1;
}

/* Threads for this process's operations; 0: one per core that it is bound to.
 * Ranks that are bound to nothing (mpirun, --pin=none, --cpu-bind=none) have
 * all cores each: divide them, as threads that wait for threads of other ranks
 * to leave their cores make a step take many times as long. */
static int choose_threads(const struct plait_world *w)
{
    int threads = plait_env_int("OMP_NUM_THREADS", 0);
    cpu_set_t set;
    int cpus;

    if (threads > 0 || w->node_ranks <= 1)
        return threads;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    cpus = CPU_COUNT(&set);
    if (cpus < sysconf(_SC_NPROCESSORS_ONLN))
        return 0;
    return cpus > w->node_ranks ? cpus / w->node_ranks : 1;
}

/* How many threads those of choose_threads() are. */
static int count_threads(int threads)
{
    cpu_set_t set;

    if (threads > 0)
        return threads;
    return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
}

static const char *device_error(int errnum)
{
    if (errnum == ENOEXEC)
        return "no code for that GPU in this build; Plait needs compute "
               "capability 8.0 (A100) or later, and is compiled for all of "
               "them unless configured --with-nvcc-gencode";
    return strerror(errnum);
}

int plait_world_choose(struct plait_world *w, const char *device,
                       struct plait_error *err)
{
    int threads, index;

    if (choose_ops(w, device, err) < 0)
        return -1;
    w->node_ranks =
        w->planned ? w->launch.local_world_size : count_node_ranks();
    threads = choose_threads(w);
    w->threads = count_threads(threads);
    index = w->gpu.busid[0] ? find_gpu(w, err) : device_index(w);
    if (index < 0)
        return -1;
    w->dev = w->ops->device_create(index, threads);
    if (!w->dev)
        return plait_errorf(err,
                            "%s device %d cannot be used: %s (for several "
                            "ranks to a GPU set PLAIT_SHARE_GPUS)",
                            w->ops->name, index, device_error(errno));
    if (w->ops->gpu && w->ops->gpu_facts(index, &w->gpu) < 0)
        return plait_errorf(err, "cannot read the name and size of GPU %d",
                            index);
    return 0;
}

int plait_world_check_device(const struct plait_world *w,
                             struct plait_error *err)
{
    struct plait_queue *q = w->dev ? w->ops->queue_create(w->dev, 0) : NULL;
    int rc = 0;

    if (w->dev && (!q || w->ops->queue_sync(q) < 0))
        rc = plait_errorf(err, "GPU %s has failed: %s", w->gpu.busid,
                          q ? plait_queue_error(q)
                            : "CUDA refuses all calls, as after a fault, or "
                              "where a process has ended whose memory it "
                              "read");
    if (q)
        w->ops->queue_destroy(q);
    return rc;
}

/* -- and all ranks' ------------------------------------------------------- */

/* Which GPU a rank has; `node` is equal for ranks of one node. */
struct gpu_place {
    uint64_t node;
    char busid[16];
};

static struct gpu_place place_of(const struct plait_world *w)
{
    const char *host = getenv("NCCL_HOSTID");
    struct gpu_place place;
    char name[256] = "";

    memset(&place, 0, sizeof(place));
    place.node = (uint64_t)w->launch.node_rank;
    if (!w->planned || plait_world_elastic()) { /* spares have no node rank */
        gethostname(name, sizeof(name) - 1);
        place.node = plait_hash_text(PLAIT_HASH_START, name);
    }
    /* NCCL then takes this for the host. */
    if (host && *host)
        place.node = plait_hash_text(PLAIT_HASH_START, host);
    memcpy(place.busid, w->gpu.busid, sizeof(place.busid));
    return place;
}

int plait_world_check_own(const struct plait_world *w, struct plait_comm *met,
                          struct plait_error *err)
{
    int n = plait_comm_size(met), rank = plait_comm_rank(met), rc = 0;
    struct gpu_place mine = place_of(w), *all = calloc((size_t)n, sizeof(mine));

    if (plait_error_consensus(met, all ? 0 : plait_errorf(err, "out of memory"),
                              err) < 0) {
        free(all);
        return -1;
    }
    if (plait_comm_host_all_gather(met, &mine, all, sizeof(mine)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(met));
    for (int i = 0; rc == 0 && i < rank; i++)
        if (memcmp(&all[i], &mine, sizeof(mine)) == 0)
            rc = plait_errorf(
                err,
                "ranks %d and %d have %s, %s (%s): ask for as many GPUs as "
                "tasks, or let them share with PLAIT_SHARE_GPUS=1",
                i, rank,
                strstr(w->gpu.name, " MIG ")
                    ? "parts (MIG) of the same GPU, which NCCL does not connect"
                    : "the same GPU",
                mine.busid, w->gpu.name);
    free(all);
    return rc;
}

/* Fails on ranks on CPUs if others are on GPUs. */
static int check_alike(const struct plait_world *w, int rank, double gpus,
                       struct plait_error *err)
{
    if (gpus == 0 || w->ops->gpu)
        return 0;
    return plait_errorf(err,
                        "rank %d finds no GPU, and other ranks have one: %s "
                        "(--device cpu trains without GPUs)",
                        rank, w->no_gpu);
}

int plait_world_agree(struct plait_world *w, struct plait_comm *met, int rc,
                      struct plait_error *err)
{
    int rank = plait_comm_rank(met);
    double gpus;

    if (plait_error_consensus(met, rc, err) < 0)
        return -1;
    gpus = w->ops->gpu != 0;
    if (plait_comm_size(met) == 1 || !plait_cuda_configured())
        return 0;
    if (plait_comm_host_all_reduce(met, &gpus, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(met));
    if (plait_error_consensus(met, check_alike(w, rank, gpus, err), err) < 0)
        return -1;
    if (!w->ops->gpu || plait_shared_gpus() > 0)
        return 0;
    return plait_error_consensus(met, plait_world_check_own(w, met, err), err);
}
