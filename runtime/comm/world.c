/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/world.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/comm_private.h"
#include "topology/base/hostlist.h"

/* How long those that are left wait for each other, once they have agreed. */
#define AGAIN_S 20

/* -- launcher ------------------------------------------------------------ */

static int env_int(const char *name, int fallback)
{
    const char *text = getenv(name);

    return text && *text ? atoi(text) : fallback;
}

int plait_rank_hint(void)
{
    int rank = env_int("SLURM_PROCID", 0);

    if (env_int(PLAIT_ENV_SPARE, 0) > 0)
        return env_int(PLAIT_ENV_SPARE, 0);
    rank = env_int("PMIX_RANK", rank);
    rank = env_int("OMPI_COMM_WORLD_RANK", rank);
    return env_int(PLAIT_ENV_RANK, rank);
}

/* Some MPI launcher started this process. */
static bool under_mpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") ||
           getenv("PMI_SIZE") || getenv("PMI_RANK");
}

/* More than any errno: sent together with a rank's priority in one number. */
#define ERRNO_ROOM 4096

/* 0: it has not failed. Else ranks with text in err come before those without,
 * and among equals the lower rank. */
static int failure_priority(const struct plait_comm *world, int rc,
                            const struct plait_error *err)
{
    int size = plait_comm_size(world);

    if (rc >= 0)
        return 0;
    return (err->text[0] ? size : 0) + size - plait_comm_rank(world);
}

int plait_error_consensus(struct plait_comm *world, int rc,
                          struct plait_error *err)
{
    int mine = failure_priority(world, rc, err), saved = errno;
    double highest = (double)mine * ERRNO_ROOM + saved % ERRNO_ROOM;

    if (mine == 0)
        highest = 0;
    /* Nothing here may fail on one rank alone, such as taking memory. */
    if (plait_comm_host_all_reduce(world, &highest, 1, PLAIT_MAX) < 0) {
        if (rc == 0)
            plait_errorf(err, "rank %d: %s", plait_comm_rank(world),
                         plait_comm_error(world));
        return -1;
    }
    if (highest == 0) {
        errno = saved;
        return 0;
    }
    if ((int64_t)highest / ERRNO_ROOM != mine)
        err->text[0] = '\0';
    errno = (int)((int64_t)highest % ERRNO_ROOM);
    return -1;
}

