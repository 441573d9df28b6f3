/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/simulate.h"

/* Stages that all take the same: forward 1, backward 1 + 1. */
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

/* Computing, traffic and waiting of every rank fill the step exactly, and
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

    /* Down and up the pipe once: 6 messages lie on the critical path; the
     * last rank sends back at once what the others wait for. */
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

    /* Ten buckets of 0.2 in a backward of 2: each is ready when the one
     * before is through, and only the last is seen. */
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
                                    .forward_comm = 0.25,
                                    .backward_comm = 0.25,
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

    /* Only the first gather and the last reduction have nothing to hide
     * behind; the other seven and three do. */
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

int main(void)
{
    bubbles();
    messages();
    gradients();
    weights();
    return done_testing();
}
