/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/job/stage.h"
#include "topology/predict/estimate.h"
#include "topology/predict/scale.h"
#include "topology/predict/simulate.h"

/* Stages that take equal times: forward 1, backward 1 + 1. */
static struct plait_simulation *run(enum plait_schedule_kind kind, int p, int v,
                                    int m, double message, double reduce,
                                    const double *slow_rank,
                                    const double *slow_link)
{
    struct plait_stage_time *times = calloc((size_t)p * v, sizeof(*times));
    struct plait_simulation_request request = {.schedule = kind,
                                               .stages = p,
                                               .chunks = v,
                                               .microbatches = m,
                                               .times = times,
                                               .message = message,
                                               .slow_rank = slow_rank,
                                               .slow_link = slow_link};
    struct plait_simulation *s;
    struct plait_error err = {""};
    int i;

    for (i = 0; i < p * v; i++)
        times[i] = (struct plait_stage_time){.forward = 1,
                                             .backward_input = 1,
                                             .backward_weight = 1,
                                             .reduce = reduce,
                                             .buckets = 10};
    s = plait_simulation_create(&request, &err);
    if (!s)
        diag("%s", err.text);
    free(times);
    return s;
}

static int is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b) + 1e-12;
}

/* Every rank's computing, traffic and waiting add up to exactly the step, and
 * its spans do not overlap. */
static int adds_up(const struct plait_simulation *s)
{
    double end = 0, sum;
    int i;

    for (i = 0; i < s->stages; i++) {
        const struct plait_rank_time *t = &s->ranks[i];

        sum = t->compute + t->inner + t->bubble + t->wait_pp + t->wait_dp;
        if (!is_near(sum, s->step))
            return 0;
    }
    for (i = 0; i < s->nspans; i++) {
        const struct plait_span *span = &s->spans[i];

        if (i == 0 || span->rank != span[-1].rank ||
            (span->kind >= PLAIT_SPAN_REDUCE &&
             span[-1].kind < PLAIT_SPAN_REDUCE))
            end = 0;
        if (span->begin < end - 1e-9 || span->end > s->step * (1 + 1e-9))
            return 0;
        end = span->end;
    }
    return 1;
}

static void bubbles(void)
{
    static const struct {
        enum plait_schedule_kind kind;
        int p, v, m;
        double step;
    } cases[] = {
        {PLAIT_SCHEDULE_NAIVE, 4, 1, 8, 3 * 4 * 8},
        {PLAIT_SCHEDULE_GPIPE, 4, 1, 8, 3 * (8 + 3)},
        {PLAIT_SCHEDULE_1F1B, 4, 1, 8, 3 * (8 + 3)},
        {PLAIT_SCHEDULE_1F1B, 16, 1, 64, 3 * (64 + 15)},
        {PLAIT_SCHEDULE_INTERLEAVED, 4, 2, 8, 3 * (16 + 3)},
        {PLAIT_SCHEDULE_INTERLEAVED, 8, 4, 16, 3 * (64 + 7)},
        {PLAIT_SCHEDULE_ZB_H1, 4, 1, 8, 3 * 8 + 3},
        {PLAIT_SCHEDULE_1F1B, 1, 1, 8, 24},
    };
    struct plait_rank_time mean;
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double work = 3 * cases[i].m * cases[i].v;
        struct plait_simulation *s = run(cases[i].kind, cases[i].p, cases[i].v,
                                         cases[i].m, 0, 0, NULL, NULL);

        plait_simulation_mean(s, &mean);
        ok(is_near(s->step, cases[i].step) && adds_up(s) &&
               is_near(mean.bubble, cases[i].step - work) && mean.wait_pp == 0,
           "%s, p %d, v %d, m %d: the bubble is %.1f %%",
           plait_schedule_names[cases[i].kind], cases[i].p, cases[i].v,
           cases[i].m, 100 * mean.bubble / s->step);
        plait_simulation_destroy(s);
    }
}

