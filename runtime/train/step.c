/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/step.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/trace.h"
#include "runtime/parallel/gradsync.h"
#include "runtime/parallel/replay.h"

#define PEAK_ROUNDS 5
#define FILL ((size_t)1 << 16) /* values; matrices are multiples of it */

struct plait_trainer {
    const struct plait_config *config;
    struct plait_parallel *par;
    struct plait_model *model;
    struct plait_optim *optim;
    struct plait_gradsync *sync;
    struct plait_pipeline *pipe;
    struct plait_dataset *train, *val;
    struct plait_loader *loader;
    int64_t first, count; /* this rank's sequences of the global batch */
    int microbatches;
    struct plait_batch *batch; /* [microbatches] */
    double *loss;              /* device */
    struct plait_loss_scale scale;
};

/* -- life ---------------------------------------------------------------- */

static int set_tf32(int on, struct plait_parallel *par, struct plait_error *err)
{
    if (par->ops->allow_tf32) {
        par->ops->allow_tf32(par->dev, on);
        return 0;
    }
    if (!on)
        return 0;
    errno = ENOTSUP;
    return plait_errorf(err,
                        "train.precision: tf32 is for GPUs; on this device "
                        "(%s) take fp32 or bf16",
                        par->ops->name);
}

static int set_precision(enum plait_precision precision,
                         struct plait_parallel *par, struct plait_error *err)
{
    if (precision != PLAIT_FP8 ||
        (par->ops->has_fp8 && par->ops->has_fp8(par->dev)))
        return set_tf32(precision == PLAIT_TF32, par, err);
    errno = ENOTSUP;
    return plait_errorf(err, "train.precision: fp8 wants a GPU of compute "
                             "capability 8.9 or more (Ada, Hopper); with this "
                             "one take bf16");
}

static int make_parts(struct plait_trainer *t, struct plait_error *err)
{
    const struct plait_train_config *c = &t->config->train;
    struct plait_parallel *par = t->par;

    t->count = c->global_batch / par->layout.size[PLAIT_DP];
    t->first = t->count * par->coord.at[PLAIT_DP];
    t->microbatches = t->count / c->micro_batch;
    t->batch = calloc(t->microbatches, sizeof(*t->batch));
    t->loss = par->ops->alloc(par->dev, sizeof(*t->loss));
    if (!t->batch || !t->loss)
        return plait_errorf(err, "out of memory");
    if (set_precision(c->precision, par, err) < 0 ||
        plait_graphs_choose(&par->graphs, t->config, par, err) < 0)
        return -1;
    t->model = plait_model_create(t->config, par, err);
    if (!t->model)
        return -1;
    t->optim = plait_optim_create(t->model, err);
    if (!t->optim)
        return -1;
    t->sync =
        plait_gradsync_create(t->model, plait_optim_shards(t->optim), err);
    if (!t->sync)
        return -1;
    t->pipe =
        plait_pipeline_create(t->model, t->microbatches, c->micro_batch, err);
    return t->pipe ? 0 : -1;
}

struct plait_trainer *plait_trainer_create(const struct plait_config *config,
                                           struct plait_parallel *par,
                                           struct plait_error *err)
{
    struct plait_trainer *t = calloc(1, sizeof(*t));

    if (!t) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    t->config = config;
    t->par = par;
    plait_loss_scale_init(&t->scale, &config->train);
    if (make_parts(t, err) < 0) {
        plait_trainer_destroy(t);
        return NULL;
    }
    return t;
}

void plait_trainer_destroy(struct plait_trainer *t)
{
    int saved = errno;

    if (!t)
        return;
    plait_loader_destroy(t->loader);
    plait_dataset_destroy(t->train);
    plait_dataset_destroy(t->val);
    plait_pipeline_destroy(t->pipe);
    plait_gradsync_destroy(t->sync);
    plait_optim_destroy(t->optim);
    plait_model_destroy(t->model);
    if (t->loss)
        t->par->ops->free(t->par->dev, t->loss);
    free(t->batch);
    free(t);
    errno = saved;
}

