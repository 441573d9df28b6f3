/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "optim_job.h"
#include "tap.h"

/* QK-clip: the largest logits that attention tells, and what becomes of weights
 * whose logits were too large. One process. */

enum { LAYERS = 2, HEADS = 4, WIDTH = 4, TAU = 10 };

#define MODEL                                                             \
    "model: {family: llama, layers: 2, hidden: 16, heads: 4, ffn: 8,\n"   \
    "        vocab: 31, seq_len: 8, attention_bias: qkv, kv_heads: %d}\n" \
    "lr: {schedule: constant}\n"                                          \
    "train: {precision: %s}\n"                                            \
    "optim: {name: %s, qk_clip: 10}\n"

/* -- the logits ----------------------------------------------------------- */

/* Two queries of a head of two columns. Scores, by a scale of 1/2: the first
 * sees 1/2 (1 * 3) = 1.5; the second 1/2 (2 * 3) = 3 and, of its own key,
 * 1/2 (2 * 1 - 4 * 2) = -3. What it does not see would be 1/2 (1 * 1) for the
 * first. */
static void test_logits(const struct plait_ops *ops, const char *name)
{
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_queue *q = ops->queue_create(dev, 0);
    float qkv[2][6] = {{1, 0, 3, 0, 1, 1}, {2, -4, 1, 2, 1, 1}};
    float out[2][2], lse[2], peak = -INFINITY;
    struct plait_attention_forward f = {.type = PLAIT_F32,
                                        .a = {.batch = 1,
                                              .q_len = 2,
                                              .k_len = 2,
                                              .q_heads = 1,
                                              .kv_heads = 1,
                                              .head_dim = 2,
                                              .q_stride = 6,
                                              .kv_stride = 6,
                                              .scale = 0.5f},
                                        .out = out,
                                        .lse = lse,
                                        .Q = &qkv[0][0],
                                        .K = &qkv[0][2],
                                        .V = &qkv[0][4],
                                        .peak = &peak};
    int rc = ops->attention_forward(q, &f);

    ok(rc == 0 && peak == 3, "%s: the largest score is %g", name, (double)peak);
    peak = 3.5f;
    rc = ops->attention_forward(q, &f);
    ok(rc == 0 && peak == 3.5f, "%s: a larger one stays", name);
    qkv[1][0] = -2;
    qkv[0][0] = -1;
    qkv[1][1] = 0;
    peak = -INFINITY;
    rc = ops->attention_forward(q, &f);
    ok(rc == 0 && peak == -1, "%s: below 0 it is %g", name, (double)peak);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

/* -- the weights ---------------------------------------------------------- */

static int open_job(struct optim_job *job, int kv_heads, const char *optimizer,
                    const char *precision)
{
    struct plait_error err = {""};
    char yaml[512];

    snprintf(yaml, sizeof(yaml), MODEL, kv_heads, precision, optimizer);
    if (optim_job_open(
            job,
            plait_job_config_parse("test", yaml, strlen(yaml), NULL, 0, &err),
            plait_ops_ref(), 1, 3, &err) < 0)
        return ok(0, "setup: %s", err.text), -1;
    return 0;
}

/* The logits of layer 0 and 1; head 1 of the first is 4 tau, head 3 of the
 * second 2.25 tau, others at most tau. */
static const float logits[LAYERS * HEADS] = {10, 40, -3, 9, 1, 2, 3, 22.5};

/* What a number of a tensor is to be multiplied by. */
static double factor_of(const struct plait_tensor *t, size_t row, bool shared)
{
    bool query = strstr(t->name, "attention.q.") != NULL;
    bool key = strstr(t->name, "attention.k.") != NULL;
    size_t head = row / WIDTH;
    double gamma = t->layer == 0 && head == 1   ? 1.0 / 4
                   : t->layer == 1 && head == 3 ? 1 / 2.25
                                                : 1;

    if (shared)
        return query ? gamma : 1;
    return query || key ? sqrt(gamma) : 1;
}

/* All masters become their numbers: 1, 2, 3 .. within each tensor. */
static void number_masters(const struct optim_job *job)
{
    for (int i = 0; i < job->nslices; i++)
        for (size_t k = 0; k < job->slices[i].count; k++)
            job->slices[i].master[k] = (float)(k + 1);
}

static int count_wrong(const struct optim_job *job, bool shared, bool clipped)
{
    int wrong = 0;

    for (int i = 0; i < job->nslices; i++) {
        const struct plait_tensor *t = job->slices[i].tensor;

        for (size_t k = 0; k < job->slices[i].count; k++) {
            double f = clipped ? factor_of(t, k / t->shape[1], shared) : 1;
            double want = (double)(k + 1) * f;

            wrong += !(fabs(job->slices[i].master[k] - want) <= 1e-6 * want);
        }
    }
    return wrong;
}

static int clip(const struct optim_job *job, bool stepped, double *max)
{
    struct plait_mesh *mesh = job->mesh;

    if (mesh->ops->to_device(mesh->q, job->model->peaks, logits,
                             sizeof(logits)) < 0)
        return -1;
    return plait_optim_qk_clip(job->optim, stepped, max);
}

static void test_weights(int kv_heads, const char *what)
{
    struct optim_job job = {0};
    double max = NAN;
    int rc;

    if (open_job(&job, kv_heads, "adamw", "fp32") < 0)
        return;
    number_masters(&job);
    rc = clip(&job, false, &max);
    ok(rc == 0 && max == 40 && count_wrong(&job, false, false) == 0,
       "%s: a skipped step scales nothing", what);
    rc = clip(&job, true, &max);
    ok(rc == 0 && max == 40 && count_wrong(&job, kv_heads < HEADS, true) == 0,
       "%s: the rows of the two heads, and no others", what);
    number_masters(&job);
    rc = plait_optim_qk_clip(job.optim, true, &max);
    ok(rc == 0 && max == -INFINITY && count_wrong(&job, false, false) == 0,
       "%s: a step's logits count once", what);
    optim_job_close(&job);
}

/* The weights of the computation follow, in 16 bits too. */
static void test_computed(void)
{
    struct optim_job job = {0};
    struct plait_error err;
    int wrong = 0;
    double max;

    if (open_job(&job, HEADS, "adamw", "bf16") < 0)
        return;
    number_masters(&job);
    ok(plait_optim_refresh(job.optim, &err) == 0 && clip(&job, true, &max) == 0,
       "bf16");
    for (int i = 0; i < job.nslices; i++) {
        const struct plait_tensor *t = job.slices[i].tensor;
        const uint16_t *w =
            (const uint16_t *)job.model->regions[t->region].weight + t->offset;

        for (size_t k = 0; k < t->count; k++) {
            uint32_t bits = (uint32_t)w[k] << 16;
            float x, want = job.slices[i].master[k];

            memcpy(&x, &bits, sizeof(x));
            wrong += !(fabsf(x - want) <= 0x1p-8f * want);
        }
    }
    ok(wrong == 0, "%d weights of the computation are not the masters'", wrong);
    optim_job_close(&job);
}

/* Gradients are taken at x + (1 - beta1) lead: both are scaled. */
static void test_average(void)
{
    struct optim_job job = {0};
    int wrong = 0;
    double max;

    if (open_job(&job, HEADS, "schedulefree", "fp32") < 0)
        return;
    number_masters(&job);
    for (int i = 0; i < job.nslices; i++) {
        float *lead = job.slices[i].state[0];

        for (size_t k = 0; k < job.slices[i].count; k++)
            lead[k] = 2;
    }
    ok(clip(&job, true, &max) == 0 && count_wrong(&job, false, true) == 0,
       "schedulefree: the averages");
    for (int i = 0; i < job.nslices; i++) {
        const struct plait_tensor *t = job.slices[i].tensor;
        const float *lead = job.slices[i].state[0];

        for (size_t k = 0; k < job.slices[i].count; k++)
            wrong += !(fabs(lead[k] -
                            2 * factor_of(t, k / t->shape[1], false)) <= 1e-6);
    }
    ok(wrong == 0, "and %d wrong numbers of what is ahead of them", wrong);
    optim_job_close(&job);
}

static void test_off(void)
{
    struct optim_job job = {0};
    struct plait_error err = {""};
    const char *set[] = {"optim.qk_clip=0"};
    char yaml[512];
    double max = 7;

    snprintf(yaml, sizeof(yaml), MODEL, 4, "fp32", "adamw");
    if (optim_job_open(
            &job,
            plait_job_config_parse("test", yaml, strlen(yaml), set, 1, &err),
            plait_ops_ref(), 1, 3, &err) < 0) {
        ok(0, "setup: %s", err.text);
        return;
    }
    ok(!job.model->peaks && plait_optim_qk_clip(job.optim, true, &max) == 0 &&
           max == 7,
       "without optim.qk_clip there are no logits");
    optim_job_close(&job);
}

int main(void)
{
    test_logits(plait_ops_ref(), "ref");
    test_logits(plait_ops_cpu(), "cpu");
    test_weights(HEADS, "a key head each");
    test_weights(2, "shared key heads");
    test_computed();
    test_average();
    test_off();
    return done_testing();
}
