/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/world.h"

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/comm/agree.h"
#include "runtime/comm/backend.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/members.h"
#include "runtime/comm/world_device.h"

/* How long the ranks that are left wait for each other once they have
 * agreed. */
#define AGAIN_S 20

/* -- launcher ------------------------------------------------------------ */

int plait_rank_hint(void)
{
    int rank = plait_env_int("SLURM_PROCID", 0);

    if (plait_env_int(PLAIT_ENV_SPARE, 0) > 0)
        return plait_env_int(PLAIT_ENV_SPARE, 0);
    rank = plait_env_int("PMIX_RANK", rank);
    rank = plait_env_int("OMPI_COMM_WORLD_RANK", rank);
    return plait_env_int(PLAIT_ENV_RANK, rank);
}

/* Whether an MPI launcher started this process. */
static bool under_mpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") ||
           getenv("PMI_SIZE") || getenv("PMI_RANK");
}

/* -- world --------------------------------------------------------------- */

int plait_world_shared_cores(const struct plait_world *world, int *ranks)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int cores = plait_comm_shared_cores(world->comm, ranks);

    if (cores > 0)
        return cores;
    *ranks = world->node_ranks;
    return *ranks > online ? (int)online : 0;
}

const char *plait_world_exposed(const struct plait_world *w)
{
    if (!w->planned || w->launch.rank > 0 || plait_comm_size(w->all) == 1 ||
        strcmp(w->launch.secret, PLAIT_NO_SECRET) != 0 ||
        w->launch.master_port <= 0)
        return NULL;
    return "PLAIT_SECRET=none: whoever reaches the ports of these ranks can "
           "join as a rank, read and change the run, or end it";
}

static bool built_with_mpi(void)
{
#ifdef HAVE_MPI
    return true;
#else
    return false;
#endif
}

/* Whether the line in this file says that a port is up, as "4: ACTIVE". */
static bool is_active(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[64] = "";
    bool active = file && fgets(line, sizeof(line), file) &&
                  strstr(line, ": ACTIVE") != NULL;

    if (file)
        fclose(file);
    return active;
}

/* Whether the node has a device of which MPI makes more than TCP does. A launch
 * without bindings names none; then one with a port that is up counts, as
 * Ethernet cards that nobody uses for RDMA have one that is down. */
static bool has_rdma(const struct plait_world *w)
{
    bool found = w->launch.nics[0] != '\0';
    glob_t paths;

    if (!found &&
        glob("/sys/class/infiniband/*/ports/*/state", 0, NULL, &paths) == 0) {
        for (size_t i = 0; !found && i < paths.gl_pathc; i++)
            found = is_active(paths.gl_pathv[i]);
        globfree(&paths);
    }
    return found || access("/sys/class/cxi/cxi0", F_OK) == 0;
}

/* Whether ranks on CPUs had better communicate by MPI, if the others can: it
 * has started them, and knows the network between their nodes. Elsewhere
 * sockets are as fast within a node, faster between nodes and on cores that
 * ranks share, as they do not poll, and they outlive the loss of a rank. */
static bool prefers_mpi(const struct plait_world *w)
{
    return built_with_mpi() && under_mpi() && w->launch.nnodes > 1 &&
           has_rdma(w) && !plait_world_elastic();
}

/* Whether ranks that NCCL does not connect use sockets. Before they have met,
 * by_mpi is false. */
static bool uses_sockets(const struct plait_world *w, const char *comm,
                         bool gpu)
{
    if (strcmp(comm, "auto") != 0)
        return strcmp(comm, "socket") == 0;
    return w->planned && !gpu &&
           (!built_with_mpi() || (!w->by_mpi && w->launch.master_port > 0));
}

static bool has_peers(const struct plait_world *w)
{
    return w->planned ? w->launch.world_size + plait_world_spares() > 1
                      : under_mpi();
}

/* How the ranks meet. They do not know yet which of them are on GPUs, so this
 * depends only on what is the same for all; and NCCL must not need MPI where
 * the launch has a rendezvous. */
static enum plait_comm_kind choose_meeting(const struct plait_world *w,
                                           const char *device, const char *comm)
{
    bool gpus = strcmp(device, "cpu") != 0 && plait_cuda_configured();

    if (uses_sockets(w, comm, false))
        return PLAIT_COMM_SOCKET;
    if (!has_peers(w))
        return PLAIT_COMM_SELF;
    if (gpus && w->planned && w->launch.master_port > 0 &&
        strcmp(comm, "mpi") != 0)
        return PLAIT_COMM_SOCKET;
    return PLAIT_COMM_MPI;
}

static enum plait_comm_kind choose_kind(const struct plait_world *w,
                                        const char *comm)
{
    if (uses_sockets(w, comm, w->ops->gpu))
        return PLAIT_COMM_SOCKET;
    if (!has_peers(w))
        return PLAIT_COMM_SELF;
    return w->ops->gpu && plait_shared_gpus() <= 0 ? PLAIT_COMM_NCCL
                                                   : PLAIT_COMM_MPI;
}

