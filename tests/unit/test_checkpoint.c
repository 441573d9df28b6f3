/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model_util.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/piece.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/optim/optim.h"
#include "tap.h"

/* Alone: files, errors, geometry. Under mpirun -n 8 (checkpoint-mpi.sh):
 * every layout reads what every other wrote. */

static struct plait_comm *world;
static int rank, size;
static char dir[64] = "/tmp/plait-checkpoint-XXXXXX";

/* A disk that is as slow as a test wants it: it syncs nothing while the gate
 * is shut. */
static atomic_bool gate_shut;

int fsync(int fd)
{
    while (atomic_load(&gate_shut))
        usleep(1000);
    return (int)syscall(SYS_fsync, fd);
}

/* A model in a layout; ranks outside of it have no model. */
struct job {
    struct plait_config config;
    struct plait_device *dev;
    struct plait_comm *comm;
    struct plait_parallel *par;
    struct plait_model *model;
    struct plait_optim *optim;
};

static void stop(struct job *job)
{
    plait_optim_destroy(job->optim);
    plait_model_destroy(job->model);
    plait_parallel_destroy(job->par);
    if (job->dev)
        plait_ops_ref()->device_destroy(job->dev);
    if (job->comm != world)
        plait_comm_destroy(job->comm);
}

static int start(struct job *job, enum plait_family family, int layers, int tp,
                 int pp, int dp, int zero)
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
    if (plait_comm_split(world, inside ? 0 : -1, rank, "job", &job->comm,
                         &err) < 0)
        return -1;
    if (!inside)
        return 0;
    job->dev = plait_ops_ref()->device_create(0, 1);
    job->par = plait_parallel_create(plait_ops_ref(), job->dev, job->comm,
                                     &layout, &err);
    if (job->par)
        job->model = plait_model_create(&job->config, job->par, &err);
    if (job->model)
        job->optim = plait_optim_create(job->model, &err);
    if (!job->optim)
        diag("rank %d: %s", rank, err.text);
    return job->optim ? 1 : -1;
}

/* What element (row, column) of a whole tensor has, as master, m or v. */
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

/* The slice's elements in the whole tensor's coordinates; padding is 0. */
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

/* On the CPU device memory is memory. */
static float *data_of(const struct plait_optim_slice *s, int which)
{
    return which == 0 ? s->master : which == 1 ? s->m : s->v;
}

static void fill(struct job *job, float wrong)
{
    const struct plait_optim_slice *s;
    int n = plait_optim_slices(job->optim, &s), i, k;
    size_t j;

    for (i = 0; i < n; i++)
        for (k = 0; k < 3; k++)
            for (j = 0; j < s[i].count; j++)
                data_of(&s[i], k)[j] = wrong ? wrong : want(&s[i], k, j);
}

static int is_filled(struct job *job)
{
    const struct plait_optim_slice *s;
    int n = plait_optim_slices(job->optim, &s), i, k;
    size_t j;

    for (i = 0; i < n; i++)
        for (k = 0; k < 3; k++)
            for (j = 0; j < s[i].count; j++)
                if (data_of(&s[i], k)[j] != want(&s[i], k, j)) {
                    diag("rank %d: %s, %d, element %zu: %g, not %g", rank,
                         s[i].tensor->name, k, j, data_of(&s[i], k)[j],
                         want(&s[i], k, j));
                    return 0;
                }
    return n > 0;
}

static int save(struct job *job, int64_t step, int keep,
                struct plait_error *err)
{
    struct plait_checkpoint_info info = {.step = step, .tokens = step * 100};

    return plait_checkpoint_save(dir, keep, &info, job->model, job->optim, err);
}

static struct plait_saver *saver(struct job *job, const char *where)
{
    struct plait_error err = {""};
    struct plait_saver *s = plait_saver_create(where, 0, true, job->model,
                                               job->optim, &err);

    if (!s)
        diag("rank %d: %s", rank, err.text);
    return s;
}