struct plait_model *plait_trainer_model(struct plait_trainer *t)
{
    return t->model;
}

struct plait_optim *plait_trainer_optim(struct plait_trainer *t)
{
    return t->optim;
}

struct plait_pipeline *plait_trainer_pipeline(struct plait_trainer *t)
{
    return t->pipe;
}

struct plait_loss_scale *plait_trainer_loss_scale(struct plait_trainer *t)
{
    return &t->scale;
}

/* -- data ---------------------------------------------------------------- */

static struct plait_loader *open_loader(struct plait_trainer *t,
                                        const struct plait_dataset *ds,
                                        int64_t step, struct plait_error *err)
{
    const struct plait_config *c = t->config;

    return plait_loader_create(ds, c->train.seed, c->model.seq_len,
                               c->model.vocab, c->train.global_batch, t->first,
                               t->count, step, err);
}

static struct plait_dataset *
open_dataset(struct plait_trainer *t, const char *path, struct plait_error *err)
{
    int vocab, want = t->config->model.vocab;
    struct plait_dataset *ds;

    ds = plait_dataset_open(path, t->config->data.format, t->par->world,
                            t->par->node, err);
    if (!ds)
        return NULL;
    vocab = plait_dataset_vocab(ds);
    if (vocab > want) {
        plait_errorf(err,
                     "%s has a vocabulary of %d tokens, but model.vocab "
                     "is %d",
                     path, vocab, want);
    } else if (plait_dataset_samples(ds, t->config->model.seq_len) < 1) {
        plait_errorf(err,
                     "%s has %lld tokens, too few for one sample of "
                     "model.seq_len %d",
                     path, (long long)plait_dataset_tokens(ds),
                     t->config->model.seq_len);
    } else {
        return ds;
    }
    plait_dataset_destroy(ds);
    errno = EINVAL;
    return NULL;
}

int plait_trainer_open_data(struct plait_trainer *t, int64_t step,
                            struct plait_error *err)
{
    const struct plait_config *c = t->config;

    if (!c->data.train)
        return plait_errorf(err, "data.train is missing: which tokens?");
    if (c->train.eval_every && !c->data.val)
        return plait_errorf(err,
                            "train.eval_every is %lld, but data.val is "
                            "missing",
                            (long long)c->train.eval_every);
    t->train = open_dataset(t, c->data.train, err);
    if (!t->train)
        return -1;
    if (c->data.val && !(t->val = open_dataset(t, c->data.val, err)))
        return -1;
    t->loader = open_loader(t, t->train, step, err);
    return t->loader ? 0 : -1;
}

static int next_batch(struct plait_trainer *t, struct plait_loader *loader,
                      float loss_scale, struct plait_error *err)
{
    int micro = t->config->train.micro_batch;
    int seq_len = t->config->model.seq_len, i;
    const int32_t *input, *target;
    double start;

    start = plait_trace_now();
    if (plait_loader_next(loader, &input, &target, err) < 0)
        return -1;
    plait_trace_span(t->par->trace, "data", "data", start);
    for (i = 0; i < t->microbatches; i++) {
        size_t at = (size_t)i * micro * seq_len;

        t->batch[i] = (struct plait_batch){
            .batch = micro,
            .seq_len = seq_len,
            .tokens = input + at,
            .targets = target + at,
            .loss_scale = loss_scale,
        };
    }
    return 0;
}

/* -- the step ------------------------------------------------------------ */

/* Whatever failed, in a sentence. */
static int describe(struct plait_trainer *t, struct plait_error *err)
{
    const char *why = plait_queue_error(t->par->q);
    const struct plait_graphs *graphs = &t->par->graphs;
    struct plait_comm *comm;
    int i;

    if (graphs->failed && graphs->all) {
        errno = ENOTSUP;
        return plait_errorf(err, "train.graph on: %s", graphs->why);
    }
    if (why)
        return plait_errorf(err, "%s", why);
    for (i = 0; i < PLAIT_NCOMMS; i++) {
        comm = plait_parallel_comm(t->par, i);
        why = comm ? plait_comm_error(comm) : "no error";
        if (strcmp(why, "no error"))
            return plait_errorf(err, "%s", why);
    }
    return plait_errorf(err, "step failed: %s", strerror(errno));
}

