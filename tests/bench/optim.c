/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/optim_job.h"
#include "bench.h"
#include "kernels/dynamic_map.h"

/* Each optimizer's step over one tensor, next to a copy: the time to read and
 * write weights and states once and to read gradients, at this machine's memory
 * bandwidth. Muon and SOAP compute much more than they move, which the same
 * figure shows. */

enum { NUMBERS = 1 << 25 };

struct optim_bench {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q;
    float *w, *g, *s[2], *copy;
    uint8_t *code[2];
    float *scale[2];
    float factor;
    double sums[2];
};

static const struct optimizer {
    const char *name;
    enum plait_update_rule rule;
    bool first_pass, codes;
    int states;
    bool bf16; /* states of bf16, rounded stochastically */
} optimizers[] = {
    {"SGD without momentum", PLAIT_UPDATE_SGD, false, false, 0, false},
    {"SGD", PLAIT_UPDATE_SGD, false, false, 1, false},
    {"Lion", PLAIT_UPDATE_LION, false, false, 1, false},
    {"AdamW", PLAIT_UPDATE_ADAMW, false, false, 2, false},
    {"AdamW, moments of bf16", PLAIT_UPDATE_ADAMW, false, false, 2, true},
    {"AdamW in 8 bits", PLAIT_UPDATE_ADAMW, false, true, 2, false},
    {"LARS, two passes", PLAIT_UPDATE_LARS, true, false, 1, false},
    {"NovoGrad, two passes", PLAIT_UPDATE_NOVOGRAD, true, false, 1, false},
    {"LAMB, two passes", PLAIT_UPDATE_LAMB, true, false, 2, false},
};
enum { NROWS = sizeof(optimizers) / sizeof(optimizers[0]) };

static double needed_bytes(const struct optimizer *o)
{
    double state = o->codes ? 1 + 4.0 / PLAIT_MAP_BLOCK : o->bf16 ? 2 : 4;

    return NUMBERS * (12 + 2 * o->states * state);
}

static void run_step(struct optim_bench *b, const struct optimizer *o)
{
    struct plait_update p = {.rule = o->rule,
                             .type = PLAIT_F32,
                             .states = o->bf16 ? PLAIT_BF16_T : PLAIT_F32,
                             .random_states = o->bf16,
                             .lr = 1e-9f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .momentum = 0.9f,
                             .step = 1};
    struct plait_update_run run = {.master = b->w,
                                   .origin.columns = 1024,
                                   .grad = b->g,
                                   .n = NUMBERS,
                                   .factor = &b->factor,
                                   .sums = b->sums};
    struct plait_update8_run run8 = {.master = b->w,
                                     .code = {b->code[0], b->code[1]},
                                     .scale = {b->scale[0], b->scale[1]},
                                     .grad = b->g,
                                     .n = NUMBERS};

    for (int k = 0; k < o->states; k++)
        run.state[k] = b->s[k];
    if (o->codes) {
        b->ops->update8(b->q, &p, &run8, 1);
        return;
    }
    if (o->first_pass)
        b->ops->update_sums(b->q, &p, &run, 1);
    b->ops->update(b->q, &p, &run, 1);
}

static float *room(struct optim_bench *b, size_t n)
{
    float *x = b->ops->alloc(b->dev, n * sizeof(*x));
    uint32_t r = 1;

    if (!x) {
        fprintf(stderr, "plait-bench: out of memory\n");
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        r = r * 1664525 + 1013904223;
        x[i] = (float)(r >> 8) * 0x1p-24f;
    }
    return x;
}

static void open_arrays(struct optim_bench *b, int threads)
{
    b->ops = plait_ops_cpu();
    b->dev = b->ops->device_create(0, threads);
    b->q = b->ops->queue_create(b->dev, 0);
    b->factor = 1;
    b->w = room(b, NUMBERS);
    b->g = room(b, NUMBERS);
    b->copy = room(b, NUMBERS);
    for (int k = 0; k < 2; k++) {
        b->s[k] = room(b, NUMBERS);
        b->code[k] = (uint8_t *)room(b, NUMBERS / sizeof(float));
        b->scale[k] = room(b, NUMBERS / PLAIT_MAP_BLOCK);
    }
}

