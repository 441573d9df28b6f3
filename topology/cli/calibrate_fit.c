/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "topology/cli/calibrate.h"

/* Least squares over the logarithms of the constants, by Gauss and Newton's
 * method with Levenberg and Marquardt's damping. */

/* The weight of the errors of a step's parts, relative to the step's own: they
 * have the same noise, and they are means, while the step's time is a median.
 * Products in processor time have full weight. */
#define PART 0.3
/* The weight of a step in which ranks took turns on cores: how long the system
 * let each of them wait is part of it. */
#define TURNS 0.3
/* Errors beyond this have less and less weight: a run that the model does not
 * describe (its ranks were kept on one core, the machine was not quiet) must
 * not bend the constants of the others. */
#define OUTLIER 0.01
/* The share of a layer's thread starts that measured products include. */
#define STARTS 0.5
#define ROUNDS 200

enum { N = CALIBRATE_CONSTANTS };

enum fitted_of { OF_ALL, OF_GPUS, OF_PROCESSORS };

#define AT(member) offsetof(struct plait_gpu_type, member)

static const struct {
    const char *name; /* in a site file */
    size_t offset;    /* of a double in struct plait_gpu_type */
    size_t twin;      /* of a constant that moves with it; 0: none */
    double unit;
    double least, most; /* in `unit`s, as the site file takes it */
    /* The prior's width: changing the constant by a factor e costs as much as
     * this error of a step. So a constant that no run shows stays as it was,
     * and others are hardly held back. Attention's is for its rate relative to
     * the products', which few tables tell apart. */
    double prior;
    enum fitted_of of;
} constants[N] = {
    {"matmul", AT(matmul), AT(matmul8), 1, 1e-3, 1, 0.001, OF_GPUS},
    {"tflops", AT(flops16), AT(flops8), 1e12, 1e-3, 1e6, 0.001, OF_PROCESSORS},
    {"tflops_fp32", AT(flops32), AT(flops_tf32), 1e12, 1e-3, 1e6, 0.001,
     OF_PROCESSORS},
    {"memory_gbytes_s", AT(memory_bw), 0, 1e9, 1e-3, 1e6, 0.05, OF_PROCESSORS},
    {"layer_us", AT(layer_s), 0, 1e-6, 1e-3, 1e6, 0.001, OF_ALL},
    {"stream", AT(stream), 0, 1, 1e-3, 1, 0.001, OF_ALL},
    {"attention", AT(attention), 0, 1, 1e-3, 1, 0.03, OF_ALL},
    {"link_gbytes_s", AT(link_bw), 0, 1e9, 1e-3, 1e6, 0.003, OF_ALL},
    {"link_us", AT(link_alpha), 0, 1e-6, 1e-3, 1e6, 0.003, OF_ALL},
};

/* On CPUs `stream` may be above 1, as caches hold what is passed on. */
#define STREAM_MOST 10

static double *member(struct plait_gpu_type *gpu, size_t offset)
{
    return (double *)((char *)gpu + offset);
}

/* On CPUs a link's time is mostly that of ranks that wake each other. */
static double prior_of(const struct plait_gpu_type *gpu, int k)
{
    bool link = constants[k].offset == AT(link_bw) ||
                constants[k].offset == AT(link_alpha);

    return constants[k].prior * (link && gpu->cores > 0 ? 10 : 1);
}

static bool is_fitted(const struct plait_gpu_type *gpu, int k)
{
    return constants[k].of == OF_ALL ||
           (constants[k].of == OF_PROCESSORS) == (gpu->cores > 0);
}

const char *calibrate_constant_name(const struct plait_gpu_type *gpu, int k)
{
    return is_fitted(gpu, k) ? constants[k].name : NULL;
}

double calibrate_constant(const struct plait_gpu_type *gpu, int k)
{
    double value;

    memcpy(&value, (const char *)gpu + constants[k].offset, sizeof(value));
    return value / constants[k].unit;
}

static double limited(const struct plait_gpu_type *gpu, int k, double value)
{
    double unit = constants[k].unit, most = constants[k].most;

    if (gpu->cores > 0 && constants[k].offset == AT(stream))
        most = STREAM_MOST;
    return fmax(constants[k].least * unit, fmin(most * unit, value));
}

/* *gpu with each constant times e^x. Without parts of a step to tell them
 * apart, attention moves with the products, as it does with their peak. */
static void move(const struct plait_gpu_type *from, const double *x,
                 struct plait_gpu_type *gpu)
{
    *gpu = *from;
    for (int k = 0; k < N; k++) {
        double by = exp(x[k]);

        if (!is_fitted(from, k))
            continue;
        if (constants[k].offset == AT(attention))
            by *= exp(x[0]);
        *member(gpu, constants[k].offset) =
            limited(from, k, by * *member(gpu, constants[k].offset));
        if (constants[k].twin)
            *member(gpu, constants[k].twin) =
                limited(from, k, by * *member(gpu, constants[k].twin));
    }
}