static int check_launcher(const struct plait_world *w, const char *comm,
                          struct plait_error *err)
{
    int tasks = plait_env_int("SLURM_STEP_NUM_TASKS", 1);

    if (!w->planned && tasks > 1 && !under_mpi() && strcmp(comm, "socket") != 0)
        return plait_errorf(err,
                            "srun started %d tasks that know nothing of each "
                            "other: add --mpi=pmix, or a flag of the plugin "
                            "such as --tp",
                            tasks);
    return 0;
}

bool plait_world_elastic(void)
{
    return plait_env_int("PLAIT_ELASTIC", 0) > 0;
}

int plait_world_spares(void)
{
    return plait_world_elastic() ? plait_env_int(PLAIT_ENV_SPARES, 0) : 0;
}

/* NCCL's world over the ranks that have seats. If it fails here, the world is
 * broken, since the other ranks would wait for this one. */
static int connect_gpus(struct plait_world *w, struct plait_error *err)
{
    struct plait_comm *host = w->comm;

    w->comm = w->launch.world_size == 1
                  ? plait_self_create(w->ops, w->dev, "world")
                  : plait_comm_over(host, PLAIT_COMM_NCCL, w->ops, w->dev,
                                    &w->launch, err);
    if (!w->comm)
        plait_comm_break(w->all);
    if (!w->comm || w->launch.world_size == 1)
        plait_comm_destroy(host);
    return w->comm ? 0 : -1;
}

/* Processes without a seat stay in w->all and wait. */
static int take_seats(struct plait_world *w, struct plait_error *err)
{
    int seats = w->launch.world_size;

    if (!w->ops->gpu && seats == plait_comm_size(w->all)) {
        w->comm = w->all;
        return 0;
    }
    if (plait_comm_split(
            w->all,
            &(struct plait_split){.color = w->launch.rank < seats ? 0 : -1,
                                  .key = w->launch.rank,
                                  .name = "world"},
            &w->comm, err) < 0)
        return -1;
    return w->ops->gpu && w->comm ? connect_gpus(w, err) : 0;
}

/* Spare processes get the ranks after those of the plan. */
static struct plait_launch seat_spares(struct plait_world *w)
{
    int spares = plait_world_spares();
    int spare = plait_env_int(PLAIT_ENV_SPARE, 0);
    struct plait_launch launch;

    if (spares > 0 && spare > 0)
        w->launch.rank = w->launch.world_size + spare - 1;
    launch = w->launch;
    launch.world_size += spares;
    return launch;
}

static int check_spares(const struct plait_world *w, enum plait_comm_kind kind,
                        struct plait_error *err)
{
    if (plait_world_spares() == 0 || kind == PLAIT_COMM_SOCKET)
        return 0;
    errno = EINVAL;
    if (w->launch.rank > 0) /* rank 0 reports it */
        return -1;
    return plait_errorf(err, "--spares: only ranks on CPUs over sockets "
                             "(--comm socket) and on GPUs of their own over "
                             "NCCL have spare ones");
}

/* Ranks that share a GPU use MPI, as NCCL allows one rank per GPU, and MPI ends
 * all processes when one is lost. */
static int check_elastic(const struct plait_world *w, enum plait_comm_kind kind,
                         struct plait_error *err)
{
    if (!plait_world_elastic() || !w->ops->gpu || kind != PLAIT_COMM_MPI)
        return 0;
    errno = EINVAL;
    if (w->launch.rank > 0) /* rank 0 reports it */
        return -1;
    return plait_errorf(err, "--elastic: ranks that share a GPU communicate "
                             "by MPI and cannot go on without others: give "
                             "each its own");
}

/* Make the world over the communicator by which all have met. beside: it only
 * accompanies NCCL's world and transfers host memory. If all ranks know of a
 * failure, they keep the communicator by which they have met. */
static int connect_all(struct plait_world *w, enum plait_comm_kind kind,
                       bool beside, const struct plait_launch *launch,
                       struct plait_error *err)
{
    struct plait_comm *met = w->all;
    struct plait_comm *all = plait_comm_over(
        met, kind, beside ? NULL : w->ops, beside ? NULL : w->dev, launch, err);

    if (!all && (errno == ENOSYS || plait_comm_agreed(met)))
        return -1;
    if (!all)
        w->left = met; /* others may still be watching it */
    w->comm = w->all = all;
    return all ? 0 : -1;
}

/* All ranks must decide alike: nodes may differ in their devices. */
static int agree_on_mpi(struct plait_world *w, const char *comm,
                        struct plait_error *err)
{
    double others = strcmp(comm, "auto") != 0 || w->ops->gpu || !prefers_mpi(w);

    if (plait_comm_host_all_reduce(w->all, &others, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(w->all));
    w->by_mpi = others == 0;
    return 0;
}

/* The ranks meet and agree on what they compute on. rc < 0: this rank's launch
 * contradicts itself, as err says; the others learn that here. */
static int meet(struct plait_world *w, const char *device, const char *comm,
                const struct plait_launch *launch, int rc,
                struct plait_error *err)
{
    enum plait_comm_kind meeting = choose_meeting(w, device, comm);
    struct plait_error unmet = {""};

