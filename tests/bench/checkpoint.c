/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading a checkpoint of one rank, next to dd and to a cold read of
 * as many bytes on the same disk: DIR ROUNDS MB... */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/optim_job.h"
#include "kernels/kernels.h"
#include "runtime/checkpoint/checkpoint.h"
#include "topology/base/clock.h"

enum { ROUNDS_MOST = 32, HIDDEN = 512 };

enum part { DD, SAVE, BESIDE, HELD, COLD, LOAD, NPARTS };

static const struct {
    const char *what;
    enum part against;
} parts[NPARTS] = {
    [DD] = {"dd conv=fsync", DD},
    [SAVE] = {"a save that is waited for", DD},
    [BESIDE] = {"a save beside training, until it is in place", DD},
    [HELD] = {"of that, training is held up by", DD},
    [COLD] = {"dd of a file that is not in memory", COLD},
    [LOAD] = {"a checkpoint that is not in memory, loaded", COLD},
};

struct bench {
    const char *dir;
    char memory[64]; /* a file in memory */
    struct optim_job job;
    struct plait_saver *saver, *beside;
    double bytes; /* of the checkpoint's file */
    double seconds[NPARTS][ROUNDS_MOST], busy[NPARTS][ROUNDS_MOST];
    int rounds;
};

/* Wall-clock seconds, and processor seconds. */
struct span {
    double wall, busy;
};