enum { ERRORS = 4 }; /* of a run: its step, products, attention, the rest */

static int errors_of(const struct calibrate_run *run,
                     const struct plait_gpu_type *gpu, double *error)
{
    struct plait_estimate e;
    double rest, products;
    int n = 1;

    calibrate_estimate(run, gpu, &e);
    error[0] = log(e.step_s / run->step_s);
    if (e.cores_s > 0)
        error[0] *= TURNS;
    if (e.cores_s > 0 && !run->own_time) /* the parts include others' work */
        return 1;
    products = e.matmul_s + STARTS * e.launch_s;
    if (run->products > 0 && e.matmul_s > 0)
        error[n++] = (run->own_time ? 1 : PART) *
                     log(products / (run->products * run->step_s));
    if (run->attention > 0 && e.attention_s > 0)
        error[n++] = PART * log(e.attention_s / (run->attention * run->step_s));
    rest = run->step_s * (1 - run->products - run->attention);
    if (plait_layout_world(&run->layout) == 1 && n == 3 && rest > 0)
        error[n++] = PART * log((e.step_s - products - e.attention_s) / rest);
    return n;
}

/* An error's square, or Cauchy's loss. */
static double loss(double error, bool robust)
{
    double far = error / OUTLIER;

    return robust ? OUTLIER * OUTLIER * log1p(far * far) : error * error;
}

/* The error's weight in the normal equations. */
static double weight_of(double error, bool robust)
{
    double far = error / OUTLIER;

    return robust ? 1 / (1 + far * far) : 1;
}

/* What the constants are fitted to, and from which on. */
struct fit {
    const struct calibrate_runs *runs;
    int without; /* a run that is left out; -1: none */
    const struct plait_gpu_type *from;
    bool robust; /* runs that are far off weigh less */
};

/* The loss of all runs, with the prior of the constants' changes. */
static double squares(const struct fit *fit, const double *x)
{
    const struct calibrate_runs *runs = fit->runs;
    struct plait_gpu_type gpu;
    double sum = 0, error[ERRORS];

    move(fit->from, x, &gpu);
    for (int i = 0; i < runs->n; i++)
        if (i != fit->without)
            for (int n = errors_of(&runs->at[i], &gpu, error); n-- > 0;)
                sum += loss(error[n], fit->robust);
    for (int k = 0; k < N; k++)
        sum += pow(prior_of(fit->from, k) * x[k], 2);
    return sum;
}

/* The normal equations at x: a step solves a * step = b. */
static void linearize(const struct fit *fit, const double *x, double a[N][N],
                      double *b)
{
    const struct calibrate_runs *runs = fit->runs;
    const double h = 1e-4;
    struct plait_gpu_type gpu, moved[N];

    memset(a, 0, sizeof(double[N][N]));
    move(fit->from, x, &gpu);
    for (int k = 0; k < N; k++) {
        double y[N];

        memcpy(y, x, sizeof(y));
        y[k] += h;
        move(fit->from, y, &moved[k]);
        a[k][k] = pow(prior_of(fit->from, k), 2);
        b[k] = -a[k][k] * x[k];
    }
    for (int i = 0; i < runs->n; i++) {
        double error[ERRORS] = {0}, then[N][ERRORS];
        int n = i == fit->without ? 0 : errors_of(&runs->at[i], &gpu, error);

        for (int k = 0; n && k < N; k++) {
            memcpy(then[k], error, sizeof(error));
            errors_of(&runs->at[i], &moved[k], then[k]);
        }
        for (int e = 0; e < n; e++)
            for (int k = 0; k < N; k++) {
                double slope = weight_of(error[e], fit->robust) *
                               (then[k][e] - error[e]) / h;

                b[k] -= slope * error[e];
                for (int l = 0; l < N; l++)
                    a[k][l] += slope * (then[l][e] - error[e]) / h;
            }
    }
}

/* By Gauss's elimination; a is positive definite. */
static void solve(double a[N][N], double *b)
{
    for (int k = 0; k < N; k++)
        for (int i = k + 1; i < N; i++) {
            double factor = a[i][k] / a[k][k];

            for (int j = k; j < N; j++)
                a[i][j] -= factor * a[k][j];
            b[i] -= factor * b[k];
        }
    for (int k = N - 1; k >= 0; k--) {
        for (int j = k + 1; j < N; j++)
            b[k] -= a[k][j] * b[j];
        b[k] /= a[k][k];
    }
}

/* Take constants out of this round's equations that are at a limit of the site
 * file and would move beyond it. */