    if (check_launcher(w, comm, err) < 0 || check_spares(w, meeting, err) < 0)
        return -1;
    if (rc == 0)
        rc = plait_world_choose(w, device, err);
    /* From here on failures are told to all over this communicator. */
    w->comm = w->all = plait_comm_meet(meeting, launch, &unmet);
    if (!w->all && rc == 0)
        *err = unmet;
    if (!w->all || plait_agree_on_launch(w, err) < 0)
        return -1;
    if (plait_world_agree(w, w->all, rc, err) < 0)
        return -1;
    return meeting == PLAIT_COMM_SOCKET ? agree_on_mpi(w, comm, err) : 0;
}

int plait_world_connect(struct plait_world *w, const char *device,
                        const char *comm, struct plait_error *err)
{
    struct plait_launch all = w->launch, *launch = w->planned ? &all : NULL;
    enum plait_comm_kind kind = choose_kind(w, comm);
    /* NCCL does not notice the loss of a rank, and sockets do. */
    bool beside = plait_world_elastic() && kind == PLAIT_COMM_NCCL &&
                  choose_meeting(w, device, comm) == PLAIT_COMM_SOCKET;

    all.world_size += plait_world_spares();
    if (beside)
        kind = PLAIT_COMM_SOCKET;
    if (check_elastic(w, kind, err) < 0 || check_spares(w, kind, err) < 0 ||
        connect_all(w, kind, beside, launch, err) < 0)
        return -1;
    if (plait_world_elastic()) /* members outlive this world */
        w->members = plait_comm_take_members(w->all);
    return beside || plait_world_spares() > 0 ? take_seats(w, err) : 0;
}

int plait_world_meet(struct plait_world *w, const char *device,
                     const char *comm, struct plait_error *err)
{
    struct plait_launch all;
    int planned, rc = 0;

    memset(w, 0, sizeof(*w));
    planned = plait_launch_read(&w->launch, NULL, NULL, err);
    if (planned < 0)
        return -1;
    if (planned)
        rc = plait_launch_check(&w->launch, err);
    /* It cannot even meet the others. */
    if (rc < 0 && w->launch.rank >= w->launch.world_size)
        return -1;
    w->planned = planned;
    all = seat_spares(w);
    return meet(w, device, comm, w->planned ? &all : NULL, rc, err);
}

int plait_world_open(struct plait_world *w, const char *device,
                     const char *comm, struct plait_error *err)
{
    return plait_world_meet(w, device, comm, err) == 0
               ? plait_world_connect(w, device, comm, err)
               : -1;
}

bool plait_world_waits_for_nccl(const struct plait_world *w, const char *comm)
{
    return !plait_world_elastic() && plait_comm_size(w->all) > 1 &&
           choose_kind(w, comm) == PLAIT_COMM_NCCL;
}

int plait_world_patience(void)
{
    return (int)ceil(2 * plait_nccl_limit());
}

/* A process that takes over the rank of one that is gone computes on its
 * cores. */
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

void plait_world_keep(struct plait_world *w, struct plait_world *kept)
{
    memset(kept, 0, sizeof(*kept));
    kept->members = w->members;
    w->members = NULL;
    if (!w->dev || !w->ops->gpu)
        return;
    kept->ops = w->ops;
    kept->dev = w->dev;
    kept->gpu = w->gpu;
    kept->node_ranks = w->node_ranks;
    kept->threads = w->threads;
    w->dev = NULL;
}

int plait_world_again(struct plait_world *w, const struct plait_world *kept,
                      const struct plait_launch *launch,
                      struct plait_error *err)
{
    struct plait_members *m = kept->members;
    const struct plait_ops *ops;

    *w = *kept;
    w->launch = *launch;
    w->planned = true;
    w->launch.rank = m->rank;
    w->launch.world_size = plait_layout_world(&launch->layout);
    if (w->launch.rank < w->launch.world_size)
        plait_layout_coord(&w->launch.layout, w->launch.rank, &w->launch.coord);
    if (!w->dev) { /* with a GPU, it keeps the cores near it */
        take_cores(m);
        if (plait_world_choose(w, "cpu", err) < 0)
            return -1;
    }
    ops = w->ops->gpu ? NULL : w->ops;
    w->all = m->n > 1 ? plait_members_world(m, ops, ops ? w->dev : NULL,
                                            AGAIN_S, err)
                      : plait_self_create(ops, ops ? w->dev : NULL, "world");
    if (!w->all)
        return -1;
    if (!ops && plait_error_consensus(
                    w->all, plait_world_check_own(w, w->all, err), err) < 0)
        return -1;
    return take_seats(w, err);
}

void plait_world_close(struct plait_world *w)
{
    if (w->comm != w->all)
        plait_comm_destroy(w->comm);
    plait_comm_destroy(w->all);
    /* Ranks that wait in NCCL for this one see it end; over MPI they would not,
     * and this one would wait for them. */
    if (w->left && w->ops->gpu)
        plait_comm_abort(w->left);
    plait_comm_destroy(w->left);
    if (w->dev)
        w->ops->device_destroy(w->dev);
    plait_members_destroy(w->members);
}