static double of_who(int who)
{
    struct rusage u;

    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double now_busy(void)
{
    return of_who(RUSAGE_SELF) + of_who(RUSAGE_CHILDREN);
}

static struct span begin_span(void)
{
    return (struct span){plait_clock_now(), now_busy()};
}

static void end_span(struct bench *b, enum part part, int round,
                     struct span begin)
{
    b->seconds[part][round] = plait_clock_now() - begin.wall;
    b->busy[part][round] = now_busy() - begin.busy;
}

__attribute__((format(printf, 1, 2))) static int run(const char *fmt, ...)
{
    char command[8192];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    return system(command) == 0 ? 0 : -1;
}

/* A model whose weights and moments take about so many bytes. */
static struct plait_job_config *make_config(double bytes,
                                            struct plait_error *err)
{
    int layers = (int)(bytes / (12.0 * 12 * HIDDEN * HIDDEN) + 0.5);
    char text[512];

    snprintf(
        text, sizeof(text),
        "model: {layers: %d, hidden: %d, heads: 8, vocab: 257, "
        "seq_len: 16}\ntrain: {steps: 1, global_batch: 1, micro_batch: 1}\n",
        layers < 1 ? 1 : layers, HIDDEN);
    return plait_job_config_parse("bench", text, strlen(text), NULL, 0, err);
}

static int open_bench(struct bench *b, double bytes, struct plait_error *err)
{
    char path[4096];
    bool opened = optim_job_open(&b->job, make_config(bytes, err),
                                 plait_ops_cpu(), 0, 1, err) == 0;

    if (!opened)
        return -1;
    snprintf(path, sizeof(path), "%s/saves", b->dir);
    b->saver =
        plait_saver_create(path, 1, false, b->job.model, b->job.optim, err);
    snprintf(path, sizeof(path), "%s/beside", b->dir);
    b->beside =
        plait_saver_create(path, 1, true, b->job.model, b->job.optim, err);
    return b->saver && b->beside ? 0 : -1;
}

static void close_bench(struct bench *b)
{
    plait_saver_destroy(b->saver);
    plait_saver_destroy(b->beside);
    optim_job_close(&b->job);
    run("rm -rf '%s/saves' '%s/beside' '%s/dd' '%s'", b->dir, b->dir, b->dir,
        b->memory);
}

/* Drops a file's synced pages from the page cache. */
static double drop_pages(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st = {.st_size = 0};

    if (fd < 0)
        return 0;
    fstat(fd, &st);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return (double)st.st_size;
}

/* dd writes the checkpoint's bytes, as some disks treat zeros specially. */
static int time_dd(struct bench *b, int round, struct plait_error *err)
{
    struct span begin;

    if (round == 0 && run("cp '%s/saves/latest/rank-00000.safetensors' '%s'",
                          b->dir, b->memory) < 0)
        return plait_errorf(err, "%s: no room", b->memory);
    begin = begin_span();
    if (run("dd if='%s' of='%s/dd' bs=4M conv=fsync status=none", b->memory,
            b->dir) < 0)
        return plait_errorf(err, "dd failed");
    end_span(b, DD, round, begin);
    return 0;
}

/* Saves like a run does between its steps. */
static int time_beside(struct bench *b, int round, struct plait_error *err)
{
    struct plait_checkpoint_info info = {.step = round + 1};
    struct span begin = begin_span(), from = begin;
    char path[4096];
    double held, busy;

    if (plait_saver_start(b->beside, &info, err) < 0)
        return -1;
    held = plait_clock_now() - from.wall;
    busy = now_busy() - from.busy;
    snprintf(path, sizeof(path), "%s/beside/step-%08d/manifest.json", b->dir,
             round + 1);
    while (access(path, F_OK) < 0) {
        usleep(2000);
        from.wall = plait_clock_now();
        if (plait_saver_poll(b->beside, err) < 0)
            return -1;
        held += plait_clock_now() - from.wall;
    }
    end_span(b, BESIDE, round, begin);
    b->seconds[HELD][round] = held;
    b->busy[HELD][round] = busy;
    return plait_saver_finish(b->beside, err);
}

static int time_writes(struct bench *b, int round, struct plait_error *err)
{
    struct plait_checkpoint_info info = {.step = round + 1};
    struct span begin = begin_span();
    char path[4096];

    if (plait_saver_save(b->saver, &info, err) < 0)
        return -1;
    end_span(b, SAVE, round, begin);
    snprintf(path, sizeof(path), "%s/saves/latest/rank-00000.safetensors",
             b->dir);
    b->bytes = drop_pages(path);
    if (time_dd(b, round, err) < 0)
        return -1;
    return time_beside(b, round, err);
}

static int time_reads(struct bench *b, int round, struct plait_error *err)
{
    struct plait_checkpoint_info info;
    struct span begin;
    char path[4096];

    snprintf(path, sizeof(path), "%s/dd", b->dir);
    drop_pages(path);
    begin = begin_span();
    if (run("dd if='%s' of=/dev/null bs=4M status=none", path) < 0)
        return plait_errorf(err, "dd failed");
    end_span(b, COLD, round, begin);
    unlink(path);
    snprintf(path, sizeof(path), "%s/saves/step-%08d/rank-00000.safetensors",
             b->dir, round + 1);
    drop_pages(path);
    *strrchr(path, '/') = '\0';
    begin = begin_span();
    if (plait_checkpoint_load(path, NULL, &info, b->job.optim, err) < 0)
        return -1;
    end_span(b, LOAD, round, begin);
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Ratios are medians over rounds of both, as a disk's speed varies. */
static void report(struct bench *b)
{
    double ratio[NPARTS][ROUNDS_MOST], s;
    int i, k;

    for (i = 0; i < NPARTS; i++)
        for (k = 0; k < b->rounds; k++)
            ratio[i][k] = b->seconds[parts[i].against][k] / b->seconds[i][k];
    for (i = 0; i < NPARTS; i++) {
        s = median(b->seconds[i], b->rounds);
        printf("| %.0f MB | %s | %.3g | %.3g | %.3g | %.2f |\n", b->bytes / 1e6,
               parts[i].what, s, median(b->busy[i], b->rounds),
               b->bytes / s / 1e9, median(ratio[i], b->rounds));
    }
    fflush(stdout);
}

static int run_size(struct bench *b, double bytes)
{
    struct plait_error err = {""};
    int rc = open_bench(b, bytes, &err), round;

    for (round = 0; round < b->rounds && rc == 0; round++) {
        rc = time_writes(b, round, &err);
        if (rc == 0)
            rc = time_reads(b, round, &err);
    }
    if (rc == 0)
        report(b);
    else
        fprintf(stderr, "plait-bench-checkpoint: %s\n", err.text);
    if (b->beside)
        close_bench(b);
    return rc;
}

int main(int argc, char **argv)
{
    struct bench b = {.dir = argc > 1 ? argv[1] : NULL};
    double load = 0;
    int i;

    if (argc < 4 || (b.rounds = atoi(argv[2])) < 1 || b.rounds > ROUNDS_MOST) {
        fprintf(stderr, "usage: plait-bench-checkpoint DIR ROUNDS MB...\n");
        return 2;
    }
    snprintf(b.memory, sizeof(b.memory), "/dev/shm/plait-bench-%d",
             (int)getpid());
    getloadavg(&load, 1);
    printf("Load %.0f, %ld processors, %d rounds\n\n"
           "| State | What | Seconds | Of processors | GB/s | Of dd's rate |\n"
           "|---|---|---|---|---|---|\n",
           load, sysconf(_SC_NPROCESSORS_ONLN), b.rounds);
    for (i = 3; i < argc; i++)
        if (run_size(&b, 1e6 * atof(argv[i])) < 0)
            return 1;
    return 0;
}
