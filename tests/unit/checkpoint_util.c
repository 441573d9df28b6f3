/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "checkpoint_util.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "tap.h"
#include "temp_path.h"

struct plait_comm *world;
int rank, size;
char dir[TEMP_PATH];

int test_open(int mpi)
{
    struct plait_error err;

    world = plait_comm_create(mpi ? PLAIT_COMM_MPI : PLAIT_COMM_SELF, NULL,
                              NULL, NULL, &err);
    if (!world) {
        diag("no world: %s", err.text);
        return -1;
    }
    rank = plait_comm_rank(world);
    size = plait_comm_size(world);
    if (rank == 0 && !mkdtemp(temp_path(dir, "checkpoint")))
        return -1;
    plait_comm_host_broadcast(world, dir, sizeof(dir), 0);
    return 0;
}

int test_close(void)
{
    char command[160];
    int rc = 0;

    plait_comm_barrier(world);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    if (rank == 0 && system(command) != 0)
        rc = -1;
    plait_comm_destroy(world);
    return rc;
}

char *in_dir(const char *name)
{
    static char path[2][256];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

void until_there(const char *path)
{
    int i;

    for (i = 0; i < 10000 && access(path, F_OK) < 0; i++)
        usleep(1000);
}

atomic_bool gate_shut;

int fsync(int fd)
{
    while (atomic_load(&gate_shut))
        usleep(1000);
    return (int)syscall(SYS_fsync, fd);
}

void stop(struct job *job)
{
    plait_optim_destroy(job->optim);
    plait_model_destroy(job->model);
    plait_mesh_destroy(job->mesh);
    if (job->dev)
        plait_ops_ref()->device_destroy(job->dev);
    if (job->comm != world)
        plait_comm_destroy(job->comm);
}

int start(struct job *job, enum plait_family family, int layers, int tp, int pp,
          int dp, int zero)
{
    struct plait_layout layout;
    struct plait_error err = {""};
    int inside = rank < tp * pp * dp;

    memset(job, 0, sizeof(*job));
    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = tp;
    layout.size[PLAIT_PP] = pp;
    layout.size[PLAIT_DP] = dp;
    small_config(&job->config, family);
    job->config.model.layers = layers;
    job->config.parallel.zero = zero;
    job->config.parallel.bucket_mib = 1;
    if (plait_comm_split(world,
                         &(struct plait_split){.color = inside ? 0 : -1,
                                               .key = rank,
                                               .name = "job"},
                         &job->comm, &err) < 0)
        return -1;
    if (!inside)
        return 0;
    job->dev = plait_ops_ref()->device_create(0, 1);
    job->mesh =
        plait_mesh_create(plait_ops_ref(), job->dev, job->comm, &layout, &err);
    if (job->mesh)
        job->model = plait_model_create(&job->config, job->mesh, &err);
    if (job->model)
        job->optim = plait_optim_create(job->model, &err);
    if (!job->optim)
        diag("rank %d: %s", rank, err.text);
    return job->optim ? 1 : -1;
}

/* The value of element (row, column) of a whole tensor in its master weights, m
 * or v. */
static float truth(const struct plait_tensor *t, int which, size_t row,
                   size_t column)
{
    unsigned hash = 7;
    const char *c;

    for (c = t->name; *c; c++)
        hash = hash * 31 + (unsigned char)*c;
    hash = (hash ^ (unsigned)(row * 1009 + column)) * 2654435761u;
    return (float)(hash >> 8) + (float)which * 0x1p26f;
}

/* The value of element i of a slice, by its place in the whole tensor; padding
 * is 0. */
static float want(const struct plait_optim_slice *s, int which, size_t i)
{
    const struct plait_tensor *t = s->tensor;
    size_t columns = t->ndim == 1 ? t->local_shape[0] : t->local_shape[1];
    size_t row = (s->first + i) / columns, column = (s->first + i) % columns;
    size_t *axis = t->ndim == 1 || t->tp_axis == 1 ? &column : &row;

    if (t->tp_axis >= 0)
        *axis += t->local_first;
    if (t->ndim == 1 ? column >= t->shape[0]
                     : row >= t->shape[0] || column >= t->shape[1])
        return 0;
    return truth(t, which, row, column);
}

/* The CPU's device memory can be read by the host. */
static float *data_of(const struct plait_optim_slice *s, int which)
{
    return which == 0 ? s->master : s->state[which - 1];
}

void fill(struct job *job, float wrong)
{
    const struct plait_optim_slice *s;
    int n = plait_optim_slices(job->optim, &s), i, k;
    size_t j;

    for (i = 0; i < n; i++)
        for (k = 0; k < 3; k++)
            for (j = 0; j < s[i].count; j++)
                data_of(&s[i], k)[j] = wrong ? wrong : want(&s[i], k, j);
}

/* Whether the first `filled` of master, m and v are as fill() made them, and
 * the others all `wrong`. */
static int compare_slices(struct job *job, int filled, float wrong)
{
    const struct plait_optim_slice *s;
    int n = plait_optim_slices(job->optim, &s), i, k;
    size_t j;

    for (i = 0; i < n; i++)
        for (k = 0; k < 3; k++)
            for (j = 0; j < s[i].count; j++) {
                float w = k < filled ? want(&s[i], k, j) : wrong;

                if (data_of(&s[i], k)[j] == w)
                    continue;
                diag("rank %d: %s, %d, element %zu: %g, not %g", rank,
                     s[i].tensor->name, k, j, data_of(&s[i], k)[j], w);
                return 0;
            }
    return n > 0;
}

int is_filled(struct job *job)
{
    return compare_slices(job, 3, 0);
}

int has_weights_alone(struct job *job, float wrong)
{
    return compare_slices(job, 1, wrong);
}

int save(struct job *job, int64_t step, int keep, struct plait_error *err)
{
    struct plait_checkpoint_info info = {.step = step, .tokens = step * 100};

    struct plait_saver *s =
        plait_saver_create(dir, keep, false, job->model, job->optim, err);
    int rc = s ? plait_saver_save(s, &info, err) : -1;

    plait_saver_destroy(s);
    return rc;
}

struct plait_saver *saver(struct job *job, const char *where)
{
    struct plait_error err = {""};
    struct plait_saver *s =
        plait_saver_create(where, 0, true, job->model, job->optim, &err);

    if (!s)
        diag("rank %d: %s", rank, err.text);
    return s;
}

int start_save(struct plait_saver *s, int64_t step, struct plait_error *err)
{
    struct plait_checkpoint_info info = {.step = step, .tokens = step * 100};

    return plait_saver_start(s, &info, err);
}

int poll_until(struct plait_saver *s, const char *path, struct plait_error *err)
{
    double seen;
    int i;

    for (i = 0; i < 10000; i++) {
        if (plait_saver_poll(s, err) < 0)
            return -1;
        seen = rank == 0 && access(path, F_OK) == 0;
        plait_comm_host_broadcast(world, &seen, sizeof(seen), 0);
        if (seen)
            return 0;
        usleep(1000);
    }
    return 1;
}

int load_anyway(struct job *job, const char *name, const char *keys,
                struct plait_error *err)
{
    struct plait_checkpoint_info info;

    err->text[0] = '\0';
    return plait_checkpoint_load(in_dir(name), keys, &info, job->optim, err);
}

int load(struct job *job, const char *name, struct plait_error *err)
{
    return load_anyway(job, name, NULL, err);
}

const char *newest(const char *in, int64_t below, int64_t *step)
{
    static char text[512];
    struct plait_error err = {""};
    int passed;
    char *path = plait_checkpoint_newest(in, below, step, &passed, &err);

    snprintf(text, sizeof(text), "%s", path ? path : err.text);
    free(path);
    return text;
}