static int start_save(struct plait_saver *s, int64_t step,
                      struct plait_error *err)
{
    struct plait_checkpoint_info info = {.step = step, .tokens = step * 100};

    return plait_saver_start(s, &info, err);
}

/* As a run does between its steps: until there is an outcome. */
static int poll_until(struct plait_saver *s, const char *path,
                      struct plait_error *err)
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

/* -- many ranks ---------------------------------------------------------- */

static const int layouts[][4] = {
    {1, 1, 1, 0}, {2, 2, 2, 0}, {4, 2, 1, 0}, {1, 4, 2, 1}, {2, 1, 4, 2},
    {1, 1, 8, 3}, {2, 2, 1, 0}, {4, 1, 2, 1}, {1, 2, 3, 1},
};
#define NLAYOUTS (int)(sizeof(layouts) / sizeof(layouts[0]))

static int save_in(enum plait_family family, int i, int64_t step)
{
    const int *l = layouts[i];
    struct plait_error err = {""};
    struct job job;
    int ret = start(&job, family, 4, l[0], l[1], l[2], l[3]);

    if (ret == 1) {
        fill(&job, 0);
        if (save(&job, step, 0, &err) < 0) {
            diag("rank %d: %s", rank, err.text);
            ret = -1;
        }
    }
    stop(&job);
    return ret >= 0;
}

static int load_in(enum plait_family family, int i, const char *path)
{
    const int *l = layouts[i];
    struct plait_checkpoint_info info = {.step = 0, .tokens = 0};
    struct plait_error err = {""};
    struct job job;
    int ret = start(&job, family, 4, l[0], l[1], l[2], l[3]);

    if (ret == 1) {
        fill(&job, -1);
        if (plait_checkpoint_load(path, &info, job.model, job.optim, &err) <
                0 ||
            info.tokens != info.step * 100 || !is_filled(&job)) {
            diag("rank %d: %s", rank, err.text);
            ret = -1;
        }
    }
    stop(&job);
    return ret >= 0;
}

static void reshard(enum plait_family family)
{
    char path[128];
    double bad;
    int i, k;

    for (i = 0; i < NLAYOUTS; i++) {
        bad = !save_in(family, i, i);
        snprintf(path, sizeof(path), "%s/step-%08d", dir, i);
        plait_comm_barrier(world);
        for (k = 0; k < NLAYOUTS; k++)
            bad += !load_in(family, k, path);
        plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
        if (rank == 0)
            ok(bad == 0, "%s: tp %d pp %d dp %d zero %d, read in %d layouts",
               family == PLAIT_GPT2 ? "gpt2" : "llama", layouts[i][0],
               layouts[i][1], layouts[i][2], layouts[i][3], NLAYOUTS);
    }
}

/* One rank says why it failed, and no other says anything. */
static int one_says(const struct plait_error *err, const char *why)
{
    double say[2] = {strstr(err->text, why) != NULL, err->text[0] != '\0'};

    plait_comm_host_all_reduce(world, say, 2, PLAIT_SUM);
    return say[0] == 1 && say[1] == 1;
}

#define TOO_LARGE "rank-00003.safetensors: cannot write: File too"

/* One rank cannot write; all of them fail and nothing is left. */
static void one_fails(void)
{
    struct rlimit small = {4096, RLIM_INFINITY}, before;
    struct plait_error err = {""};
    struct job job;
    double bad;
    char path[128];

    start(&job, PLAIT_GPT2, 4, 2, 2, 2, 0);
    fill(&job, 0);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    if (rank == 3)
        setrlimit(RLIMIT_FSIZE, &small);
    bad = save(&job, 77, 0, &err) != -1 || errno != EFBIG;
    setrlimit(RLIMIT_FSIZE, &before);
    bad += !one_says(&err, TOO_LARGE);
    plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
    snprintf(path, sizeof(path), "%s/.step-00000077", dir);
    if (rank == 0)
        ok(bad == 0 && access(path, F_OK) < 0, "one rank fails, and says so");
    stop(&job);
}