static void hold_limited(const struct plait_gpu_type *from, const double *x,
                         double a[N][N], double *b)
{
    struct plait_gpu_type gpu;

    move(from, x, &gpu);
    for (int k = 0; k < N; k++) {
        double value = calibrate_constant(&gpu, k) * constants[k].unit;
        double further = value * (b[k] > 0 ? 1 + 1e-9 : 1 - 1e-9);

        if (is_fitted(from, k) && limited(from, k, further) == further)
            continue;
        for (int l = 0; l < N; l++)
            a[k][l] = a[l][k] = 0;
        a[k][k] = 1;
        b[k] = 0;
    }
}

static double longest(const double *b)
{
    double most = 1;

    for (int k = 0; k < N; k++)
        most = fmax(most, fabs(b[k]));
    return most;
}

static void descend(const struct fit *fit, double *x)
{
    double damping = 1e-3, best = squares(fit, x);

    for (int round = 0; round < ROUNDS; round++) {
        double a[N][N], b[N], y[N], error, most;

        linearize(fit, x, a, b);
        hold_limited(fit->from, x, a, b);
        for (int k = 0; k < N; k++)
            a[k][k] *= 1 + damping;
        solve(a, b);
        most = longest(b);
        for (int k = 0; k < N; k++)
            y[k] = x[k] + b[k] / most;
        error = squares(fit, y);
        damping *= error < best ? 0.2 : 10;
        if (error >= best)
            continue;
        memcpy(x, y, sizeof(y));
        if (best - error < 1e-12)
            break;
        best = error;
    }
}

void calibrate_fit(const struct calibrate_runs *runs, int without,
                   struct plait_gpu_type *gpu)
{
    const struct plait_gpu_type from = *gpu;
    struct fit fit = {.runs = runs, .without = without, .from = &from};
    double x[N] = {0};

    descend(&fit, x);
    fit.robust = true;
    descend(&fit, x);
    move(&from, x, gpu);
}

/* On a CPU, plait-train takes the rate of its own large products for the peak.
 * The smaller products of layers nearly reach it. */
#define NEARLY 0.95
/* Seconds of a message between ranks that share cores, as a first guess: the
 * system has to let the other one run. */
#define WAKE 1e-4
#define COPY 10e9

static void start_processors(struct plait_gpu_type *gpu)
{
    gpu->matmul = gpu->matmul8 = NEARLY;
    if (gpu->link_alpha < WAKE)
        gpu->link_alpha = WAKE;
    if (gpu->link_bw > COPY)
        gpu->link_bw = COPY;
}

/* FLOP/s of a node's products, had all of its cores been used. */
static double node_rate(const struct calibrate_run *r)
{
    double world = plait_layout_world(&r->layout);
    double here = fmin(r->node_ranks, world);
    double used = fmin(1, here * r->threads / r->cores);

    return r->peak / (world / here) / used;
}

static double most_of_core(const struct calibrate_run *run,
                           const struct calibrate_runs *runs)
{
    double most = 0;

    for (int i = 0; i < runs->n; i++) {
        const struct calibrate_run *r = &runs->at[i];

        if (r->cores > 0 &&
            r->config->train.precision == run->config->train.precision)
            most = fmax(most, node_rate(r) / r->cores);
    }
    return most;
}

double calibrate_share(const struct calibrate_run *run,
                       const struct calibrate_runs *runs,
                       const struct calibrate_runs *others)
{
    double most = fmax(most_of_core(run, runs), most_of_core(run, others));

    return run->cores > 0 && most > 0 ? node_rate(run) / run->cores / most : 1;
}

/* Take the highest figures of all runs. */
void calibrate_processors(const struct calibrate_runs *runs,
                          struct plait_gpu_type *gpu)
{
    double rate[PLAIT_FP8 + 1] = {0};

    for (int i = 0; i < runs->n; i++) {
        const struct calibrate_run *r = &runs->at[i];
        double here = fmin(r->node_ranks, plait_layout_world(&r->layout));
        double *most = &rate[r->config->train.precision];

        if (gpu->cores <= 0 || r->cores <= 0)
            continue;
        plait_gpu_type_set_cores(gpu, r->cores);
        gpu->per_node = (int)fmax(gpu->per_node, here);
        gpu->domain = gpu->per_node;
        *most = fmax(*most, node_rate(r));
    }
    if (rate[PLAIT_FP32] > 0 || rate[PLAIT_BF16] > 0)
        start_processors(gpu);
    if (rate[PLAIT_FP32] > 0)
        gpu->flops32 = gpu->flops_tf32 = rate[PLAIT_FP32];
    if (rate[PLAIT_BF16] > 0)
        gpu->flops16 = gpu->flops8 = rate[PLAIT_BF16];
}