/* This rank's part of the summed loss: all tp and cp ranks of a last stage
 * hold it, one of each tp group counts. */
static int local_loss(struct plait_trainer *t, double *loss)
{
    struct plait_parallel *par = t->par;

    if (par->ops->to_host(par->q, loss, t->loss, sizeof(*loss)) < 0)
        return -1;
    if (par->coord.at[PLAIT_TP] != 0)
        *loss = 0;
    return 0;
}

static int compute(struct plait_trainer *t)
{
    const struct plait_ops *ops = t->par->ops;

    if (ops->fill_zero(t->par->q, t->loss, sizeof(*t->loss)) < 0 ||
        plait_gradsync_begin(t->sync, t->microbatches) < 0 ||
        plait_pipeline_train(t->pipe, t->batch, t->loss) < 0)
        return -1;
    return plait_gradsync_finish(t->sync);
}

int plait_trainer_step(struct plait_trainer *t, int64_t step, int stop,
                       struct plait_step_result *result,
                       struct plait_error *err)
{
    const struct plait_config *c = t->config;
    double tokens = (double)c->train.global_batch * c->model.seq_len;
    double sums[3] = {0, 0, stop}; /* loss, squares of gradients, stop */
    double norm, lr, start;
    int rc;

    if (next_batch(t, t->loader, t->scale.scale / tokens, err) < 0)
        return -1;
    /* The loss last: it is there once the norm is, and costs no wait. */
    if (compute(t) < 0 || plait_optim_sum_squares(t->optim, &sums[1]) < 0 ||
        local_loss(t, &sums[0]) < 0)
        return describe(t, err);
    if (plait_comm_host_all_reduce(t->par->world, sums, 3, PLAIT_SUM) < 0)
        return plait_errorf(err, "%s", plait_comm_error(t->par->world));
    start = plait_trace_now();
    norm = sqrt(sums[1]) / t->scale.scale;
    lr = plait_lr(&c->lr,
                  plait_lr_peak(&c->lr, c->optim.lr, c->train.global_batch),
                  step, c->train.steps);
    plait_range_begin(t->par->ops, "optimizer");
    rc = plait_optim_step(t->optim, lr,
                          plait_clip(norm, c->optim.clip, t->scale.scale),
                          step + 1 - t->scale.skipped);
    plait_range_end(t->par->ops);
    if (rc < 0)
        return describe(t, err);
    plait_trace_span(t->par->trace, "optimizer", "optimizer", start);
    result->skipped = t->scale.dynamic && !isfinite(norm);
    plait_loss_scale_update(&t->scale, result->skipped);
    result->loss = sums[0] / tokens;
    result->grad_norm = norm;
    result->lr = lr;
    result->stop = sums[2] > 0;
    return 0;
}

int plait_trainer_eval(struct plait_trainer *t, double *loss,
                       struct plait_error *err)
{
    const struct plait_config *c = t->config;
    double tokens = (double)c->train.global_batch * c->model.seq_len;
    struct plait_parallel *par = t->par;
    struct plait_loader *loader = open_loader(t, t->val, 0, err);
    double sum = 0;
    int64_t i;
    int rc = 0;

    if (!loader)
        return -1;
    if (par->ops->fill_zero(par->q, t->loss, sizeof(*t->loss)) < 0)
        rc = describe(t, err);
    for (i = 0; i < c->train.eval_steps && rc == 0; i++) {
        rc = next_batch(t, loader, 1 / tokens, err);
        if (rc == 0 && plait_pipeline_eval(t->pipe, t->batch, t->loss) < 0)
            rc = describe(t, err);
    }
    plait_loader_destroy(loader);
    if (rc < 0)
        return -1;
    if (local_loss(t, &sum) < 0)
        return describe(t, err);
    if (plait_comm_host_all_reduce(par->world, &sum, 1, PLAIT_SUM) < 0)
        return plait_errorf(err, "%s", plait_comm_error(par->world));
    *loss = sum / (tokens * c->train.eval_steps);
    return 0;
}

