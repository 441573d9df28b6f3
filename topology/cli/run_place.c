/* SPDX-License-Identifier: Apache-2.0 */
/* Where this task of a step is, by what its launcher (Slurm, mpirun, Flux) has
 * put into its environment. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/hostlist.h"
#include "topology/cli/run.h"
#include "topology/layout/launch.h"
#include "topology/start/scontrol.h"

/* The variables in which launchers other than Slurm give a task its numbers. */
static const struct launcher {
    const char *name, *rank, *size, *local, *local_size;
    const char *nodes; /* in place of local_size */
} launchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS", NULL},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", NULL,
     "FLUX_JOB_NNODES"},
};

/* The first launcher whose variables are set. Flux sets PMI_RANK too, but not
 * what MPICH's own launcher sets beside it. */
static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        if (getenv(launchers[i].rank) &&
            (getenv(launchers[i].local) || !getenv("FLUX_TASK_RANK")))
            return &launchers[i];
    return NULL;
}

/* A whole number from 0, or -1. */
static int read_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value;

    if (!text || *text < '0' || *text > '9')
        return -1;
    value = strtol(text, &end, 10);
    return *end || value > 1048576 ? -1 : (int)value;
}

static int allocate_nodes(struct run_place *place, int nnodes)
{
    place->names = calloc((size_t)nnodes, sizeof(*place->names));
    place->tasks = calloc((size_t)nnodes, sizeof(*place->tasks));
    place->ids = calloc((size_t)nnodes, sizeof(*place->ids));
    if (!place->names || !place->tasks || !place->ids)
        return -1;
    place->nnodes = nnodes;
    return 0;
}

/* Nodes of `each` tasks, of which only this one's name is known. */
static int fill_nodes(struct run_place *place, int nnodes, int each)
{
    char name[256] = "localhost";

    gethostname(name, sizeof(name) - 1);
    if (allocate_nodes(place, nnodes) < 0)
        return -1;
    for (int i = 0; i < nnodes; i++) {
        char other[32];

        snprintf(other, sizeof(other), "node-%d", i);
        place->names[i] = strdup(i == place->id ? name : other);
        place->tasks[i] = each;
        place->ids[i] = i;
        if (!place->names[i])
            return -1;
    }
    return 0;
}

/* The number of entries in "0,4,8"; 0: it is no list. */
static int count_tasks(const char *list)
{
    int n = list && *list;

    for (; n && *list; list++)
        n += *list == ',';
    return n;
}

static int find_head(struct run_place *place, struct plait_error *err)
{
    const char *list = getenv("SLURM_STEP_NODELIST");
    char **names;
    int n = 0;

    names = list ? plait_hostlist_create(list, &n, err) : NULL;
    if (!names)
        return list ? -1 : plait_errorf(err, "SLURM_STEP_NODELIST is not set");
    if (n == place->nnodes)
        snprintf(place->head, sizeof(place->head), "%s", names[0]);
    plait_hostlist_destroy(names, n);
    return 0;
}

/* Slurm gives each task its own numbers, how many tasks are on its node, and
 * the nodes, but not which tasks are on the others. */
static int find_slurm(struct run_place *place, struct plait_error *err)
{
    const char *host = getenv("SLURMD_NODENAME");
    const char *job = getenv("SLURM_JOB_ID");

    place->slurm = 1;
    place->rank = read_number("SLURM_PROCID");
    place->local = read_number("SLURM_LOCALID");
    place->id = read_number("SLURM_NODEID");
    place->first = place->id == 0 && place->local == 0;
    place->nnodes = read_number("SLURM_STEP_NUM_NODES");
    place->here = count_tasks(getenv("SLURM_GTIDS"));
    place->job = job ? (unsigned)strtoul(job, NULL, 10) : 0; /* to 2^26 */
    place->step = (unsigned)read_number("SLURM_STEP_ID");
    snprintf(place->jobid, sizeof(place->jobid), "%u.%u", place->job,
             place->step);
    gethostname(place->host, sizeof(place->host) - 1);
    if (host)
        snprintf(place->host, sizeof(place->host), "%s", host);
    if (find_head(place, err) < 0)
        return -1;
    if (*place->head && place->local >= 0 && place->local < place->here &&
        place->id >= 0 && place->id < place->nnodes)
        return 0;
    return plait_errorf(err, "SLURM_LOCALID, SLURM_NODEID, SLURM_GTIDS and "
                             "SLURM_STEP_NUM_NODES are not this step's");
}

int run_place_ask(struct run_place *place, struct plait_error *err)
{
    struct plait_step_layout *step;

    if (place->names)
        return 0;
    step = plait_scontrol_step(place->jobid, err);
    if (!step)
        return -1;
    if (step->nnodes != place->nnodes) {
        plait_errorf(err, "sattach --layout says %d nodes, srun %d",
                     step->nnodes, place->nnodes);
        plait_step_layout_destroy(step);
        return -1;
    }
    place->names = step->names;
    place->tasks = step->tasks;
    place->ids = step->ids;
    free(step);
    return 0;
}

void run_place_leave_out(struct run_place *place, const int *out)
{
    int n = 0;

    for (int i = 0; i < place->nnodes; i++) {
        int id = place->ids[i], before = 0;

        if (out[id]) {
            free(place->names[i]);
            continue;
        }
        for (int k = 0; k < id; k++)
            before += out[k];
        place->names[n] = place->names[i];
        place->tasks[n] = place->tasks[i];
        place->ids[n] = id - before;
        n++;
    }
    place->nnodes = n;
}

/* The name of a host up to its first dot. */
static bool is_same_host(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");

    return n == strcspn(b, ".") && strncmp(a, b, n) == 0;
}

/* The hosts of a file of PBS, one line a task or a host, each once: at most
 * `most`. */