static void messages(void)
{
    struct plait_simulation *s, *slow;
    double link[4] = {1, 3, 1, 1}, factor[4] = {1, 1, 1.5, 1};
    struct plait_rank_time mean;

    /* Down and up the pipeline once: 6 messages are on the critical path, as
     * the last rank at once sends back what the others wait for. */
    s = run(PLAIT_SCHEDULE_GPIPE, 4, 1, 1, 0.5, 0, NULL, NULL);
    ok(is_near(s->step, 3 * 4 + 6 * 0.5) && adds_up(s), "messages take time");
    plait_simulation_destroy(s);

    s = run(PLAIT_SCHEDULE_1F1B, 4, 1, 8, 0.1, 0, NULL, NULL);
    slow = run(PLAIT_SCHEDULE_1F1B, 4, 1, 8, 0.1, 0, NULL, link);
    plait_simulation_mean(s, &mean);
    ok(adds_up(s) && mean.wait_pp > 0, "exposed messages have a name");
    ok(adds_up(slow) && slow->step > s->step, "a slow link costs");
    plait_simulation_destroy(slow);
    slow = run(PLAIT_SCHEDULE_1F1B, 4, 1, 8, 0, 0, factor, NULL);
    ok(adds_up(slow) && is_near(slow->ranks[2].compute, 36) &&
           slow->step >= 36 && is_near(slow->ranks[0].compute, 24),
       "a slow rank holds up the others");
    plait_simulation_destroy(slow);
    plait_simulation_destroy(s);
}

static void gradients(void)
{
    struct plait_simulation *s;
    int i, exposed = 1;

    /* Ten buckets of 0.2 in a backward of 2: each is ready when the previous
     * one is done, and only the last one is exposed. */
    s = run(PLAIT_SCHEDULE_1F1B, 1, 1, 2, 0, 2, NULL, NULL);
    ok(is_near(s->step, 6 + 0.2) && is_near(s->ranks[0].wait_dp, 0.2) &&
           is_near(s->ranks[0].hidden, 1.8) && adds_up(s),
       "gradients hide behind backward, all but the last bucket");
    plait_simulation_destroy(s);
    s = run(PLAIT_SCHEDULE_1F1B, 1, 1, 2, 0, 20, NULL, NULL);
    ok(is_near(s->step, 4 + 0.2 + 20) && adds_up(s),
       "where they take longer they are seen");
    plait_simulation_destroy(s);
    s = run(PLAIT_SCHEDULE_INTERLEAVED, 4, 2, 8, 0, 1, NULL, NULL);
    for (i = 0; i < 4; i++)
        exposed &= s->ranks[i].wait_dp < 0.11 && s->ranks[i].hidden > 1.8;
    ok(exposed && adds_up(s), "an early chunk's hide behind the others");
    plait_simulation_destroy(s);
}

static void weights(void)
{
    struct plait_stage_time time = {.forward = 1,
                                    .backward_input = 1,
                                    .backward_weight = 1,
                                    .forward_comm = {0.25},
                                    .backward_comm = {[PLAIT_EP] = 0.25},
                                    .gather = 0.5,
                                    .reduce = 0.5,
                                    .buckets = 1};
    struct plait_simulation_request request = {.schedule = PLAIT_SCHEDULE_1F1B,
                                               .stages = 1,
                                               .chunks = 1,
                                               .microbatches = 4,
                                               .times = &time,
                                               .reduce_each = 1,
                                               .update = 0.125,
                                               .gather_updated = 0.0625};
    struct plait_error err;
    struct plait_simulation *s = plait_simulation_create(&request, &err);

    /* Only the first gather and the last reduction are exposed; the other seven
     * and three are hidden behind computing. */
    ok(s && is_near(s->step, 0.5 + 4 * 3.5 + 0.5 + 0.125 + 0.0625) &&
           is_near(s->ranks[0].inner, 2) &&
           is_near(s->ranks[0].wait_dp, 1.0625) &&
           is_near(s->ranks[0].hidden, 7 * 0.5 + 3 * 0.5) && adds_up(s),
       "ZeRO-3 gathers a pass ahead");
    plait_simulation_destroy(s);
    request.microbatches = 0;
    ok(!plait_simulation_create(&request, &err), "%s", err.text);
    request.microbatches = 3;
    request.stages = 2;
    request.chunks = 2;
    ok(!plait_simulation_create(&request, &err), "%s", err.text);
}