/* -- the measure of MFU -------------------------------------------------- */

/* Two matrices of values in [-1, 1) behind the result, which serves as work
 * space: a GPU multiplies zeros at a higher clock. */
static int fill_operands(struct plait_parallel *par, enum plait_dtype type,
                         size_t n, char *buffer)
{
    size_t size = plait_dtype_size(type), i;
    uint32_t x = 1;
    float *values = malloc(FILL * sizeof(*values));
    int rc = values ? 0 : -1;

    for (i = 0; i < FILL && rc == 0; i++) {
        x = x * 1664525 + 1013904223;
        values[i] = (float)(x >> 8) / (1 << 23) - 1;
    }
    if (rc == 0)
        rc =
            par->ops->to_device(par->q, buffer, values, FILL * sizeof(*values));
    for (i = n * n; i < 3 * n * n && rc == 0; i += FILL)
        rc = par->ops->cast(par->q, type, buffer + i * size, PLAIT_F32, buffer,
                            FILL);
    free(values);
    return rc;
}

/* Seconds of one of `count` products of square matrices, at a time when all
 * ranks do the same: ranks may share cores. INFINITY: they could not be made
 * (w NULL: from the start), and the others do not wait for it. */
static double time_products(struct plait_parallel *par, size_t matrix, size_t n,
                            void *buffer, struct plait_weight *w, int count)
{
    double start;
    int rc = w ? 0 : -1, i;

    plait_comm_barrier(par->world);
    start = plait_trace_now();
    for (i = 0; i < count && rc == 0; i++)
        rc = par->ops->linear_forward(par->q, buffer, NULL,
                                      (char *)buffer + matrix, w, NULL,
                                      PLAIT_ACT_NONE, n);
    if (rc == 0)
        rc = par->ops->queue_sync(par->q);
    plait_comm_barrier(par->world); /* a rank alone on a core is no measure */
    return rc < 0 ? INFINITY : (plait_trace_now() - start) / count;
}

/* Of some rounds the best counts, after one that warms up: others may want
 * the cores for a moment. A round is long beside the barriers around it, and
 * short beside a time slice. What it takes is what it takes the last rank: one
 * that was late to begin saw less of it. */
int plait_trainer_peak(struct plait_parallel *par, enum plait_dtype type,
                       double *flops)
{
    size_t n = par->ops->gpu ? 4096 : 512;
    size_t matrix = n * n * plait_dtype_size(type);
    char *buffer = par->ops->alloc(par->dev, 3 * matrix);
    double seconds[PEAK_ROUNDS + 1], best = INFINITY;
    struct plait_weight *w = NULL;
    int i;

    if (buffer && fill_operands(par, type, n, buffer) == 0)
        w = par->ops->weight_create(par->dev, type, n, n, buffer + 2 * matrix);
    for (i = 0; i <= PEAK_ROUNDS; i++)
        seconds[i] = time_products(par, matrix, n, buffer, w,
                                   i == 0          ? 1
                                   : par->ops->gpu ? 10
                                                   : 2);
    par->ops->weight_destroy(w);
    par->ops->free(par->dev, buffer);
    if (plait_comm_host_all_reduce(par->world, seconds, PEAK_ROUNDS + 1,
                                   PLAIT_MAX) < 0)
        return -1;
    for (i = 1; i <= PEAK_ROUNDS; i++)
        best = fmin(best, seconds[i]);
    if (!isfinite(best) || best <= 0)
        return -1;
    *flops = 2.0 * n * n * n / best * plait_comm_size(par->world);
    return 0;
}