/* Training changes everything while it is written. */
static int save_beside(int i, int64_t step, const char *path)
{
    const int *l = layouts[i];
    struct plait_error err = {""};
    struct plait_saver *s = NULL;
    struct job job;
    int ret = start(&job, PLAIT_LLAMA, 4, l[0], l[1], l[2], l[3]);

    fill(&job, 0);
    s = saver(&job, dir);
    atomic_store(&gate_shut, rank == 5);
    if (!s || start_save(s, step, &err) < 0)
        ret = -1;
    fill(&job, -1);
    if (ret > 0 && (plait_saver_poll(s, &err) < 0 || access(path, F_OK) == 0))
        ret = -1;
    plait_comm_barrier(world);
    atomic_store(&gate_shut, false);
    if (ret > 0 && poll_until(s, path, &err) != 0)
        ret = -1;
    if (ret < 0)
        diag("rank %d: %s", rank, err.text);
    plait_saver_destroy(s);
    stop(&job);
    return ret > 0;
}

static void beside(void)
{
    static const int in[] = {1, 4, 5};
    char path[128];
    double bad;
    int i, k;

    for (i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/step-%08d", dir, 40 + i);
        bad = !save_beside(in[i], 40 + i, path);
        for (k = 0; k < NLAYOUTS && bad == 0; k++)
            bad += !load_in(PLAIT_LLAMA, k, path);
        plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
        if (rank == 0)
            ok(bad == 0, "written beside training in layout %d", in[i]);
    }
}