/* --- a model's stages --- */

static void set_model(struct plait_job_config *c, struct plait_layout *l,
                      enum plait_schedule_kind kind, int pp, int v, int m)
{
    memset(c, 0, sizeof(*c));
    c->model = (struct plait_model_config){.family = PLAIT_LLAMA,
                                           .layers = 24,
                                           .hidden = 2048,
                                           .heads = 16,
                                           .kv_heads = 16,
                                           .ffn = 8192,
                                           .vocab = 256,
                                           .seq_len = 2048};
    c->parallel.schedule = kind;
    c->parallel.virtual_stages = v;
    c->parallel.bucket_mib = 25;
    c->train.precision = PLAIT_BF16;
    c->train.micro_batch = 1;
    c->train.global_batch = m;
    plait_layout_init(l);
    l->size[PLAIT_PP] = pp;
}

static struct plait_simulation *simulate(const struct plait_job_config *c,
                                         const struct plait_layout *l,
                                         const struct plait_gpu_type *gpu)
{
    struct plait_stage_time times[256];
    struct plait_simulation_request request;
    struct plait_error err;

    if (plait_simulation_request_set(&request, times, c, l, gpu, &err) == 0)
        return plait_simulation_create(&request, &err);
    diag("%s", err.text);
    return NULL;
}

/* Without overlap, the simulation takes as long as the closed form of the
 * estimate says, for equal stages (a small head takes almost nothing) and links
 * that cost nothing. */
static void closed_forms(void)
{
    static const struct {
        enum plait_schedule_kind kind;
        int p, v, m;
    } cases[] = {
        {PLAIT_SCHEDULE_1F1B, 1, 1, 4},
        {PLAIT_SCHEDULE_NAIVE, 4, 1, 8},
        {PLAIT_SCHEDULE_GPIPE, 4, 1, 8},
        {PLAIT_SCHEDULE_1F1B, 4, 1, 8},
        {PLAIT_SCHEDULE_1F1B, 8, 1, 64},
        {PLAIT_SCHEDULE_INTERLEAVED, 4, 3, 8},
        {PLAIT_SCHEDULE_INTERLEAVED, 2, 6, 32},
        {PLAIT_SCHEDULE_ZB_H1, 4, 1, 16},
    };
    struct plait_gpu_type gpu;

    plait_gpu_type_find("h100", &gpu, NULL);
    gpu.link_alpha = gpu.nic_alpha = 0;
    gpu.link_bw = gpu.nic_bw = 1e30;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plait_simulation *s;
        struct plait_estimate e;
        struct plait_job_config c;
        struct plait_layout l;

        set_model(&c, &l, cases[i].kind, cases[i].p, cases[i].v, cases[i].m);
        plait_estimate(&c, &l, &gpu, &e, NULL);
        s = simulate(&c, &l, &gpu);
        ok(s && adds_up(s) && fabs(s->step / e.step_s - 1) < 2e-3,
           "%s, p %d, v %d, m %d: %.4f ms, plait estimate %.4f ms",
           plait_schedule_names[cases[i].kind], cases[i].p, cases[i].v,
           cases[i].m, s ? 1e3 * s->step : 0, 1e3 * e.step_s);
        plait_simulation_destroy(s);
    }
}

#define AGREE 0.015

/* With links that cost something both hide the same traffic: what they differ
 * in is which micro-batch waits for a message. */
static void estimate_agrees(void)
{
    for (int zero = 0; zero < 4; zero++)
        for (int pp = 1; pp <= 8; pp *= 2) {
            struct plait_gpu_type gpu;
            struct plait_simulation *s;
            struct plait_estimate e;
            struct plait_job_config c;
            struct plait_layout l;

            plait_gpu_type_find("h100", &gpu, NULL);
            set_model(&c, &l, PLAIT_SCHEDULE_1F1B, pp, 1, 4 * 16);
            c.parallel.zero = zero;
            l.size[PLAIT_DP] = 4;
            plait_estimate(&c, &l, &gpu, &e, NULL);
            s = simulate(&c, &l, &gpu);
            ok(s && fabs(s->step / e.step_s - 1) < AGREE,
               "zero %d, pp %d: %.4f ms, plait estimate %.4f ms", zero, pp,
               s ? 1e3 * s->step : 0, 1e3 * e.step_s);
            plait_simulation_destroy(s);
        }
}