static void close_arrays(struct optim_bench *b)
{
    b->ops->free(b->dev, b->w);
    b->ops->free(b->dev, b->g);
    b->ops->free(b->dev, b->copy);
    for (int k = 0; k < 2; k++) {
        b->ops->free(b->dev, b->s[k]);
        b->ops->free(b->dev, b->code[k]);
        b->ops->free(b->dev, b->scale[k]);
    }
    b->ops->queue_destroy(b->q);
    b->ops->device_destroy(b->dev);
}

/* bytes: that the step must move; copy: bytes per second */
static void add_row(json_t *rows, const char *name, double bytes,
                    const struct bench_samples *s, double copy)
{
    double t = bench_median(s), rate = bytes / t;

    json_array_append_new(
        rows, json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:s,s:f}", "op", name, "type",
                        "fp32", "seconds", t, "least", bench_least(s), "most",
                        bench_most(s), "rate", rate * 1e-9, "unit", "GB/s",
                        "of_ceiling", rate / copy));
}

/* -- optimizers that compute a direction of a whole matrix ----------------- */

/* A whole step of a small model, most of whose weights are layers' matrices. */
static const struct directed {
    const char *name, *keys;
    double state; /* bytes read and written per weight of [256,256] */
} directed[] = {
    {"Muon, whole step", "name: muon", 4},
    {"Adafactor, whole step", "name: adafactor", 0},
    {"SOAP, whole step between two bases", "name: soap, frequency: 1000", 24},
};
enum { NDIRECTED = sizeof(directed) / sizeof(directed[0]) };

static double fill_gradients(struct optim_job *job)
{
    uint32_t r = 1;
    double n = 0;

    for (int i = 0; i < job->nslices; i++) {
        const struct plait_optim_slice *s = &job->slices[i];
        float *g = job->model->regions[s->tensor->region].grad +
                   s->tensor->offset + s->first;

        for (size_t k = 0; k < s->count; k++) {
            r = r * 1664525 + 1013904223;
            g[k] = (float)(r >> 8) * 0x1p-24f - 0.5f;
        }
        n += (double)s->count;
    }
    return n;
}

static void bench_directed(json_t *rows, const struct directed *d, int threads,
                           int rounds, double copy)
{
    struct optim_job job = {0};
    struct bench_samples s = {0};
    struct plait_error err = {""};
    char yaml[256];
    double n = 0;

    snprintf(yaml, sizeof(yaml),
             "model: {family: gpt2, layers: 12, hidden: 256, heads: 4, ffn: "
             "256, vocab: 256, seq_len: 64}\noptim: {%s}\n",
             d->keys);
    if (optim_job_open(
            &job,
            plait_job_config_parse("bench", yaml, strlen(yaml), NULL, 0, &err),
            plait_ops_cpu(), threads, 1, &err) < 0) {
        fprintf(stderr, "plait-bench: %s\n", err.text);
        exit(1);
    }
    for (int r = 0; r <= rounds + 1; r++) {
        double start;

        n = fill_gradients(&job);
        start = bench_now();
        if (plait_optim_step(job.optim, 1e-6, 1, r + 1) < 0)
            exit(1);
        if (r > 1) /* the first step makes bases, the second touches the rest */
            bench_add(&s, bench_now() - start);
    }
    add_row(rows, d->name, n * (12 + 2 * d->state), &s, copy);
    optim_job_close(&job);
}

void bench_optimizers(json_t *rows, int threads, int rounds)
{
    struct bench_samples s[NROWS + 1] = {{0}};
    struct optim_bench b = {0};
    double copy;

    open_arrays(&b, threads);
    for (int r = 0; r <= rounds; r++)
        for (int i = 0; i <= NROWS; i++) {
            double start = bench_now();

            if (i < NROWS)
                run_step(&b, &optimizers[i]);
            else
                b.ops->copy(b.q, b.copy, b.g, NUMBERS * sizeof(float));
            if (r > 0) /* the first run touches memory */
                bench_add(&s[i], bench_now() - start);
        }
    copy = 2.0 * NUMBERS * sizeof(float) / bench_median(&s[NROWS]);
    for (int i = 0; i < NROWS; i++)
        add_row(rows, optimizers[i].name, needed_bytes(&optimizers[i]), &s[i],
                copy);
    close_arrays(&b);
    for (int i = 0; i < NDIRECTED; i++)
        bench_directed(rows, &directed[i], threads, rounds, copy);
}
