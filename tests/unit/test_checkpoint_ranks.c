/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "checkpoint_util.h"
#include "runtime/checkpoint/replica_check.h"
#include "tap.h"

/* Under mpirun -n 8 (checkpoint-mpi.sh): every layout reads what every other
 * one wrote, and a failure on one rank fails on all. */

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
    int rc = start(&job, family, 4, l[0], l[1], l[2], l[3]);

    if (rc == 1) {
        fill(&job, 0);
        if (save(&job, step, 0, &err) < 0) {
            diag("rank %d: %s", rank, err.text);
            rc = -1;
        }
    }
    stop(&job);
    return rc >= 0;
}

static int load_in(enum plait_family family, int i, const char *path)
{
    const int *l = layouts[i];
    struct plait_checkpoint_info info = {.step = 0, .tokens = 0};
    struct plait_error err = {""};
    struct job job;
    int rc = start(&job, family, 4, l[0], l[1], l[2], l[3]);

    if (rc == 1) {
        fill(&job, -1);
        if (plait_checkpoint_load(path, NULL, &info, job.optim, &err) < 0 ||
            info.tokens != info.step * 100 || !is_filled(&job)) {
            diag("rank %d: %s", rank, err.text);
            rc = -1;
        }
        fill(&job, -1);
        if (plait_checkpoint_load_weights(
                path, NULL, &info, plait_optim_shards(job.optim), &err) < 0 ||
            !has_weights_alone(&job, -1)) {
            diag("rank %d: weights alone: %s", rank, err.text);
            rc = -1;
        }
    }
    stop(&job);
    return rc >= 0;
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

/* Whether one rank reports the reason, and no other rank anything. */
static int one_says(const struct plait_error *err, const char *why)
{
    double say[2] = {strstr(err->text, why) != NULL, err->text[0] != '\0'};

    plait_comm_host_all_reduce(world, say, 2, PLAIT_SUM);
    return say[0] == 1 && say[1] == 1;
}

#define TOO_LARGE "rank-00003.safetensors: cannot write: File too"

/* One rank cannot write: all fail, and nothing is left. */
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

/* Changes all training state while it is being written. */
static int save_beside(int i, int64_t step, const char *path)
{
    const int *l = layouts[i];
    struct plait_error err = {""};
    struct plait_saver *s = NULL;
    struct job job;
    int rc = start(&job, PLAIT_LLAMA, 4, l[0], l[1], l[2], l[3]);

    fill(&job, 0);
    s = saver(&job, dir);
    atomic_store(&gate_shut, rank == 5);
    if (!s || start_save(s, step, &err) < 0)
        rc = -1;
    fill(&job, -1);
    if (rc > 0 && (plait_saver_poll(s, &err) < 0 || access(path, F_OK) == 0))
        rc = -1;
    plait_comm_barrier(world);
    atomic_store(&gate_shut, false);
    if (rc > 0 && poll_until(s, path, &err) != 0)
        rc = -1;
    if (rc < 0)
        diag("rank %d: %s", rank, err.text);
    plait_saver_destroy(s);
    stop(&job);
    return rc > 0;
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

/* One rank's disk is full while training goes on; all ranks report failure. */
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

/* Takes all available memory in pieces of `bytes`; returns them as a list. */
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

/* One rank gets no more memory, at first for large pieces, later also for
 * smaller ones: no other rank may wait for it for ever. */
static void one_starves(void)
{
    static const int large[] = {1 << 20, 1 << 14, 1 << 11};
    struct plait_error err;
    struct rlimit before;
    void **taken = NULL;
    struct job job;
    double bad;
    int i, rc;

    start(&job, PLAIT_GPT2, 4, 2, 2, 2, 0);
    fill(&job, 0);
    getrlimit(RLIMIT_AS, &before);
    for (i = 0; i < 3; i++) {
        err.text[0] = '\0';
        if (rank == 6)
            taken = take_memory(large[i]);
        rc = save(&job, 80 + i, 0, &err);
        if (rank == 6)
            give_back(taken, &before);
        bad = rc != -1;
        bad += !one_says(&err, "memory");
        bad += save(&job, 90 + i, 0, NULL) != 0;
        plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
        if (rank == 0)
            ok(bad == 0, "no memory of %d bytes on a rank", large[i]);
    }
    stop(&job);
}

/* A slice of this rank that is split over tp ranks or, if `split` is false, the
 * same on all of them. */
static const struct plait_optim_slice *find_slice(struct job *job, bool split)
{
    const struct plait_optim_slice *s;
    int n = plait_optim_slices(job->optim, &s), i;

    for (i = 0; i < n; i++)
        if (s[i].count > 20 && (s[i].tensor->tp_axis >= 0) == split)
            return &s[i];
    return NULL;
}

/* One bit of a rank's memory changes; the report must name that rank. */
static void one_parts(int tp, int pp, int dp, int zero, int guilty, bool split,
                      const char *says)
{
    const struct plait_optim_slice *s;
    struct plait_replica_check *check;
    struct plait_error err = {""};
    unsigned char *byte;
    struct job job;
    double bad = 0;
    int rc = start(&job, PLAIT_GPT2, 4, tp, pp, dp, zero);

    if (rc == 1) {
        fill(&job, 0);
        check = plait_replica_check_create(job.model, job.optim, &err);
        bad += !check || plait_replica_check_run(check, 3, &err) != 0;
        s = find_slice(&job, split);
        byte = (unsigned char *)(guilty % 2 ? s->state[1] : s->master) + 79;
        *byte ^= rank == guilty ? 0x80 : 0; /* the sign of number 19 */
        bad +=
            plait_replica_check_run(check, 4, &err) != -1 || errno != EUCLEAN;
        bad += rank == 0 ? !strstr(err.text, says) : err.text[0] != '\0';
        *byte ^= rank == guilty ? 0x80 : 0;
        bad += plait_replica_check_run(check, 5, &err) != 0;
        plait_replica_check_destroy(check);
        if (bad > 0)
            diag("rank %d: %s", rank, err.text);
    }
    bad += rc < 0;
    stop(&job);
    plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
    if (rank == 0)
        ok(bad == 0, "tp %d pp %d dp %d zero %d: %s", tp, pp, dp, zero, says);
}

static void replicas(void)
{
    one_parts(2, 1, 4, 0, 5, true, "after step 4 rank 5 (");
    one_parts(2, 1, 3, 0, 0, true, "after step 4 rank 0 (");
    one_parts(4, 1, 2, 1, 2, false, "after step 4 rank 2 (");
    one_parts(2, 2, 2, 0, 6, true, "the 2 ranks that hold the same as rank");
}

int main(void)
{
    if (test_open(1) < 0)
        return 1;
    signal(SIGXFSZ, SIG_IGN);
    if (all_tier())
        reshard(PLAIT_GPT2);
    reshard(PLAIT_LLAMA);
    beside();
    one_fails();
    one_fails_beside();
    replicas();
    if (!SANITIZED)
        one_starves();
    if (test_close() < 0)
        return 1;
    return rank == 0 ? done_testing() : 0;
}
