/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/probe/gpu_check.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "runtime/comm/world.h"
#include "runtime/comm/world_device.h"
#include "runtime/mesh/mesh.h"
#include "topology/base/clock.h"

/* Sizes grow until one takes so long that its start does not count, so that
 * fast and slow GPUs, and links, need no figures of theirs here. */
enum { SIDE_FIRST = 256, SIDE_MOST = 8192 };
enum { BYTES_FIRST = 1 << 20, BYTES_MOST = 256 << 20 };
#define PRODUCT_LONG 1e-3
#define RING_LONG 2e-3
/* The best of some counts: clocks rise at first. */
enum { PRODUCTS = 3, RINGS = 5 };
#define PRODUCT_SECONDS 0.2
/* Elements with which matrices are filled, again and again. */
enum { FILL = 1 << 19 };

/* Where the lines go: libraries print on stdout what they are asked to log. */
static FILE *lines;

static int open_lines(void)
{
    int fd = dup(STDOUT_FILENO);

    lines = fd < 0 ? NULL : fdopen(fd, "w");
    if (lines && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
        return 0;
    if (fd >= 0 && !lines)
        close(fd);
    return -1;
}

/* Each line by itself, since this process may be ended at any time. */
static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vfprintf(lines, format, ap);
    va_end(ap);
    putc('\n', lines);
    fflush(lines);
}

/* A line of an error, which may have several. */
static void say_error(const char *what, struct plait_error *err)
{
    err->text[strcspn(err->text, "\n")] = '\0';
    if (err->text[0])
        say("%s %s", what, err->text);
}

/* -- a product ----------------------------------------------------------- */

struct product {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q;
    unsigned short *numbers; /* [FILL] bf16 */
};

/* Numbers from -1 to 1 that differ: a product of zeros takes less power, and is
 * faster, than one of a training. */
static void make_numbers(unsigned short *numbers)
{
    unsigned state = 1;

    for (int i = 0; i < FILL; i++) {
        float x;
        unsigned bits;

        state = state * 1664525u + 1013904223u;
        x = (float)(state >> 8) * 0x1p-23f - 1;
        memcpy(&bits, &x, sizeof(bits));
        numbers[i] = (unsigned short)(bits >> 16);
    }
}

static int fill(const struct product *p, void *matrix, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += FILL * sizeof(*p->numbers)) {
        size_t some = FILL * sizeof(*p->numbers);

        if (some > bytes - at)
            some = bytes - at;
        if (p->ops->to_device(p->q, (char *)matrix + at, p->numbers, some) < 0)
            return -1;
    }
    return 0;
}

/* The shortest of some products, in seconds. */
static int time_products(const struct product *p, const struct plait_linear *l,
                         double *least)
{
    double begin, start;

    /* One has ended: all that libraries load at first is there. */
    if (l->N == (size_t)SIDE_FIRST)
        say("begun");
    *least = INFINITY;
    begin = plait_clock_now();
    for (int i = 0; i < PRODUCTS || plait_clock_now() - begin < PRODUCT_SECONDS;
         i++) {
        start = plait_clock_now();
        if (p->ops->linear_forward(p->q, l) < 0 || p->ops->queue_sync(p->q) < 0)
            return -1;
        *least = fmin(*least, plait_clock_now() - start);
        if (*least < PRODUCT_LONG && i >= PRODUCTS && l->N < (size_t)SIDE_MOST)
            return 0; /* a larger one comes */
    }
    return 0;
}

/* Square matrices. */
static int time_side(const struct product *p, size_t side, double *seconds)
{
    size_t bytes = side * side * sizeof(*p->numbers);
    char *a = p->ops->alloc(p->dev, bytes), *b = p->ops->alloc(p->dev, bytes),
         *out = p->ops->alloc(p->dev, bytes);
    struct plait_linear l = {.N = side, .inp.x = a, .out = out};
    int rc = -1;

    errno = ENOMEM;
    if (a && b && out)
        l.w = p->ops->weight_create(
            p->dev, &(struct plait_weight_data){PLAIT_BF16_T, side, side, b});
    if (l.w && fill(p, a, bytes) == 0 && fill(p, b, bytes) == 0 &&
        p->ops->linear_forward(p->q, &l) == 0 && p->ops->queue_sync(p->q) == 0)
        rc = time_products(p, &l, seconds);
    if (l.w)
        p->ops->weight_destroy(l.w);
    p->ops->free(p->dev, a);
    p->ops->free(p->dev, b);
    p->ops->free(p->dev, out);
    return rc;
}

static int time_device(const struct plait_world *w, double *rate,
                       struct plait_error *err)
{
    struct product p = {w->ops, w->dev, w->ops->queue_create(w->dev, 0),
                        malloc(FILL * sizeof(unsigned short))};
    double seconds = 0;
    int rc = p.q && p.numbers ? 0 : -1;

    errno = ENOMEM;
    if (p.numbers)
        make_numbers(p.numbers);
    for (size_t side = SIDE_FIRST;
         rc == 0 && side <= SIDE_MOST && seconds < PRODUCT_LONG; side *= 2) {
        rc = time_side(&p, side, &seconds);
        *rate = 2.0 * (double)side * (double)side * (double)side / seconds;
    }
    if (rc < 0)
        plait_errorf(err, "%s",
                     p.q && *plait_queue_error(p.q) ? plait_queue_error(p.q)
                                                    : strerror(errno));
    if (p.q)
        p.ops->queue_destroy(p.q);
    free(p.numbers);
    return rc;
}

