/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/eigen.h"
#include "kernels/kernels.h"
#include "optim_job.h"
#include "soap_reference.h"
#include "tap.h"

/* SOAP against its formulas in double: 100 steps over matrices of 24 shapes.
 * The weights are compared and not the bases, as the sign of a basis vector is
 * arbitrary. One process.
 *
 * With an eps that is larger than all second moments, the bound is 1e-6 of the
 * weights' norm. With a small eps, what rounding of the projected gradients can
 * cause is added. One fixed seed, because two eigenvalues that agree to
 * rounding may be sorted either way. */

enum { STEPS = 100, MODELS = 4 };
static const double scale = 0.5; /* of the gradients, as by clipping */
static const double most = 1e-6; /* of the norm of the weights */

static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 40) * 0x1p-24;
}

static int takes(const struct plait_optim_slice *s)
{
    return s->tensor->ndim == 2 && s->tensor->layer >= 0;
}

static void draw_gradient(struct optim_job *job,
                          const struct plait_optim_slice *s, double *g)
{
    float *to = job->model->regions[s->tensor->region].grad +
                s->tensor->offset + s->first;

    for (size_t k = 0; k < s->count; k++) {
        to[k] = (float)(uniform() - 0.45);
        if (g)
            g[k] = to[k] * scale;
    }
}

/* The deviation over what is allowed; *of_norm: the largest so far over the
 * weights' norm. */
static double deviation(const struct plait_optim_slice *s,
                        const struct soap_reference *ref, bool slack,
                        double *of_norm)
{
    const double *w = soap_reference_weights(ref);
    double diff = 0, norm = 0;

    for (size_t k = 0; k < s->count; k++) {
        diff += pow(s->master[k] - w[k], 2);
        norm += w[k] * w[k];
    }
    diff = sqrt(diff);
    norm = sqrt(norm);
    *of_norm = diff / norm <= *of_norm ? *of_norm : diff / norm;
    return diff / (most * norm + (slack ? soap_reference_slack(ref) : 0));
}

static int step_all(struct optim_job *job, struct soap_reference **ref,
                    int step)
{
    const struct plait_optim_config *c = &job->config->optim;
    double lr = (float)(c->lr * (1 + 0.5 * sin(step)));
    int i, rc;

    for (i = 0; i < job->nslices; i++)
        draw_gradient(job, &job->slices[i],
                      ref[i] ? soap_reference_gradient(ref[i]) : NULL);
    rc = plait_optim_step(job->optim, lr, (float)scale, step);
    for (i = 0; i < job->nslices; i++)
        if (ref[i])
            soap_reference_step(ref[i], c, lr);
    return rc;
}

/* The largest deviation() of any matrix; NaN if a step failed. */
static double run_steps(struct optim_job *job, bool slack, double *of_norm)
{
    struct soap_reference **ref = calloc(job->nslices, sizeof(*ref));
    double worst = 0;
    int step, i, rc = 0;

    for (i = 0; i < job->nslices; i++)
        if (takes(&job->slices[i]))
            ref[i] = soap_reference_create(job->slices[i].tensor->shape[0],
                                           job->slices[i].tensor->shape[1],
                                           job->slices[i].master);
    for (step = 1; step <= STEPS && rc == 0; step++)
        rc = step_all(job, ref, step);
    for (i = 0; i < job->nslices; i++) {
        double d;

        if (!ref[i])
            continue;
        d = deviation(&job->slices[i], ref[i], slack, of_norm);
        worst = d <= worst ? worst : d;
        soap_reference_destroy(ref[i]);
    }
    free(ref);
    return rc == 0 ? worst : NAN;
}

static double run_model(const struct plait_ops *ops, int model,
                        const char *keys, bool slack, double *of_norm)
{
    static const int hidden[MODELS] = {8, 18, 26, 34};
    static const int ffn[MODELS] = {21, 18, 47, 20};
    struct optim_job job = {0};
    struct plait_error err = {""};
    char yaml[512];
    double worst;

    snprintf(yaml, sizeof(yaml),
             "model: {family: gpt2, layers: 1, hidden: %d, heads: 2, ffn: %d, "
             "vocab: 11, seq_len: 3}\n"
             "optim: {name: soap, lr: 3e-3, weight_decay: 0.05, %s}\n",
             hidden[model], ffn[model], keys);
    if (optim_job_open(
            &job,
            plait_job_config_parse("test", yaml, strlen(yaml), NULL, 0, &err),
            ops, 2, seed, &err) < 0)
        return ok(0, "setup: %s", err.text), NAN;
    worst = run_steps(&job, slack, of_norm);
    optim_job_close(&job);
    return worst;
}

static void check(const struct plait_ops *ops, const char *keys, bool slack)
{
    double worst = 0, of_norm = 0;

    seed = 7;
    for (int i = 0; i < MODELS; i++) {
        double d = run_model(ops, i, keys, slack, &of_norm);

        worst = d <= worst ? worst : d;
    }
    ok(worst <= 1, "%s, %s: off by %.1e of the norm, %.2f of what is allowed",
       ops->name, keys, of_norm, worst);
}

/* a [n,n] times its eigenvectors is them times their values, which fall. */
static void check_eigenvectors(size_t n)
{
    double *a = calloc(n * n, sizeof(*a)), *v = calloc(n * n, sizeof(*v));
    double value[100], worst = 0;

    for (size_t i = 0; i < n * n; i++)
        a[i / n * n + i % n] = a[i % n * n + i / n] = v[i / n * n + i % n] =
            v[i % n * n + i / n] = uniform();
    ok(plait_eigenvectors(v, n, value) == 0, "eigenvectors of %zu x %zu", n, n);
    for (size_t k = 0; k < n * n; k++) {
        double sum = -value[k % n] * v[k % n * n + k / n];

        for (size_t i = 0; i < n; i++)
            sum += a[k / n * n + i] * v[k % n * n + i];
        worst = fabs(sum) <= worst ? worst : fabs(sum);
    }
    for (size_t k = 1; k < n; k++)
        worst = value[k] <= value[k - 1] ? worst : NAN;
    ok(worst < 1e-12, "they are its eigenvectors, largest first: off by %.1e",
       worst);
    a[n + 1] = NAN;
    ok(plait_eigenvectors(a, n, value) < 0 && errno == EDOM,
       "not of a matrix with a NaN");
    free(a);
    free(v);
}

int main(void)
{
    static const struct {
        const char *keys;
        bool slack;
    } cases[] = {
        {"eps: 1e-3", false},
        {"frequency: 3, max_dim: 20, betas: [0.95, 0.9], eps: 1e-3", false},
        {"eps: 1e-6", true},
        {"frequency: 3, max_dim: 20, betas: [0.95, 0.9]", true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check(plait_ops_ref(), cases[i].keys, cases[i].slack);
        check(plait_ops_cpu(), cases[i].keys, cases[i].slack);
    }
    check_eigenvectors(10); /* LAPACK divides matrices of more than 25 rows */
    check_eigenvectors(100);
    ok(plait_eigenvectors(NULL, 40000, NULL) < 0 && errno == EOVERFLOW,
       "not of a matrix larger than LAPACK's integers can count");
    return done_testing();
}