/* What a step loses on many nodes, unless a site's file says otherwise. */
static void scale(void)
{
    double step[3];
    struct plait_gpu_type gpu;

    plait_gpu_type_find("h100", &gpu, NULL);
    ok(plait_scale_crowded(&gpu, 64) == 1, "no site, no congestion on H100");
    plait_gpu_type_find("a100-80g", &gpu, NULL);
    ok(plait_scale_crowded(&gpu, 64) > 1, "but on A100");
    plait_gpu_type_find("h100", &gpu, NULL);
    gpu.crowding = 0.04;
    ok(plait_scale_crowded(&gpu, 2) == 1 &&
           is_near(plait_scale_crowded(&gpu, 64) - 1, 5 * gpu.crowding),
       "collectives take longer with each doubling of the nodes after two");
    ok(plait_scale_waits(&gpu, 8192) > plait_scale_waits(&gpu, 64) &&
           plait_scale_waits(&gpu, 1e6) < 0.03 + gpu.stragglers,
       "more GPUs wait longer for the slowest, up to a bound");
    for (int i = 0; i < 3; i++) {
        struct plait_estimate e = {.step_s = 0};
        struct plait_job_config c;
        struct plait_layout l;

        if (i == 1) {
            gpu.uplinks_known = 1;
            gpu.leaf_gpus = 1e6;
        }
        if (i == 2)
            gpu.stragglers = 0;
        set_model(&c, &l, PLAIT_SCHEDULE_1F1B, 1, 1, 1024);
        l.size[PLAIT_DP] = 1024;
        plait_estimate(&c, &l, &gpu, &e, NULL);
        step[i] = e.step_s;
    }
    ok(step[0] > step[1] && step[1] > step[2] && step[2] > 0,
       "a site's own switches replace the first, its stragglers the second: "
       "%.2f, %.2f, %.2f ms",
       1e3 * step[0], 1e3 * step[1], 1e3 * step[2]);
}

/* A large head takes layers off the last stage; the simulation uses the
 * runtime's stages. */
static void uneven(void)
{
    struct plait_stage_time times[4];
    struct plait_simulation_request request;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;
    int first, count, same = 1;

    plait_gpu_type_find("h100", &gpu, NULL);
    set_model(&c, &l, PLAIT_SCHEDULE_1F1B, 4, 1, 8);
    c.model.vocab = 128256;
    plait_simulation_request_set(&request, times, &c, &l, &gpu, NULL);
    for (int i = 0; i < 4; i++) {
        plait_model_stage(&c, 4, i, &first, &count);
        same &= is_near(times[i].backward_weight,
                        times[0].backward_weight * count / 7);
    }
    ok(same && count < 6 &&
           times[3].forward > 1.5 * count * times[0].forward / 7,
       "stages are the runtime's: 7 layers, or %d and the head", count);
}

static int buckets_of(int dp, double mib)
{
    struct plait_stage_time times[1];
    struct plait_simulation_request request;
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_layout l;

    plait_gpu_type_find("h100", &gpu, NULL);
    set_model(&c, &l, PLAIT_SCHEDULE_1F1B, 1, 1, dp);
    c.model.hidden = 256;
    c.model.ffn = 1024;
    c.parallel.bucket_mib = mib;
    l.size[PLAIT_DP] = dp;
    if (plait_simulation_request_set(&request, times, &c, &l, &gpu, NULL) < 0)
        return -1;
    return times[0].buckets;
}

/* 25 M parameters, 96 MiB of gradients: buckets are larger if the sums cross
 * nodes. */
static void buckets(void)
{
    ok(buckets_of(8, 0) == 4 && buckets_of(16, 0) == 1,
       "four buckets inside a node, one over two");
    ok(buckets_of(8, 50) == 2 && buckets_of(16, 50) == 2,
       "or as large as they are said to be");
}

int main(void)
{
    bubbles();
    closed_forms();
    estimate_agrees();
    scale();
    uneven();
    buckets();
    messages();
    gradients();
    weights();
    return done_testing();
}