/* On this task's GPU alone: one that hangs keeps none of the others. Returns
 * how many ranks there are to connect; -1: not known. */
static int check_product(void)
{
    struct plait_error err = {""};
    struct plait_world w = {.comm = NULL};
    double rate = 0;
    int rc = plait_launch_read(&w.launch, NULL, NULL, &err);

    w.planned = rc > 0;
    if (rc < 0) {
        say_error("note", &err);
        return -1;
    }
    rc = plait_world_choose(&w, "cuda", &err);
    if (rc == 0) {
        say("started");
        rc = time_device(&w, &rate, &err);
    }
    if (rc == 0)
        say("product %.6g", rate);
    else
        say_error("unusable", &err);
    if (w.dev)
        w.ops->device_destroy(w.dev);
    return w.planned ? w.launch.world_size : 1;
}

/* -- rings --------------------------------------------------------------- */

/* The slowest rank of any group decides when all go on. */
static int share_greatest(struct plait_mesh *mesh, double *value)
{
    return plait_comm_host_all_reduce(mesh->world, value, 1, PLAIT_MAX);
}

/* The shortest of some all-reduces, which all groups of a kind make at once. */
static int time_reduces(struct plait_mesh *mesh, struct plait_comm *comm,
                        void *buffer, size_t bytes, double *least)
{
    const struct plait_buffers b = {buffer, buffer, bytes / sizeof(float),
                                    PLAIT_F32};

    *least = INFINITY;
    for (int i = 0; i <= RINGS; i++) {
        double start;

        if (plait_comm_barrier(mesh->world) < 0)
            return -1;
        start = plait_clock_now();
        if (plait_comm_all_reduce(comm, &b, PLAIT_SUM, mesh->q, NULL) < 0 ||
            mesh->ops->queue_sync(mesh->q) < 0)
            return -1;
        if (i > 0) /* the first connects */
            *least = fmin(*least, plait_clock_now() - start);
    }
    return 0;
}

static int time_group(struct plait_mesh *mesh, struct plait_comm *comm,
                      double *rate)
{
    double slowest = 0, seconds = 0, n = plait_comm_size(comm);
    int rc = 0;

    for (size_t bytes = BYTES_FIRST;
         rc == 0 && bytes <= BYTES_MOST && slowest < RING_LONG; bytes *= 4) {
        void *buffer = mesh->ops->alloc(mesh->dev, bytes);

        /* A rank alone would keep the others waiting. */
        slowest = buffer ? 0 : INFINITY;
        if (share_greatest(mesh, &slowest) < 0)
            rc = -1;
        if (rc == 0 && isfinite(slowest))
            rc = time_reduces(mesh, comm, buffer, bytes, &seconds);
        mesh->ops->free(mesh->dev, buffer);
        if (rc < 0 || !isfinite(slowest))
            break;
        *rate = 2 * (n - 1) / n * (double)bytes / seconds;
        slowest = seconds;
        rc = share_greatest(mesh, &slowest);
    }
    return rc;
}

static int time_rings(struct plait_mesh *mesh, struct plait_error *err)
{
    static const struct {
        enum plait_group group;
        const char *name;
    } rings[] = {{PLAIT_GROUP_TP, "tp"},
                 {PLAIT_GROUP_CP, "cp"},
                 {PLAIT_GROUP_PP, "pp"},
                 {PLAIT_GROUP_DP_CP, "dp"}};

    for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
        struct plait_comm *comm = mesh->group[rings[i].group];
        double rate = 0;

        if (plait_comm_size(comm) < 2)
            continue;
        if (time_group(mesh, comm, &rate) < 0)
            return plait_errorf(err, "%s ring: %s", rings[i].name,
                                plait_comm_error(comm));
        if (rate > 0)
            say("ring %s %.6g", rings[i].name, rate);
    }
    return 0;
}

/* Whether other ranks have not come, or have ended: they were too late, or have
 * crashed. That is their own tasks' to say: this one is late, too. */
static int has_lost_ranks(const struct plait_world *w)
{
    return !w->all || plait_comm_failed(plait_comm_of_hosts(w->all));
}

/* All ranks meet here, also those whose GPU cannot be used: so the others
 * learn of it. */
static int check_rings(void)
{
    struct plait_error err = {""};
    struct plait_world w = {.comm = NULL};
    struct plait_mesh *mesh = NULL;
    int rc = plait_world_open(&w, "cuda", "auto", &err);

    if (rc == 0) {
        say("connected");
        mesh = plait_mesh_create(w.ops, w.dev, w.comm, &w.launch.layout, &err);
        rc = mesh ? time_rings(mesh, &err) : -1;
    }
    while (rc < 0 && has_lost_ranks(&w))
        pause(); /* the preflight ends it */
    if (rc < 0)
        say_error("note", &err);
    say("end");
    /* What has failed may never end. */
    if (rc < 0)
        _Exit(1);
    plait_mesh_destroy(mesh);
    plait_world_close(&w);
    return 0;
}

int plait_gpu_check(int rings)
{
    int ranks;

    if (!plait_cuda_configured())
        return 0;
    if (open_lines() < 0)
        return 1;
    /* Products of ranks that share a GPU slow each other down, and they
     * communicate by MPI, which can start only once in a step. */
    if (plait_shared_gpus() > 0) {
        say("end");
        return 0;
    }
    ranks = check_product();
    if (ranks < 0)
        return 1;
    if (ranks == 1 || !rings) {
        say("end");
        return 0;
    }
    return check_rings();
}