/* One rank's disk is full while all go on; all learn of it. */
static void one_fails_beside(void)
{
    struct rlimit small = {4096, RLIM_INFINITY}, before;
    struct plait_error err = {""};
    struct plait_saver *s;
    struct job job;
    double bad;
    char path[128];

    start(&job, PLAIT_GPT2, 4, 2, 2, 2, 0);
    fill(&job, 0);
    s = saver(&job, dir);
    getrlimit(RLIMIT_FSIZE, &before);
    if (rank == 3)
        setrlimit(RLIMIT_FSIZE, &small);
    atomic_store(&gate_shut, rank == 1);
    bad = start_save(s, 78, &err) != 0;
    plait_comm_barrier(world);
    atomic_store(&gate_shut, false);
    snprintf(path, sizeof(path), "%s/step-00000078", dir);
    bad += poll_until(s, path, &err) != -1 || errno != EFBIG;
    setrlimit(RLIMIT_FSIZE, &before);
    bad += !one_says(&err, TOO_LARGE);
    bad += start_save(s, 79, &err) != 0 || plait_saver_finish(s, &err) != 0;
    plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
    snprintf(path, sizeof(path), "%s/.step-00000078", dir);
    if (rank == 0)
        ok(bad == 0 && access(path, F_OK) < 0,
           "one rank fails beside training, and the next save is good");
    plait_saver_destroy(s);
    stop(&job);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* All the memory there is in pieces of `bytes`, as a list. */
static void **take_memory(size_t bytes)
{
    struct rlimit none = {0, RLIM_INFINITY};
    void **taken = NULL, **more;

    setrlimit(RLIMIT_AS, &none);
    while ((more = malloc(bytes))) {
        *more = taken;
        taken = more;
    }
    return taken;
}

static void give_back(void **taken, const struct rlimit *before)
{
    void **next;

    setrlimit(RLIMIT_AS, before);
    for (; taken; taken = next) {
        next = *taken;
        free(taken);
    }
}

/* One rank gets no more memory in large pieces, and in not so large ones:
 * nobody waits for it for ever. */
static void one_starves(void)
{
    static const int large[] = {1 << 20, 1 << 14, 1 << 11};
    struct plait_error err;
    struct rlimit before;
    void **taken = NULL;
    struct job job;
    double bad;
    int i, ret;

    start(&job, PLAIT_GPT2, 4, 2, 2, 2, 0);
    fill(&job, 0);
    getrlimit(RLIMIT_AS, &before);
    for (i = 0; i < 3; i++) {
        err.text[0] = '\0';
        if (rank == 6)
            taken = take_memory(large[i]);
        ret = save(&job, 80 + i, 0, &err);
        if (rank == 6)
            give_back(taken, &before);
        bad = ret != -1;
        bad += !one_says(&err, "memory");
        bad += save(&job, 90 + i, 0, NULL) != 0;
        plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
        if (rank == 0)
            ok(bad == 0, "no memory of %d bytes on a rank", large[i]);
    }
    stop(&job);
}

/* -- one rank ------------------------------------------------------------ */

static char *in_dir(const char *name)
{
    static char path[2][160];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

static int load(struct job *job, const char *name, struct plait_error *err)
{
    struct plait_checkpoint_info info;

    err->text[0] = '\0';
    return plait_checkpoint_load(in_dir(name), &info, job->model, job->optim,
                                 err);
}

/* The newest below a step, or what was said instead. Good until the next. */
static const char *newest(const char *in, int64_t below, int64_t *step)
{
    static char text[512];
    struct plait_error err = {""};
    char *path = plait_checkpoint_newest(in, below, step, &err);

    snprintf(text, sizeof(text), "%s", path ? path : err.text);
    free(path);
    return text;
}

static void keeping(struct job *job)
{
    struct plait_error err = {""};
    int64_t step;

    ok(!*newest(in_dir("missing"), INT64_MAX, &step),
       "a missing directory has no checkpoint");
    ok(!!strstr(newest("/dev/null", INT64_MAX, &step), "Not a directory"),
       "%s", newest("/dev/null", INT64_MAX, &step));
    ok(save(job, 5, 2, &err) == 0 && save(job, 10, 2, &err) == 0 &&
           save(job, 100000000, 2, &err) == 0,
       "three saves %s", err.text);
    ok(access(in_dir("step-00000005"), F_OK) < 0 &&
           access(in_dir("step-00000010"), F_OK) == 0,
       "the newest two are kept");
    mkdir(in_dir("step-100000001"), 0777);
    mkdir(in_dir(".step-00000020"), 0777);
    mkdir(in_dir(".step-00000007.old"), 0777);
    mkdir(in_dir("step-best"), 0777);
    ok(!strcmp(newest(dir, INT64_MAX, &step), in_dir("step-100000001")) &&
           step == 100000001 &&
           !strcmp(newest(dir, step, &step), in_dir("step-100000000")) &&
           !strcmp(newest(dir, step, &step), in_dir("step-00000010")) &&
           !*newest(dir, step, &step),
       "from the newest to the oldest");
    ok(save(job, 20, 0, &err) == 0 &&
           access(in_dir(".step-00000020"), F_OK) < 0 &&
           access(in_dir(".step-00000007.old"), F_OK) < 0,
       "what unfinished ones left is removed %s", err.text);
    ok(save(job, 20, 0, &err) == 0 && load(job, "step-00000020", &err) == 0,
       "the same step again %s", err.text);
    unlink(in_dir("step-00000010/manifest.json"));
    ok(save(job, 15, 1, &err) == 0 &&
           access(in_dir("step-00000010"), F_OK) < 0 &&
           access(in_dir("step-00000020"), F_OK) == 0,
       "later ones do not count among the newest %s", err.text);
}

static void copy_checkpoint(const char *name)
{
    char command[512];

    snprintf(command, sizeof(command), "cp -r %s/step-00000020 %s/%s", dir, dir,
             name);
    if (system(command) != 0)
        abort();
}

static void damage(const char *file, long at, int change)
{
    FILE *f = fopen(in_dir(file), "r+");
    int c;

    if (!f || fseek(f, at, at < 0 ? SEEK_END : SEEK_SET) != 0)
        abort();
    c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(c ^ change, f);
    fclose(f);
}

static void damaged(struct job *job)
{
    struct plait_error err = {""};
    struct job other;
    struct stat st;

#define REFUSED(name, says)                                                    \
    ok(load(job, name, &err) == -1 && errno == EBADMSG &&                      \
           strstr(err.text, says),                                             \
       "%s", err.text)

    copy_checkpoint("bit");
    damage("bit/rank-00000.safetensors", -5, 1);
    REFUSED("bit", "rank-00000.safetensors: garbled: its checksum is");
    copy_checkpoint("cut");
    stat(in_dir("cut/rank-00000.safetensors"), &st);
    ok(truncate(in_dir("cut/rank-00000.safetensors"), st.st_size - 1) == 0,
       "cut");
    REFUSED("cut", "rank-00000.safetensors: truncated or changed:");
    copy_checkpoint("lost");
    unlink(in_dir("lost/rank-00000.safetensors"));
    REFUSED("lost", "rank-00000.safetensors: No such file");
    copy_checkpoint("manifest");
    damage("manifest/manifest.json", 1, 1);
    REFUSED("manifest", "manifest.json: garbled: line 1");
    copy_checkpoint("empty");
    ok(truncate(in_dir("empty/manifest.json"), 0) == 0, "empty");
    REFUSED("empty", "manifest.json: garbled");
    REFUSED("step-best", "no complete checkpoint");
    REFUSED("nowhere", "No such file or directory: no complete checkpoint");

    start(&other, PLAIT_LLAMA, 4, 1, 1, 1, 0);
    ok(load(&other, "step-00000020", &err) == -1 &&
           errno == EINVAL && strstr(err.text, "in this model"),
       "%s", err.text);
    stop(&other);
    start(&other, PLAIT_GPT2, 3, 1, 1, 1, 0);
    ok(load(&other, "step-00000020", &err) == -1 &&
           errno == EINVAL && strstr(err.text, "parameters, this one has"),
       "%s", err.text);
    stop(&other);
    start(&other, PLAIT_GPT2, 5, 1, 1, 1, 0);
    ok(load(&other, "step-00000020", &err) == -1 &&
           errno == EINVAL && strstr(err.text, "no tensor layers.4"),
       "%s", err.text);
    stop(&other);
}

static void wider_model(void)
{
    struct plait_error err = {""};
    struct job other;

    start(&other, PLAIT_GPT2, 4, 1, 1, 1, 0);
    plait_optim_destroy(other.optim);
    plait_model_destroy(other.model);
    other.config.model.vocab = 300;
    other.model = plait_model_create(&other.config, other.par, &err);
    other.optim = plait_optim_create(other.model, &err);
    ok(load(&other, "step-00000020", &err) == -1 &&
           strstr(err.text, "is [259, 48] there, [300, 48] in this model"),
       "%s", err.text);
    stop(&other);
}

/* No room: the old checkpoint stays, the new one leaves nothing. */
static void full_disk(struct job *job)
{
    struct rlimit small = {4096, RLIM_INFINITY}, before;
    struct plait_error err = {""};
    int64_t step;

    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    ok(save(job, 200000000, 1, &err) == -1 &&
           strstr(err.text, "cannot write: File too large"),
       "%s", err.text);
    setrlimit(RLIMIT_FSIZE, &before);
    ok(access(in_dir(".step-200000000"), F_OK) < 0 &&
           access(in_dir("step-200000000"), F_OK) < 0,
       "nothing is left of it");
    ok(!strcmp(newest(dir, 100000001, &step), in_dir("step-100000000")) &&
           access(in_dir("step-00000020"), F_OK) == 0,
       "the older ones are kept");
}

/* -- one rank, written beside training ----------------------------------- */

static int same_files(const char *a, const char *b)
{
    char command[512];

    snprintf(command, sizeof(command), "diff -r %s %s", a, b);
    return system(command) == 0;
}

static void until_there(const char *path)
{
    int i;

    for (i = 0; i < 10000 && access(path, F_OK) < 0; i++)
        usleep(1000);
}

static void equals_blocking(struct job *job)
{
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    const char *path = in_dir("aside/step-00000030");
    char there[160];

    snprintf(there, sizeof(there), "%s", path);
    fill(job, 0);
    ok(save(job, 30, 0, &err) == 0, "a blocking save %s", err.text);
    atomic_store(&gate_shut, true);
    ok(start_save(s, 30, &err) == 0, "a save begins %s", err.text);
    fill(job, -1);
    until_there(in_dir("aside/.step-00000030/rank-00000.safetensors"));
    ok(plait_saver_poll(s, &err) == 0 && access(there, F_OK) < 0,
       "training goes on; what is half written is hidden %s", err.text);
    atomic_store(&gate_shut, false);
    ok(poll_until(s, there, &err) == 0, "it comes into place %s", err.text);
    ok(same_files(in_dir("step-00000030"), there),
       "and is the blocking one, bit for bit");
    plait_saver_destroy(s);
    fill(job, 0);
}

static void *open_gate(void *unused)
{
    usleep(100000);
    atomic_store(&gate_shut, false);
    return unused;
}

static void one_after_the_other(struct job *job)
{
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    pthread_t thread;

    atomic_store(&gate_shut, true);
    ok(start_save(s, 40, &err) == 0, "a first save %s", err.text);
    pthread_create(&thread, NULL, open_gate, NULL);
    ok(start_save(s, 50, &err) == 0 &&
           access(in_dir("aside/step-00000040"), F_OK) == 0,
       "a second one waits for it %s", err.text);
    pthread_join(thread, NULL);
    ok(plait_saver_finish(s, &err) == 0 && plait_saver_poll(s, &err) == 0 &&
           load(job, "aside/step-00000050", &err) == 0,
       "and comes into place at the end %s", err.text);
    plait_saver_destroy(s);
}

static void killed(struct job *job)
{
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    int64_t step = 0;
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        atomic_store(&gate_shut, true);
        start_save(s, 60, &err);
        until_there(in_dir("aside/.step-00000060/rank-00000.safetensors"));
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, &status, 0);
    newest(in_dir("aside"), INT64_MAX, &step);
    ok(WIFSIGNALED(status) && step == 50 &&
           load(job, "aside/step-00000050", &err) == 0,
       "killed in the middle: the one before is there %s", err.text);
    ok(start_save(s, 70, &err) == 0 && plait_saver_finish(s, &err) == 0 &&
           access(in_dir("aside/.step-00000060"), F_OK) < 0,
       "and what it left goes in the next save %s", err.text);
    plait_saver_destroy(s);
}

static void full_disk_beside(struct job *job)
{
    struct rlimit small = {4096, RLIM_INFINITY}, before;
    struct plait_error err = {""};
    struct plait_saver *s = saver(job, in_dir("aside"));
    int64_t step = 0;

    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &small);
    ok(start_save(s, 80, &err) == 0, "the disk is full %s", err.text);
    ok(poll_until(s, in_dir("aside/step-00000080"), &err) == -1 &&
           strstr(err.text, "cannot write: File too large"),
       "%s", err.text);
    setrlimit(RLIMIT_FSIZE, &before);
    newest(in_dir("aside"), INT64_MAX, &step);
    ok(step == 70 && access(in_dir("aside/.step-00000080"), F_OK) < 0 &&
           plait_saver_poll(s, &err) == 0,
       "nothing is left of it");
    plait_saver_destroy(s);
}