static int broadcast_from_root(struct plait_comm *world, char **text,
                               size_t *size, struct plait_error *err)
{
    int rc = 0;

    if (plait_comm_host_broadcast(world, size, sizeof(*size), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    if (plait_comm_rank(world) > 0 && !(*text = malloc(*size + 1)))
        rc = plait_errorf(err, "out of memory");
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast(world, *text, *size, 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    return 0;
}

int plait_broadcast_text(struct plait_comm *world, int rc, char **text,
                         size_t *size, struct plait_error *err)
{
    char *mine = rc == 0 && plait_comm_rank(world) == 0 ? *text : NULL;

    if (plait_error_consensus(world, rc, err) == 0 &&
        broadcast_from_root(world, &mine, size, err) == 0) {
        *text = mine;
        return 0;
    }
    free(mine);
    return -1;
}

/* -- device and world ---------------------------------------------------- */

static int choose_ops(struct plait_world *w, const char *device,
                      struct plait_error *err)
{
    const char *why = "no GPU";

    w->ops = NULL;
    if (!plait_cpu_isa(&why))
        return plait_errorf(err, "%s", why);
    errno = ENODEV;
    if (strcmp(device, "cpu") != 0 &&
        !(w->planned && w->launch.gpu < 0 && !strcmp(device, "auto")))
        w->ops = plait_ops_cuda(&why);
    if (!w->ops && !strcmp(device, "cuda"))
        return plait_errorf(err, "--device cuda: %s", why);
    /* Some ranks on GPUs and some not would wait for each other. */
    if (!w->ops && errno == EIO)
        return plait_errorf(err,
                            "a GPU is there and cannot be used: %s (--device "
                            "cpu goes on without)",
                            why);
    if (!w->ops)
        w->ops = plait_ops_cpu();
    return 0;
}

static int local_rank(const struct plait_world *w)
{
    if (w->planned)
        return w->launch.local_rank;
    return env_int("OMPI_COMM_WORLD_LOCAL_RANK", env_int("SLURM_LOCALID", 0));
}

/* How many GPUs the ranks of a node share; 0: each has its own. NCCL wants
 * one rank a GPU, so that ranks which share talk through host memory. */
static int shared_gpus(void)
{
    return env_int("PLAIT_SHARE_GPUS", 0);
}

static int device_index(const struct plait_world *w)
{
    int shared = shared_gpus(), local = local_rank(w);

    /* Of a plan, it is the index of the GPU, though others of the node may be
     * hidden. */
    if (w->planned)
        local = env_int("LOCAL_RANK", local);
    return shared > 0 ? local_rank(w) % shared : local;
}

/* Threads for this process's operations; 0: as many as it is bound to.
 * mpirun without binding leaves every rank all cores: they are shared. */
static int choose_threads(const struct plait_world *w)
{
    int ranks = env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    int threads = env_int("OMP_NUM_THREADS", 0);
    cpu_set_t set;
    int cpus;

    if (threads > 0 || w->planned || ranks == 1)
        return threads;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    cpus = CPU_COUNT(&set);
    if (cpus < sysconf(_SC_NPROCESSORS_ONLN))
        return 0;
    return cpus > ranks ? cpus / ranks : 1;
}

/* How many ranks the launcher has put on this node. */
static int count_node_ranks(void)
{
    const char *slurm = getenv("SLURM_STEP_TASKS_PER_NODE");
    int ranks = env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 0);

    if (!ranks && slurm)
        ranks = plait_hostlist_tasks(slurm, env_int("SLURM_NODEID", 0));
    return ranks > 0 ? ranks : 1;
}

/* What is said of this rank's part of the node. */
static void set_place(struct plait_world *w, int threads)
{
    cpu_set_t set;

    w->node_ranks =
        w->planned ? w->launch.local_world_size : count_node_ranks();
    w->threads = threads;
    if (!threads)
        w->threads =
            sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
}

int plait_world_shared_cores(const struct plait_world *world, int *ranks)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    *ranks = world->node_ranks;
    return *ranks > online ? (int)online : 0;
}

/* Whether ranks that NCCL does not connect use sockets. */
static bool uses_sockets(const struct plait_world *w, const char *comm)
{
    if (strcmp(comm, "auto") != 0)
        return strcmp(comm, "socket") == 0;
#ifndef HAVE_MPI
    return w->planned && !w->ops->gpu;
#else
    return w->planned && !w->ops->gpu && !under_mpi() &&
           w->launch.master_port > 0;
#endif
}

static int choose_kind(const struct plait_world *w, const char *comm,
                       enum plait_comm_kind *kind, struct plait_error *err)
{
    int tasks = env_int("SLURM_STEP_NUM_TASKS", 1);

    *kind = PLAIT_COMM_SELF;
    if (uses_sockets(w, comm))
        *kind = PLAIT_COMM_SOCKET;
    else if (w->planned ? w->launch.world_size > 1 : under_mpi())
        *kind = w->ops->gpu && shared_gpus() <= 0 ? PLAIT_COMM_NCCL
                                                  : PLAIT_COMM_MPI;
    else if (!w->planned && tasks > 1)
        return plait_errorf(err,
                            "srun started %d tasks that know nothing of each "
                            "other: add --mpi=pmix, or a flag of the plugin "
                            "such as --tp",
                            tasks);
    return 0;
}

static const char *device_error(int errnum)
{
    if (errnum == ENOEXEC)
        return "no code for that GPU in this build, which by default is "
               "compiled for compute capability 8.0 and up "
               "(--with-nvcc-gencode)";
    return strerror(errnum);
}

static int open_device(struct plait_world *w, const char *device,
                       struct plait_error *err)
{
    int threads = choose_threads(w);

    if (choose_ops(w, device, err) < 0)
        return -1;
    set_place(w, threads);
    w->dev = w->ops->device_create(device_index(w), threads);
    if (!w->dev)
        return plait_errorf(err,
                            "%s device %d cannot be used: %s (for several "
                            "ranks to a GPU set PLAIT_SHARE_GPUS)",
                            w->ops->name, device_index(w), device_error(errno));
    return 0;
}

bool plait_world_elastic(void)
{
    return env_int("PLAIT_ELASTIC", 0) > 0;
}

int plait_world_spares(void)
{
    return plait_world_elastic() ? env_int(PLAIT_ENV_SPARES, 0) : 0;
}

/* Processes without a seat wait beside those that have one. */
static int take_seats(struct plait_world *w, struct plait_error *err)
{
    int seats = w->launch.world_size;

    if (seats == plait_comm_size(w->all)) {
        w->comm = w->all;
        return 0;
    }
    return plait_comm_split(w->all, w->launch.rank < seats ? 0 : -1,
                            w->launch.rank, PLAIT_COMM_AXIS_NONE, "world",
                            &w->comm, err);
}

/* Spare processes have the ranks behind those of the plan. */
static int connect_all(struct plait_world *w, enum plait_comm_kind kind,
                       struct plait_error *err)
{
    int spares = plait_world_spares(), spare = env_int(PLAIT_ENV_SPARE, 0);
    struct plait_launch launch = w->launch;

    if (spares > 0) {
        if (spare > 0)
            w->launch.rank = w->launch.world_size + spare - 1;
        launch = w->launch;
        launch.world_size += spares;
    }
    if (spares > 0 && kind != PLAIT_COMM_SOCKET) {
        errno = EINVAL;
        if (w->launch.rank > 0) /* one says it */
            return -1;
        return plait_errorf(err, "--spares: only ranks on CPUs over sockets "
                                 "(--comm socket) have spare ones");
    }
    w->all = plait_comm_create(kind, w->ops, w->dev,
                               w->planned ? &launch : NULL, err);
    return w->all ? 0 : -1;
}

static int open_world(struct plait_world *w, const char *device,
                      const char *comm, struct plait_error *err)
{
    enum plait_comm_kind kind;

    if (open_device(w, device, err) < 0 ||
        choose_kind(w, comm, &kind, err) < 0 || connect_all(w, kind, err) < 0)
        return -1;
    w->members = plait_comm_take_members(w->all);
    if (!plait_world_elastic()) { /* nobody comes to their ports any more */
        plait_members_destroy(w->members);
        w->members = NULL;
    }
    if (plait_world_spares() > 0)
        return take_seats(w, err);
    w->comm = w->all;
    return 0;
}

int plait_world_open(struct plait_world *w, const char *device,
                     const char *comm, struct plait_error *err)
{
    int planned;

    memset(w, 0, sizeof(*w));
    planned = plait_launch_decode(&w->launch, NULL, NULL, err);
    if (planned < 0)
        return -1;
    w->planned = planned;
    return open_world(w, device, comm, err);
}

/* Who takes the place of one that is gone computes on its cores. */
static void take_cores(const struct plait_members *m)
{
    const struct plait_contact *gone = &m->all[m->rank];
    cpu_set_t cpus;

    if (m->self == m->rank || strcmp(gone->host, m->all[m->self].host) != 0)
        return;
    for (int i = 0; i < m->n; i++)
        if (m->present[i] == m->rank)
            return;
    memcpy(&cpus, gone->cpus, sizeof(cpus));
    if (CPU_COUNT(&cpus) > 0)
        sched_setaffinity(0, sizeof(cpus), &cpus);
}

int plait_world_again(struct plait_world *w, struct plait_members *members,
                      const struct plait_launch *launch,
                      struct plait_error *err)
{
    memset(w, 0, sizeof(*w));
    w->launch = *launch;
    w->members = members;
    w->planned = true;
    w->launch.rank = members->rank;
    w->launch.world_size = plait_layout_world(&launch->layout);
    if (w->launch.rank < w->launch.world_size)
        plait_layout_coord(&w->launch.layout, w->launch.rank, &w->launch.coord);
    take_cores(members);
    if (open_device(w, "cpu", err) < 0)
        return -1;
    w->all = members->n > 1
                 ? plait_members_world(members, w->ops, w->dev, AGAIN_S, err)
                 : plait_self_create(w->ops, w->dev, "world");
    return w->all ? take_seats(w, err) : -1;
}

void plait_world_close(struct plait_world *w)
{
    if (w->comm != w->all)
        plait_comm_destroy(w->comm);
    plait_comm_destroy(w->all);
    if (w->dev)
        w->ops->device_destroy(w->dev);
    plait_members_destroy(w->members);
}