static int read_hosts(const char *path, char **hosts, int most)
{
    FILE *file = fopen(path, "re");
    char line[256];
    int n = 0;

    while (file && n < most && fgets(line, sizeof(line), file)) {
        line[strcspn(line, " \t\n")] = '\0';
        if (!*line || (n && is_same_host(hosts[n - 1], line)))
            continue;
        if (!(hosts[n] = strdup(line)))
            break;
        n++;
    }
    if (file)
        fclose(file);
    return n;
}

/* The ranks' nodes are hosts[first] and following, if the one for this task has
 * this machine's name; else the names stay as they were. */
static void take_names(struct run_place *place, char **hosts, int n, int first)
{
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    if (!hosts || n < first + place->nnodes ||
        !is_same_host(hosts[first + place->id], host))
        return;
    for (int i = 0; i < place->nnodes; i++) {
        char *old = place->names[i];

        place->names[i] = hosts[first + i];
        hosts[first + i] = old;
    }
    place->named = 1;
}

/* Name the nodes. The job that mpirun was started in may list them, and the
 * ranks' nodes are then the first of these; else take mpirun's own list, in
 * which mpirun's node may come first. */
static void name_nodes(struct run_place *place)
{
    const char *pbs = getenv("PBS_NODEFILE"),
               *slurm = getenv("SLURM_JOB_NODELIST");
    char **hosts = NULL;
    struct plait_error err;
    int n = 0, own = 0;

    if (pbs && (hosts = calloc((size_t)place->nnodes, sizeof(*hosts))))
        n = read_hosts(pbs, hosts, place->nnodes);
    else if (slurm)
        hosts = plait_hostlist_create(slurm, &n, &err);
    take_names(place, hosts, n, 0);
    plait_hostlist_destroy(hosts, n);
    if (place->named || !(hosts = run_mpirun_nodes(&n, &own)))
        return;
    if (n == 1 && place->id == 0)
        place->named = 1; /* names[0] is this node */
    else if (own - place->id == n - place->nnodes && own >= place->id &&
             own <= place->id + 1)
        take_names(place, hosts, n, own - place->id);
    plait_hostlist_destroy(hosts, n);
}

/* The ranks must be on the nodes one after the other, and the environment must
 * say where the first one is. */
static int find_tasks(struct run_place *place, const struct launcher *launcher,
                      struct plait_error *err)
{
    int size = read_number(launcher->size),
        nodes = launcher->nodes ? read_number(launcher->nodes) : 0,
        each = launcher->nodes
                   ? nodes > 0 && size % nodes == 0 ? size / nodes : -1
                   : read_number(launcher->local_size);

    place->rank = read_number(launcher->rank);
    place->local = read_number(launcher->local);
    place->first = place->rank <= 0 || place->rank >= size;
    errno = EINVAL;
    if (size < 1 || each < 1 || place->rank < 0 || place->rank >= size ||
        place->local < 0)
        return plait_errorf(
            err,
            "%s does not say which task this is: set "
            "%s, %s, %s and %s",
            launcher->name, launcher->rank, launcher->size, launcher->local,
            launcher->nodes ? launcher->nodes : launcher->local_size);
    if (size % each || place->rank % each != place->local)
        return plait_errorf(err,
                            "task %d is task %d of the %d on its node: "
                            "%s must fill node after node, with equally "
                            "many tasks",
                            place->rank, place->local, each, launcher->name);
    place->id = place->rank / each;
    place->job = (unsigned)getppid();
    snprintf(place->jobid, sizeof(place->jobid), "%u.0", place->job);
    if (size > each) {
        const char *job = getenv("OMPI_MCA_ess_base_jobid");

        /* Open MPI gives all tasks its job's id; other launchers give none. */
        place->job = job ? (unsigned)strtoul(job, NULL, 10) : 0;
        snprintf(place->jobid, sizeof(place->jobid), "%u.0", place->job);
    }
    errno = ENOMEM;
    if (fill_nodes(place, size / each, each) < 0)
        return plait_errorf(err, "out of memory");
    if (size > each)
        name_nodes(place);
    errno = EINVAL;
    if (size > each && !place->named && !getenv(PLAIT_ENV_MASTER_ADDR))
        return plait_errorf(err,
                            "%s does not say where task 0 is: set "
                            "MASTER_ADDR for all tasks",
                            launcher->name);
    return 0;
}

int run_place_find(struct run_place *place, int np, struct plait_error *err)
{
    const struct launcher *launcher = np ? NULL : find_launcher();

    memset(place, 0, sizeof(*place));
    place->first = 1; /* until that is known */
    /* mpirun and Flux may start their daemons by srun, whose numbers their
     * tasks inherit. srun --mpi=pmi2 sets PMI_RANK, but no local rank. */
    if (np == 0 && !(launcher && getenv(launcher->local)) &&
        read_number("SLURM_PROCID") >= 0 && read_number("SLURM_STEP_ID") >= 0)
        return find_slurm(place, err);
    if (launcher)
        return find_tasks(place, launcher, err);
    errno = EINVAL;
    if (np == 0)
        return plait_errorf(err, "run: no srun or mpirun started this: give "
                                 "--np, the number of tasks on this machine");
    place->alone = 1;
    place->job = (unsigned)getpid();
    snprintf(place->jobid, sizeof(place->jobid), "%u.0", place->job);
    return fill_nodes(place, 1, np) < 0 ? plait_errorf(err, "out of memory")
                                        : 0;
}

void run_place_clear(struct run_place *place)
{
    for (int i = 0; place->names && i < place->nnodes; i++)
        free(place->names[i]);
    free(place->names);
    free(place->tasks);
    free(place->ids);
    memset(place, 0, sizeof(*place));
}