/* Any byte of a head may be wrong: parsed or refused, never out of bounds
 * (which the sanitizers see). */
static void garbled_heads(void)
{
    struct plait_piece piece = {"a.b", {6, 4}, {2, 0}, {3, 4}, 1, 7};
    struct plait_stored *stored = NULL;
    struct plait_error err;
    unsigned char *head, *file;
    size_t n, i;
    int count, change, parsed = 0, refused = 0;

    head = plait_safetensors_encode(&piece, 1, &n);
    file = calloc(1, n + 28);
    memcpy(file, head, n);
    ok(plait_safetensors_parse("f", file, n + 28, &stored, &count, &err) == 0 &&
           count == 1 && !memcmp(&stored->piece, &piece, sizeof(piece)) &&
           stored->offset == n,
       "a head is read back");
    free(stored);
    for (i = 0; i < n; i++) {
        for (change = 1; change < 256; change++) {
            file[i] ^= (unsigned char)change;
            if (plait_safetensors_parse("f", file, n + 28, &stored, &count,
                                        &err) == 0) {
                parsed++;
                free(stored);
            } else {
                refused++;
            }
            file[i] ^= (unsigned char)change;
        }
    }
    for (i = 0; i < n + 28; i++)
        if (plait_safetensors_parse("f", file, i, &stored, &count, &err) == 0)
            break;
    ok(refused > parsed && i == n + 28,
       "%d garbled heads refused, %d still made sense, none cut does", refused,
       parsed);
    free(head);
    free(file);
}

