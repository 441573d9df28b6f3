/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/session.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- who is there -------------------------------------------------------- */

static int env_int(const char *name, int fallback)
{
    const char *text = getenv(name);

    return text && *text ? atoi(text) : fallback;
}

int plait_rank_hint(void)
{
    int rank = env_int("SLURM_PROCID", 0);

    rank = env_int("PMIX_RANK", rank);
    rank = env_int("OMPI_COMM_WORLD_RANK", rank);
    return env_int("PLAIT_RANK", rank);
}

/* Some MPI launcher started this process. */
static bool under_mpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") ||
           getenv("PMI_SIZE") || getenv("PMI_RANK");
}

int plait_agree(struct plait_comm *world, int rc, struct plait_error *err)
{
    int rank = plait_comm_rank(world), n = plait_comm_size(world), i;
    char failed = rc < 0, *all = malloc(n);

    if (!all || plait_comm_host_all_gather(world, &failed, all, 1) < 0) {
        free(all);
        if (!failed)
            plait_errorf(err, "rank %d: %s", rank,
                         all ? plait_comm_error(world) : "out of memory");
        return -1;
    }
    for (i = 0; i < n && !all[i]; i++)
        ;
    free(all);
    if (i == n)
        return 0;
    if (i != rank)
        err->text[0] = '\0';
    return -1;
}

/* -- device and world ---------------------------------------------------- */

static int choose_ops(struct plait_session *s, const char *device,
                      struct plait_error *err)
{
    const char *why = "no GPU";

    s->ops = NULL;
    if (strcmp(device, "cpu") != 0 &&
        !(s->planned && s->launch.gpu < 0 && !strcmp(device, "auto")))
        s->ops = plait_ops_cuda(&why);
    if (!s->ops && !strcmp(device, "cuda"))
        return plait_errorf(err, "--device cuda: %s", why);
    if (!s->ops)
        s->ops = plait_ops_cpu();
    return 0;
}

static int local_rank(const struct plait_session *s)
{
    if (s->planned)
        return s->launch.local_rank;
    return env_int("OMPI_COMM_WORLD_LOCAL_RANK", env_int("SLURM_LOCALID", 0));
}

/* How many GPUs the ranks of a node share; 0: each has its own. NCCL wants
 * one rank a GPU, so that ranks which share talk through host memory. */
static int shared_gpus(void)
{
    return env_int("PLAIT_SHARE_GPUS", 0);
}

static int device_index(const struct plait_session *s)
{
    int shared = shared_gpus();

    return shared > 0 ? local_rank(s) % shared : local_rank(s);
}

/* Threads for this process's operations; 0: as many as it is bound to.
 * mpirun without binding leaves every rank all cores: they are shared. */
static int choose_threads(const struct plait_session *s)
{
    int ranks = env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    int threads = env_int("OMP_NUM_THREADS", 0);
    cpu_set_t set;
    int cpus;

    if (threads > 0 || s->planned || ranks == 1)
        return threads;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    cpus = CPU_COUNT(&set);
    if (cpus < sysconf(_SC_NPROCESSORS_ONLN))
        return 0;
    return cpus > ranks ? cpus / ranks : 1;
}

static int choose_kind(const struct plait_session *s,
                       enum plait_comm_kind *kind, struct plait_error *err)
{
    int tasks = env_int("SLURM_STEP_NUM_TASKS", 1);

    *kind = PLAIT_COMM_SELF;
    if (s->planned ? s->launch.world_size > 1 : under_mpi())
        *kind = strcmp(s->ops->name, "cuda") != 0 || shared_gpus() > 0
                    ? PLAIT_COMM_MPI
                    : PLAIT_COMM_NCCL;
    else if (!s->planned && tasks > 1)
        return plait_errorf(err,
                            "srun started %d tasks that know nothing of each "
                            "other: add --mpi=pmix, or a flag of the plugin "
                            "such as --tp",
                            tasks);
    return 0;
}

static int open_world(struct plait_session *s,
                      const struct plait_train_args *args,
                      struct plait_error *err)
{
    const struct plait_launch *launch = s->planned ? &s->launch : NULL;
    enum plait_comm_kind kind;

    if (choose_ops(s, args->device, err) < 0 || choose_kind(s, &kind, err) < 0)
        return -1;
    s->dev = s->ops->device_create(device_index(s), choose_threads(s));
    if (!s->dev)
        return plait_errorf(err,
                            "%s device %d cannot be used: %s (for several "
                            "ranks to a GPU set PLAIT_SHARE_GPUS)",
                            s->ops->name, device_index(s), strerror(errno));
    s->world = plait_comm_create(kind, s->ops, s->dev, launch, err);
    return s->world ? 0 : -1;
}

/* -- configuration ------------------------------------------------------- */

