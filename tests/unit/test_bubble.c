/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "model_run.h"
#include "runtime/comm/trace.h"
#include "runtime/parallel/pipeline.h"

/* Under mpirun (bubble-mpi.sh): how long the ranks of a pipeline stand idle.
 * Every layer takes a fixed time in which its rank sleeps instead of keeping
 * a core busy, so that a few cores are enough; schedule, interpreter, model
 * and messages are the real ones. A forward takes one unit, input and weight
 * gradients one each. */

#define MICROBATCHES 4

/* Seconds a unit, in the tries until one is right. The machine may have more
 * to do, and then a rank wakes late, by some milliseconds: the longer the
 * unit, the less of it that is. */
static const double units[] = {0.1, 0.1, 0.2, 0.4, 0.4, 0.8};
#define TRIES (int)(sizeof(units) / sizeof(units[0]))

static struct plait_comm *world;
static const struct plait_ops *cpu;
static double unit; /* seconds */
static double busy; /* seconds that this rank has slept */

static void work(void)
{
    double start = plait_trace_now(), end = start + unit;
    struct timespec t;

    for (double left = end - start; left > 0; left = end - plait_trace_now()) {
        t.tv_sec = 0;
        t.tv_nsec = (long)(left * 1e9);
        nanosleep(&t, NULL);
    }
    busy += plait_trace_now() - start;
}

static int attention_forward(struct plait_queue *q, enum plait_dtype type,
                             const struct plait_attention *a, void *out,
                             float *lse, const void *Q, const void *K,
                             const void *V)
{
    work();
    return cpu->attention_forward(q, type, a, out, lse, Q, K, V);
}

static int attention_backward(struct plait_queue *q, enum plait_dtype type,
                              const struct plait_attention *a, void *dQ,
                              void *dK, void *dV, const void *dout,
                              const void *out, const float *lse, const void *Q,
                              const void *K, const void *V)
{
    work();
    return cpu->attention_backward(q, type, a, dQ, dK, dV, dout, out, lse, Q, K,
                                   V);
}

/* Of a layer's four matrices, the one that turns ffn into hidden. */
static int linear_backward_weight(struct plait_queue *q, enum plait_dtype type,
                                  float *dw, float *dbias, const void *dout,
                                  const void *inp, int accumulate, size_t N,
                                  size_t O, size_t C)
{
    if (C > O && O == 48)
        work();
    return cpu->linear_backward_weight(q, type, dw, dbias, dout, inp,
                                       accumulate, N, O, C);
}

/* Of the whole step, with p stages of v chunks and m micro-batches; all
 * passes take the same (Narayanan et al., SC21; Qi et al., 2023, ZB-H1). */
static double formula(enum plait_schedule_kind kind, int p, int v)
{
    double m = MICROBATCHES;

    if (kind == PLAIT_SCHEDULE_NAIVE)
        return (p - 1.0) / p;
    if (kind == PLAIT_SCHEDULE_ZB_H1)
        return (p - 1) / (3 * m + p - 1);
    return (p - 1) / (v * m + p - 1);
}

static double idle_share(struct run *r, struct plait_pipeline *pipe,
                         const struct plait_batch *batch)
{
    double start, mean;

    clear_grads(r);
    plait_comm_barrier(world);
    busy = 0;
    start = plait_trace_now();
    if (plait_pipeline_train(pipe, batch, r->loss) < 0)
        give_up("step", NULL);
    plait_comm_barrier(world);
    mean = 1 - busy / (plait_trace_now() - start);
    plait_comm_host_all_reduce(world, &mean, 1, PLAIT_SUM);
    return mean / plait_comm_size(world);
}

/* The same outcome on all ranks. */
static void check_idle(const char *schedule, int v, struct run *r,
                       struct plait_pipeline *pipe,
                       const struct plait_batch *batch, double want)
{
    int first = plait_comm_rank(world) == 0, right = 0, i;
    double idle = 1;

    for (i = 0; i < TRIES && !right; i++) {
        unit = units[i];
        idle = idle_share(r, pipe, batch);
        right = fabs(idle - want) <= 0.15 * want;
        if (first && !right)
            diag("%g s a unit: idle %.3f of a step", unit, idle);
    }
    if (first)
        ok(right,
           "%s, %d stages of %d: idle %.3f of a step, %.3f by its "
           "formula",
           schedule, plait_comm_size(world), v, idle, want);
}

static void check(enum plait_schedule_kind kind, int v)
{
    static int32_t tokens[4], targets[4];
    int p = plait_comm_size(world);
    struct plait_batch batch[MICROBATCHES];
    struct plait_ops ops = *cpu;
    struct plait_device *dev = ops.device_create(0, 1);
    struct plait_pipeline *pipe;
    struct plait_parallel *par;
    struct plait_config config;
    struct plait_layout layout;
    struct plait_error err;
    struct run r = {0};

    ops.attention_forward = attention_forward;
    ops.attention_backward = attention_backward;
    ops.linear_backward_weight = linear_backward_weight;
    small_config(&config, PLAIT_GPT2);
    config.model.layers = p * v; /* one a stage */
    config.model.vocab = 16;     /* as little real work as can be */
    config.model.seq_len = 4;
    config.train.micro_batch = 1;
    config.parallel.schedule = kind;
    config.parallel.virtual_stages = v;
    plait_layout_init(&layout);
    layout.size[PLAIT_PP] = p;
    layout.size[PLAIT_DP] = 1;
    par = plait_parallel_create(&ops, dev, world, &layout, &err);
    if (!par)
        give_up("groups", &err);
    r.par = *par;
    open_model(&r, &config, 1);
    pipe = plait_pipeline_create(r.model, MICROBATCHES,
                                 config.train.micro_batch, &err);
    if (!pipe)
        give_up("pipeline", &err);
    for (int i = 0; i < MICROBATCHES; i++)
        batch[i] = (struct plait_batch){
            config.train.micro_batch, config.model.seq_len, tokens, targets, 1};
    check_idle(plait_schedule_names[kind], v, &r, pipe, batch,
               formula(kind, p, v));
    plait_pipeline_destroy(pipe);
    close_model(&r);
    plait_parallel_destroy(par);
    ops.device_destroy(dev);
}

int main(void)
{
    struct plait_error err;
    int rank;

    cpu = plait_ops_cpu();
    world = plait_comm_create(PLAIT_COMM_MPI, cpu, NULL, NULL, &err);
    if (!world)
        give_up("mpi", &err);
    check(PLAIT_SCHEDULE_NAIVE, 1);
    check(PLAIT_SCHEDULE_GPIPE, 1);
    check(PLAIT_SCHEDULE_1F1B, 1);
    check(PLAIT_SCHEDULE_INTERLEAVED, 2);
    check(PLAIT_SCHEDULE_ZB_H1, 1);
    rank = plait_comm_rank(world);
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
