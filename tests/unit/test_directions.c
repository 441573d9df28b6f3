/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "optim_job.h"
#include "orthogonal_reference.h"
#include "tap.h"
#include "test_seed.h"

/* Muon and Adafactor against their formulas in double: 100 steps over tensors
 * of 20 shapes and more, drawn anew each time. One process. */

enum { STEPS = 100, MODELS = 3 };
static const double scale = 0.5; /* of the gradients, as by clipping */

static uint64_t seed;

/* The expected values of a tensor, and the optimizer's state. */
struct tensor {
    const struct plait_tensor *of;
    size_t n, rows, cols;
    double *w, *g, *m, *v, *r, *c;
};

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 40) * 0x1p-24;
}

static int between(int low, int high)
{
    return low + (int)(uniform() * (high - low + 1));
}

static double norm(const double *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* -- the formulas -------------------------------------------------------- */

static void adamw_step(const struct plait_optim_config *c, struct tensor *t,
                       double lr, double decay, int step)
{
    const double *b = c->betas;

    for (size_t i = 0; i < t->n; i++) {
        t->m[i] = b[0] * t->m[i] + (1 - b[0]) * t->g[i];
        t->v[i] = b[1] * t->v[i] + (1 - b[1]) * t->g[i] * t->g[i];
        t->w[i] -= lr * (t->m[i] / (1 - pow(b[0], step)) /
                             (sqrt(t->v[i] / (1 - pow(b[1], step))) + c->eps) +
                         decay * t->w[i]);
    }
}

/* All models here have two heads. */
static size_t muon_rows(const struct plait_optim_config *c,
                        const struct tensor *t)
{
    static const char *const split[] = {"attention.q.", "attention.k.",
                                        "attention.v."};

    for (int i = 0; i < 3 && c->muon_heads; i++)
        if (strstr(t->of->name, split[i]))
            return t->rows / 2;
    return t->rows;
}

static void muon_step(const struct plait_optim_config *c, struct tensor *t,
                      double lr, double decay, int step)
{
    size_t rows = muon_rows(c, t);
    double longest = (double)(rows > t->cols ? rows : t->cols);
    double mu = c->momentum;

    if (t->of->ndim < 2 || t->of->layer < 0) {
        adamw_step(c, t, lr, decay, step);
        return;
    }
    for (size_t i = 0; i < t->n; i++) {
        t->m[i] = mu * t->m[i] + (1 - mu) * t->g[i];
        t->v[i] = c->nesterov ? (1 - mu) * t->g[i] + mu * t->m[i] : t->m[i];
    }
    for (size_t at = 0; at < t->rows; at += rows)
        orthogonal_reference(t->v + at * t->cols, rows, t->cols,
                             c->muon_coefficients == PLAIT_MUON_POLAR_EXPRESS);
    for (size_t i = 0; i < t->n; i++)
        t->w[i] -= lr * (0.2 * sqrt(longest) * t->v[i] + decay * t->w[i]);
}

/* Replaces the gradient t->g by the direction. */
static void adafactor_direction(struct tensor *t, double beta)
{
    const double eps = 0x1p-23;
    double mean = 0;

    for (size_t i = 0; i < t->rows; i++)
        t->r[i] *= beta;
    for (size_t j = 0; j < t->cols; j++)
        t->c[j] *= beta;
    for (size_t k = 0; k < t->n; k++) {
        double square = t->g[k] * t->g[k] * (1 - beta);

        t->r[k / t->cols] += square / (double)t->cols;
        t->c[k % t->cols] += square / (double)t->rows;
        t->v[k] = beta * t->v[k] + square;
    }
    for (size_t i = 0; i < t->rows; i++)
        mean += t->r[i] / (double)t->rows;
    for (size_t k = 0; k < t->n; k++) {
        double v = t->of->ndim < 2 ? t->v[k]
                                   : t->r[k / t->cols] * t->c[k % t->cols] /
                                         fmax(mean, eps);

        t->g[k] /= sqrt(fmax(v, eps * eps));
    }
}

static void adafactor_step(struct tensor *t, double lr, double decay, int step)
{
    double root = sqrt((double)t->n), alpha;

    adafactor_direction(t, 1 - pow(step, -0.8));
    alpha = fmax(1e-3, norm(t->w, t->n) / root) * fmin(lr, 1 / sqrt(step)) /
            fmax(1, norm(t->g, t->n) / root);
    for (size_t i = 0; i < t->n; i++)
        t->w[i] -= alpha * t->g[i] + lr * decay * t->w[i];
}

/* -- the same by the runtime ---------------------------------------------- */

static int open_job(struct optim_job *job, const struct plait_ops *ops,
                    const char *yaml)
{
    struct plait_error err = {""};
    struct plait_job_config *config =
        plait_job_config_parse("test", yaml, strlen(yaml), NULL, 0, &err);

    if (optim_job_open(job, config, ops, 2, seed, &err) < 0)
        return ok(0, "setup: %s", err.text), -1;
    return 0;
}

static void open_tensor(struct tensor *t, const struct plait_optim_slice *s)
{
    double **all[] = {&t->w, &t->g, &t->m, &t->v, &t->r, &t->c};

    t->of = s->tensor;
    t->rows = s->tensor->shape[0];
    t->cols = s->tensor->shape[1];
    t->n = t->rows * t->cols;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        *all[i] = calloc(t->n, sizeof(**all[i]));
    for (size_t k = 0; k < t->n; k++)
        t->w[k] = s->master[k];
}

static void close_tensor(struct tensor *t)
{
    double *all[] = {t->w, t->g, t->m, t->v, t->r, t->c};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

/* The gradients are at most this large. */
static double largest = 1;

static void put_gradient(struct optim_job *job,
                         const struct plait_optim_slice *s, struct tensor *t)
{
    float *to = job->model->regions[s->tensor->region].grad +
                s->tensor->offset + s->first;

    for (size_t k = 0; k < t->n; k++) {
        to[k] = (float)((uniform() - 0.45) * largest);
        t->g[k] = to[k] * scale;
    }
}

/* The distance from the formula over the norm. */
static double deviation(const struct plait_optim_slice *s,
                        const struct tensor *t)
{
    double diff = 0;

    for (size_t k = 0; k < t->n; k++)
        diff += pow(s->master[k] - t->w[k], 2);
    return sqrt(diff) / norm(t->w, t->n);
}

static double run_steps(struct optim_job *job, int *bad)
{
    const struct plait_optim_config *c = &job->config->optim;
    struct tensor *t = calloc(job->nslices, sizeof(*t));
    double worst = 0;

    for (int i = 0; i < job->nslices; i++)
        open_tensor(&t[i], &job->slices[i]);
    for (int step = 1; step <= STEPS; step++) {
        double lr = (float)(c->lr * (1 + 0.5 * sin(step)));

        for (int i = 0; i < job->nslices; i++)
            put_gradient(job, &job->slices[i], &t[i]);
        *bad |= plait_optim_step(job->optim, lr, (float)scale, step) < 0;
        for (int i = 0; i < job->nslices; i++) {
            double decay = t[i].of->decay ? c->weight_decay : 0;

            if (c->kind == PLAIT_OPTIM_MUON)
                muon_step(c, &t[i], lr, decay, step);
            else
                adafactor_step(&t[i], lr, decay, step);
        }
    }
    for (int i = 0; i < job->nslices; i++) {
        double d = deviation(&job->slices[i], &t[i]);

        worst = d <= worst ? worst : d;
        close_tensor(&t[i]);
    }
    free(t);
    return worst;
}

/* A model whose sizes all differ, so that no shape occurs twice. */
static void write_yaml(char *text, size_t size, int model, const char *keys,
                       const char *precision)
{
    static const int low[MODELS] = {8, 20, 32};
    int heads = 2, hidden = heads * between(low[model] / 2, low[model] / 2 + 5);

    snprintf(text, size,
             "model: {family: gpt2, layers: 1, hidden: %d, heads: %d, ffn: "
             "%d, vocab: %d, seq_len: %d}\n"
             "optim: {lr: 3e-3, weight_decay: 0.05, %s}\n"
             "train: {precision: %s}\n",
             hidden, heads, between(44, 60), between(61, 90), between(3, 7),
             keys, precision);
}

static void check(const struct plait_ops *ops, const char *keys,
                  const char *precision, double most)
{
    double worst = 0, d;
    int bad = 0;

    for (int i = 0; i < MODELS; i++) {
        struct optim_job job = {0};
        char yaml[512];

        write_yaml(yaml, sizeof(yaml), i, keys, precision);
        if (open_job(&job, ops, yaml) < 0)
            return;
        d = run_steps(&job, &bad);
        worst = d <= worst ? worst : d;
        optim_job_close(&job);
    }
    ok(!bad && worst <= most, "%s, %s, %s: off by %.1e of the norm, at most %g",
       ops->name, keys, precision, worst, most);
}

/* In fp16 gradients that are all below half its smallest number, 6e-8, step as
 * far as others do. A step's rounding errors accumulate. */
static void check_small(const struct plait_ops *ops)
{
    largest = 5e-8;
    check(ops, "name: muon, momentum: 0.9, eps: 1e-12", "fp16", 1e-2);
    largest = 1;
}

int main(void)
{
    static const char *const rules[] = {
        "name: muon, momentum: 0.9, nesterov: true, eps: 1e-6",
        "name: muon, momentum: 0.95", "name: muon, muon_heads: true",
        "name: muon, muon_heads: true, muon_coefficients: polar-express",
        "name: adafactor"};

    seed = test_seed();
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        check(plait_ops_ref(), rules[i], "fp32", 1e-6);
        check(plait_ops_cpu(), rules[i], "fp32", 1e-6);
    }
    check_small(plait_ops_ref());
    check_small(plait_ops_cpu());
    return done_testing();
}