static void pieces(void)
{
    /* A 5 x 6 tensor; columns 2 .. 4 of rows 1 .. 3, elements 1 .. 7 of
     * them, into rows 2 .. 5 (one of them padding), elements 3 on. */
    struct plait_piece from = {"t", {5, 6}, {1, 2}, {3, 3}, 1, 7};
    struct plait_piece to = {"t", {5, 6}, {2, 0}, {4, 6}, 3, 20};
    float a[7], b[20], sum = 0;
    int i;

    for (i = 0; i < 7; i++)
        a[i] = (float)(1 << i);
    memset(b, 0, sizeof(b));
    ok(plait_piece_inside(&from) == 7 && plait_piece_inside(&to) == 15,
       "elements that are no padding");
    /* from holds (1,3) (1,4) (2,2) (2,3) (2,4) (3,2) (3,3). */
    ok(plait_piece_copy(&to, b, &from, a) == 4, "what two pieces share");
    for (i = 0; i < 20; i++)
        sum += b[i];
    ok(b[0] == a[3] && b[1] == a[4] && b[5] == a[5] && b[6] == a[6] &&
           sum == a[3] + a[4] + a[5] + a[6],
       "each element in its place");
}

static void alone(void)
{
    struct job job;

    pieces();
    garbled_heads();
    start(&job, PLAIT_GPT2, 4, 1, 1, 1, 0);
    fill(&job, 0);
    keeping(&job);
    damaged(&job);
    wider_model();
    full_disk(&job);
    fill(&job, -1);
    {
        struct plait_error err;

        ok(load(&job, "step-00000020", &err) == 0 && is_filled(&job),
           "and they read back %s", err.text);
    }
    equals_blocking(&job);
    one_after_the_other(&job);
    killed(&job);
    full_disk_beside(&job);
    stop(&job);
}

int main(int argc, char **argv)
{
    int mpi = argc > 1 && !strcmp(argv[1], "mpi");
    struct plait_error err;
    char command[128];

    world = plait_comm_create(mpi ? PLAIT_COMM_MPI : PLAIT_COMM_SELF, NULL,
                              NULL, NULL, &err);
    if (!world) {
        ok(0, "create: %s", err.text);
        return done_testing();
    }
    rank = plait_comm_rank(world);
    size = plait_comm_size(world);
    if (rank == 0 && !mkdtemp(dir))
        return 1;
    plait_comm_host_broadcast(world, dir, sizeof(dir), 0);
    if (size == 8) {
        reshard(PLAIT_GPT2);
        reshard(PLAIT_LLAMA);
        beside();
        one_fails();
        one_fails_beside();
        if (!SANITIZED)
            one_starves();
    } else {
        alone();
    }
    plait_comm_barrier(world);
    if (rank == 0) {
        snprintf(command, sizeof(command), "rm -rf '%s'", dir);
        ok(system(command) == 0, "cleaned up");
    }
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
