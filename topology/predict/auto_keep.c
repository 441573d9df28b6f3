/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the best of the layouts that were tried, in order. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/stage.h"
#include "topology/predict/auto.h"
#include "topology/predict/simulate.h"

/* For choices of equal time: the simpler one comes first. */
static int complexity(const struct plait_choice *c)
{
    return c->parallel.zero + 4 * (int)c->parallel.recompute +
           16 * c->parallel.virtual_stages + 64 * c->layout.size[PLAIT_CP] +
           c->layout.size[PLAIT_TP] + c->layout.size[PLAIT_PP];
}

static bool faster(const struct plait_choice *a, const struct plait_choice *b)
{
    double x = a->estimate.step_s, y = b->estimate.step_s;

    if (x < y * (1 - 1e-9) || y < x * (1 - 1e-9))
        return x < y;
    return complexity(a) < complexity(b);
}

/* They differ only in how a sequence or a batch is divided: one line is printed
 * for both. */
static bool alike(const struct plait_choice *a, const struct plait_choice *b)
{
    return a->layout.size[PLAIT_TP] == b->layout.size[PLAIT_TP] &&
           a->layout.size[PLAIT_PP] == b->layout.size[PLAIT_PP] &&
           a->layout.size[PLAIT_EP] == b->layout.size[PLAIT_EP] &&
           a->parallel.zero == b->parallel.zero &&
           a->parallel.recompute == b->parallel.recompute &&
           !a->parallel.recompute_layers == !b->parallel.recompute_layers &&
           a->parallel.offload == b->parallel.offload;
}

static void remove_choice(struct plait_choices *f, int at)
{
    memmove(&f->choice[at], &f->choice[at + 1],
            (size_t)(f->n - 1 - at) * sizeof(*f->choice));
    f->n--;
}

void plait_choices_keep(struct plait_choices *f, int most,
                        struct plait_choice *choice)
{
    int at = f->n;

    for (int i = 0; i < f->n; i++)
        if (alike(choice, &f->choice[i])) {
            if (!faster(choice, &f->choice[i])) {
                f->choice[i].alike++;
                return;
            }
            choice->alike = f->choice[i].alike + 1;
            remove_choice(f, i);
            at = f->n;
            break;
        }
    while (at > 0 && faster(choice, &f->choice[at - 1]))
        at--;
    if (at == most)
        return;
    if (f->n < most)
        f->n++;
    memmove(&f->choice[at + 1], &f->choice[at],
            (size_t)(f->n - 1 - at) * sizeof(*f->choice));
    f->choice[at] = *choice;
}

/* A simulation plays what the formula adds up: how the stages wait for each
 * other. So what they differ in counts as bubble. */
static void take_step(struct plait_estimate *e, double step)
{
    double rate = e->step_s / step;

    e->bubble_s += step - e->step_s;
    e->step_s = step;
    e->tokens_per_s *= rate;
    e->tflops_per_gpu *= rate;
    e->mfu *= rate;
    e->mfu_causal *= rate;
}

/* Passes of a step that is simulated in full: tens of milliseconds. */
enum { PASSES_MOST = 4096, MICROBATCHES_LEAST = 8 };

static double simulated_step(const struct plait_simulation_request *request,
                             int microbatches)
{
    struct plait_simulation_request r = *request;
    struct plait_simulation *s;
    double step;

    r.microbatches = microbatches;
    r.sums_only = 1;
    s = plait_simulation_create(&r, NULL);
    step = s ? s->step : 0;
    plait_simulation_destroy(s);
    return step;
}

/* Seconds of a step, 0 where it cannot be simulated. A pipeline that is full
 * repeats itself, so that of many micro-batches only the first are played: a
 * batch may have thousands. */
static double step_of(const struct plait_simulation_request *r)
{
    int p = r->stages, all = r->microbatches, few = p;
    double first, next;

    if (few < MICROBATCHES_LEAST)
        few *= (MICROBATCHES_LEAST + p - 1) / p;
    if (all <= 2 * few || (double)all * r->chunks * p <= PASSES_MOST)
        return simulated_step(r, all);
    first = simulated_step(r, few);
    next = simulated_step(r, 2 * few);
    return first > 0 && next > 0 ? next + (next - first) / few * (all - 2 * few)
                                 : 0;
}

static void simulate(struct plait_choice *c, struct plait_job_config *config,
                     const struct plait_gpu_type *gpu)
{
    struct plait_simulation_request request;
    struct plait_stage_time *times;
    double step = 0;

    config->parallel = c->parallel;
    config->parallel.layout = c->layout;
    config->train.micro_batch = c->micro_batch;
    times = calloc((size_t)c->layout.size[PLAIT_PP] *
                       (size_t)plait_model_chunks(&c->parallel),
                   sizeof(*times));
    if (times && plait_simulation_request_set(&request, times, config,
                                              &c->layout, gpu, NULL) == 0)
        step = step_of(&request);
    if (step > 0)
        take_step(&c->estimate, step);
    free(times);
}

void plait_choices_simulate(struct plait_choices *f,
                            const struct plait_job_config *config,
                            const struct plait_gpu_type *gpu, int n)
{
    struct plait_job_config each = *config;

    for (int i = 0; i < f->n && i < n; i++) {
        struct plait_choice c;
        int at = i;

        simulate(&f->choice[i], &each, gpu);
        c = f->choice[i];
        while (at > 0 && faster(&c, &f->choice[at - 1]))
            at--;
        memmove(&f->choice[at + 1], &f->choice[at],
                (size_t)(i - at) * sizeof(c));
        f->choice[at] = c;
    }
}

void plait_choices_destroy(struct plait_choices *choices)
{
    int saved = errno;

    if (choices)
        free(choices->choice);
    free(choices);
    errno = saved;
}