/* The whole file; caller frees. */
static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL, *more;
    size_t n = 0, got;

    if (!f)
        return NULL;
    do {
        more = realloc(text, n + 65536);
        if (!more)
            break;
        text = more;
        got = fread(text + n, 1, 65536, f);
        n += got;
    } while (got > 0);
    fclose(f);
    *size = n;
    return text;
}

/* Rank 0 alone opens the file: a thousand ranks would be a storm on a
 * shared file system. */
static int read_config(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    int rank = plait_comm_rank(s->world), rc = 0;
    size_t size = 0;
    char *text = NULL;

    if (rank == 0) {
        s->config = plait_config_create(args->config, args->set, args->nset,
                                        err);
        text = s->config ? read_file(args->config, &size) : NULL;
        if (s->config && !text)
            plait_errorf(err, "%s: %s", args->config, strerror(errno));
        rc = text ? 0 : -1;
    }
    if (plait_agree(s->world, rc, err) < 0)
        goto error;
    if (plait_comm_host_broadcast(s->world, &size, sizeof(size), 0) < 0)
        goto error;
    if (rank > 0)
        text = malloc(size + 1);
    if (plait_agree(s->world, text ? 0 : -1, err) < 0 ||
        plait_comm_host_broadcast(s->world, text, size, 0) < 0)
        goto error;
    if (rank > 0)
        s->config = plait_config_parse(args->config, text, size, args->set,
                                       args->nset, err);
    free(text);
    return plait_agree(s->world, s->config ? 0 : -1, err);

error:
    free(text);
    return -1;
}

/* -- layout -------------------------------------------------------------- */

static int *config_size(struct plait_config *c, enum plait_axis axis)
{
    struct plait_parallel_config *p = &c->parallel;
    int *sizes[PLAIT_NAXES] = {&p->tp, &p->cp, &p->ep, &p->dp, &p->pp};

    return sizes[axis];
}

/* parallel_given has its bits in the order tp, cp, ep, pp, dp. */
static bool given(const struct plait_config *c, enum plait_axis axis)
{
    static const int bit[PLAIT_NAXES] = {0, 1, 2, 4, 3};

    return c->parallel_given & 1u << bit[axis];
}

/* The plan decides; a configuration that says otherwise is refused. */
static int follow_launch(struct plait_session *s, struct plait_layout *layout,
                         struct plait_error *err)
{
    int axis;

    *layout = s->launch.layout;
    for (axis = 0; axis < PLAIT_NAXES; axis++) {
        int want = *config_size(s->config, axis);

        if (given(s->config, axis) && want != PLAIT_AUTO &&
            want != layout->size[axis])
            return plait_errorf(err,
                                "parallel.%s is %d, but the job was started "
                                "with %s %d: leave it out of the "
                                "configuration, or use srun --%s=%d",
                                plait_axis_names[axis], want,
                                plait_axis_names[axis], layout->size[axis],
                                plait_axis_names[axis], want);
    }
    return 0;
}

static int follow_config(struct plait_session *s, struct plait_layout *layout,
                         struct plait_error *err)
{
    int axis;

    plait_layout_init(layout);
    for (axis = 0; axis < PLAIT_NAXES; axis++)
        layout->size[axis] = *config_size(s->config, axis);
    return plait_layout_resolve(layout, plait_comm_size(s->world), err);
}

static int resolve_layout(struct plait_session *s, struct plait_layout *layout,
                          struct plait_error *err)
{
    const struct plait_train_config *t = &s->config->train;
    int axis, dp;

    if (s->planned ? follow_launch(s, layout, err) < 0
                   : follow_config(s, layout, err) < 0)
        return -1;
    for (axis = 0; axis < PLAIT_NAXES; axis++)
        *config_size(s->config, axis) = layout->size[axis];
    dp = layout->size[PLAIT_DP];
    if (t->global_batch % ((int64_t)dp * t->micro_batch))
        return plait_errorf(err,
                            "train.global_batch %d is not a multiple of dp %d "
                            "* train.micro_batch %d",
                            t->global_batch, dp, t->micro_batch);
    return 0;
}

/* -- life ---------------------------------------------------------------- */

int plait_session_open(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    struct plait_layout layout;
    int planned;

    memset(s, 0, sizeof(*s));
    planned = plait_launch_decode(&s->launch, NULL, NULL, err);
    if (planned < 0)
        return -1;
    s->planned = planned;
    if (open_world(s, args, err) < 0 || read_config(s, args, err) < 0)
        return -1;
    if (plait_agree(s->world, resolve_layout(s, &layout, err), err) < 0)
        return -1;
    s->par = plait_parallel_create(s->ops, s->dev, s->world, &layout, err);
    return plait_agree(s->world, s->par ? 0 : -1, err);
}

void plait_session_close(struct plait_session *s)
{
    plait_parallel_destroy(s->par);
    plait_config_destroy(s->config);
    plait_comm_destroy(s->world);
    if (s->dev)
        s->ops->device_destroy(s->dev);
}
