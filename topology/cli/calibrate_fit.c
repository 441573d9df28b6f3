/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "topology/cli/calibrate.h"

/* Least squares over the logarithms of the constants, by Gauss and Newton's
 * method with Levenberg and Marquardt's damping. */

/* What parts count of a step's own error: they share its noise, and are means
 * where it is a median. */
#define PART 0.3
#define ROUNDS 60

enum { N = CALIBRATE_CONSTANTS };

static const struct {
    const char *name; /* in a site file */
    size_t offset;    /* of a double in struct plait_gpu_type */
    double unit;
    double least, most; /* in `unit`s, as the site file takes it */
    /* A factor e counts as this much of a step's error: what no run shows
     * stays what it was, and what they show is hardly held back. Attention's
     * is of its rate over the products', which few tables tell apart. */
    double prior;
} constants[N] = {
    {"matmul", offsetof(struct plait_gpu_type, matmul), 1, 1e-3, 1, 0.001},
    {"layer_us", offsetof(struct plait_gpu_type, layer_s), 1e-6, 1e-3, 1e6,
     0.001},
    {"stream", offsetof(struct plait_gpu_type, stream), 1, 1e-3, 1, 0.001},
    {"attention", offsetof(struct plait_gpu_type, attention), 1, 1e-3, 1, 0.03},
    {"link_gbps", offsetof(struct plait_gpu_type, link_bw), 1e9, 1e-3, 1e6,
     0.003},
    {"link_us", offsetof(struct plait_gpu_type, link_alpha), 1e-6, 1e-3, 1e6,
     0.003},
};

static double *member(struct plait_gpu_type *gpu, int k)
{
    return (double *)((char *)gpu + constants[k].offset);
}

const char *calibrate_constant_name(int k)
{
    return constants[k].name;
}

double calibrate_constant(const struct plait_gpu_type *gpu, int k)
{
    double value;

    memcpy(&value, (const char *)gpu + constants[k].offset, sizeof(value));
    return value / constants[k].unit;
}

/* *gpu with each constant times e^x. Without parts of a step to tell them
 * apart, attention moves with the products. */
static void move(const struct plait_gpu_type *from, const double *x,
                 struct plait_gpu_type *gpu)
{
    *gpu = *from;
    for (int k = 0; k < N; k++) {
        double unit = constants[k].unit, value = *member(gpu, k) * exp(x[k]);

        if (strcmp(constants[k].name, "attention") == 0)
            value *= exp(x[0]);
        *member(gpu, k) = fmax(constants[k].least * unit,
                               fmin(constants[k].most * unit, value));
    }
    gpu->matmul8 = fmin(1, gpu->matmul8 * exp(x[0]));
}

enum { ERRORS = 3 }; /* of a run: its step, its products, its attention */

static int errors_of(const struct calibrate_run *run,
                     const struct plait_gpu_type *gpu, double *error)
{
    struct plait_estimate e;
    int n = 1;

    calibrate_estimate(run, gpu, &e);
    error[0] = log(e.step_s / run->step_s);
    if (e.cores_s > 0) /* parts contain what others did meanwhile */
        return 1;
    if (run->products > 0 && e.matmul_s > 0)
        error[n++] = PART * log(e.matmul_s / (run->products * run->step_s));
    if (run->attention > 0 && e.attention_s > 0)
        error[n++] = PART * log(e.attention_s / (run->attention * run->step_s));
    return n;
}

/* Of all, with what the constants moved. */
static double squares(const struct calibrate_runs *runs, int without,
                      const struct plait_gpu_type *from, const double *x)
{
    struct plait_gpu_type gpu;
    double sum = 0, error[ERRORS];

    move(from, x, &gpu);
    for (int i = 0; i < runs->n; i++)
        if (i != without)
            for (int n = errors_of(&runs->at[i], &gpu, error); n-- > 0;)
                sum += error[n] * error[n];
    for (int k = 0; k < N; k++)
        sum += pow(constants[k].prior * x[k], 2);
    return sum;
}

/* The normal equations at x: a step solves a * step = b. */
static void linearize(const struct calibrate_runs *runs, int without,
                      const struct plait_gpu_type *from, const double *x,
                      double a[N][N], double *b)
{
    const double h = 1e-4;
    struct plait_gpu_type gpu, moved[N];

    memset(a, 0, sizeof(double[N][N]));
    move(from, x, &gpu);
    for (int k = 0; k < N; k++) {
        double y[N];

        memcpy(y, x, sizeof(y));
        y[k] += h;
        move(from, y, &moved[k]);
        a[k][k] = pow(constants[k].prior, 2);
        b[k] = -a[k][k] * x[k];
    }
    for (int i = 0; i < runs->n; i++) {
        double error[ERRORS], then[N][ERRORS];
        int n = i == without ? 0 : errors_of(&runs->at[i], &gpu, error);

        for (int k = 0; n && k < N; k++)
            errors_of(&runs->at[i], &moved[k], then[k]);
        for (int e = 0; e < n; e++)
            for (int k = 0; k < N; k++) {
                double slope = (then[k][e] - error[e]) / h;

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

void calibrate_fit(const struct calibrate_runs *runs, int without,
                   struct plait_gpu_type *gpu)
{
    const struct plait_gpu_type from = *gpu;
    double x[N] = {0}, damping = 1e-3, best = squares(runs, without, &from, x);

    for (int round = 0; round < ROUNDS; round++) {
        double a[N][N], b[N], y[N], error;

        linearize(runs, without, &from, x, a, b);
        for (int k = 0; k < N; k++)
            a[k][k] *= 1 + damping;
        solve(a, b);
        for (int k = 0; k < N; k++)
            y[k] = x[k] + fmax(-1, fmin(1, b[k]));
        error = squares(runs, without, &from, y);
        damping *= error < best ? 0.2 : 10;
        if (error >= best)
            continue;
        memcpy(x, y, sizeof(x));
        if (best - error < 1e-12)
            break;
        best = error;
    }
    move(&from, x, gpu);
}

/* The most that any of them says. */
void calibrate_processors(const struct calibrate_runs *runs,
                          struct plait_gpu_type *gpu)
{
    double rate[PLAIT_FP8 + 1] = {0};

    for (int i = 0; i < runs->n; i++) {
        const struct calibrate_run *r = &runs->at[i];
        double here = fmin(r->node_ranks, plait_layout_world(&r->layout));
        double used = here * r->threads, nodes;
        double *most = &rate[r->config->train.precision];

        if (gpu->cores <= 0 || r->cores <= 0)
            continue;
        plait_gpu_type_set_cores(gpu, r->cores);
        gpu->per_node = (int)fmax(gpu->per_node, here);
        gpu->domain = gpu->per_node;
        nodes = plait_layout_world(&r->layout) / here;
        used = fmin(1, used / r->cores);
        *most = fmax(*most, r->peak / nodes / used);
    }
    if (rate[PLAIT_FP32] > 0)
        gpu->flops32 = gpu->flops_tf32 = rate[PLAIT_FP32];
    if (rate[PLAIT_BF16] > 0)
        gpu->flops16 = gpu->flops8 = rate[PLAIT_BF16];
}
