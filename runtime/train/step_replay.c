/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/train/step_private.h"
#include "topology/base/clock.h"
#include "topology/job/sync.h"

/* Finds the first number of a step that is not finite. The step is made again,
 * slowly, and every rank checks all inputs and results in the order of the
 * work. No update was made with such a gradient, so that weights and batch are
 * still those of the step. The rank that was first is told by the time of day:
 * other ranks get its numbers later, if the nodes' clocks differ by less than a
 * message and a copy take. */

/* Numbers of a tensor that are checked at once. */
enum { BLOCK = 1 << 16 };

struct first_bad {
    double when; /* INFINITY: none */
    double value;
    size_t at;
    int32_t rank, pid;
    char what[160], host[64];
};

struct observer {
    struct plait_mesh *mesh;
    char *block; /* [BLOCK] numbers of any type */
    struct first_bad first;
};

static double value_of(enum plait_dtype type, const void *x, size_t i)
{
    uint16_t half;
    float f;

    if (type == PLAIT_F32) {
        memcpy(&f, (const char *)x + 4 * i, sizeof(f));
        return f;
    }
    memcpy(&half, (const char *)x + 2 * i, sizeof(half));
    if (type == PLAIT_FP16_T) /* a finite value may read as 0 */
        return (half & 0x7c00) != 0x7c00 ? 0
               : half & 0x3ff            ? NAN
               : half & 0x8000           ? -INFINITY
                                         : INFINITY;
    return (half & 0x7f80) != 0x7f80 ? 0
           : half & 0x7f             ? NAN
           : half & 0x8000           ? -INFINITY
                                     : INFINITY;
}

static void note_first(struct observer *w, int layer, const char *what,
                       size_t at, double value)
{
    struct first_bad *f = &w->first;

    f->when = plait_clock_unix();
    f->value = value;
    f->at = at;
    if (layer >= 0)
        snprintf(f->what, sizeof(f->what), "%.100s of layer %d", what, layer);
    else
        snprintf(f->what, sizeof(f->what), "%.130s", what);
}

static int look_at(void *arg, int layer, const char *what,
                   enum plait_dtype type, const void *x, size_t n)
{
    struct observer *w = arg;
    size_t width = plait_dtype_size(type), part;

    for (size_t at = 0; at < n && isinf(w->first.when); at += part) {
        part = n - at < BLOCK ? n - at : BLOCK;
        if (w->mesh->ops->to_host(w->mesh->q, w->block,
                                  (const char *)x + at * width,
                                  part * width) < 0)
            return -1;
        for (size_t i = 0; i < part; i++) {
            double value = value_of(type, w->block, i);

            if (isfinite(value))
                continue;
            note_first(w, layer, what, at + i, value);
            return 0;
        }
    }
    return 0;
}

/* Collective: the earliest find of all ranks, into w->first. */
static int find_first(struct plait_trainer *t, struct observer *w)
{
    int n = plait_comm_size(t->mesh->world), best = 0;
    struct first_bad *all = calloc((size_t)n, sizeof(*all));
    int rc = all ? plait_comm_host_all_gather(t->mesh->world, &w->first, all,
                                              sizeof(*all))
                 : -1;

    for (int r = 1; rc == 0 && r < n; r++)
        if (all[r].when < all[best].when)
            best = r;
    if (rc == 0)
        w->first = all[best];
    free(all);
    return rc;
}

static int pass_again(struct plait_trainer *t)
{
    const struct plait_ops *ops = t->mesh->ops;

    if (ops->fill_zero(t->mesh->q, t->loss, 2 * sizeof(*t->loss)) < 0 ||
        plait_gradsync_begin(t->sync, t->microbatches) < 0 ||
        plait_pipeline_train(t->pipe, t->batch, t->loss) < 0)
        return -1;
    return plait_gradsync_finish(t->sync);
}

static void say_first(const struct first_bad *f, char *text, size_t size)
{
    if (isinf(f->when))
        snprintf(text, size,
                 "repeated, the step has only finite numbers, which points to "
                 "faulty memory or a faulty device");
    else
        snprintf(text, size,
                 "the first one is %g at element %zu of %s, on rank %d (%s, "
                 "process %d)",
                 f->value, f->at, f->what, (int)f->rank, f->host, (int)f->pid);
}

int plait_trainer_trace(struct plait_trainer *t, char *text, size_t size,
                        struct plait_error *err)
{
    struct plait_mesh *mesh = t->mesh;
    struct observer w = {.mesh = mesh};
    int rc;

    /* Only the weights of the last learner are still in the model. */
    if (plait_sync_learners(&t->config->sync) > 1 ||
        (t->config->model.family != PLAIT_GPT2 &&
         t->config->model.family != PLAIT_LLAMA)) {
        snprintf(text, size,
                 "for this kind of model the step is not repeated to find the "
                 "first one");
        return 0;
    }
    w.first.when = INFINITY;
    w.first.rank = plait_comm_rank(mesh->world);
    w.first.pid = getpid();
    gethostname(w.first.host, sizeof(w.first.host) - 1);
    w.block = malloc((size_t)BLOCK * 4);
    if (plait_error_consensus(mesh->world,
                              w.block ? 0 : plait_errorf(err, "out of memory"),
                              err) < 0) {
        free(w.block);
        return -1;
    }
    mesh->graphs = (struct plait_graphs){.why = "the step is made again"};
    t->model->observer = (struct plait_model_observer){look_at, &w, -1};
    rc = pass_again(t);
    t->model->observer.see = NULL;
    free(w.block);
    if (rc == 0)
        rc = find_first(t, &w);
    if (rc == 0)
        say_first(&w.first, text, size);
    return rc < 0 ? plait_trainer_describe(t, err) : 0;
}
