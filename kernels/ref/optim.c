/* SPDX-License-Identifier: Apache-2.0 */
/* The step of each optimizer, element after element, as in its paper. */
#include <math.h>

#include "kernels/dynamic_map.h"
#include "kernels/ref/ref.h"
#include "kernels/rounding.h"

static uint64_t seed_of(const struct plait_update *p)
{
    return p->seed + (p->now != NULL ? p->now->seed : 0);
}

static void store_weight(const struct plait_update *p,
                         const struct plait_update_run *r, size_t i, float x)
{
    if (p->random_weights && p->type == PLAIT_BF16_T)
        ((uint16_t *)r->weight)[i] = plait_bf16_of_f32_random(
            x, plait_rounding_words_of(seed_of(p), &r->origin, i).weight);
    else
        ref_put(p->type, r->weight, i, x);
}

/* The rates of this step, from p. */
struct rates {
    double lr, correct1, correct2, scale, mix;
};

static struct rates rates_of(const struct plait_update *p)
{
    struct rates s = {p->lr, 1 - pow(p->beta1, (double)p->step),
                      1 - pow(p->beta2, (double)p->step),
                      p->grad_scale != NULL ? *p->grad_scale : 1, p->mix};

    if (p->now != NULL) {
        s.lr = p->now->lr;
        s.mix = p->now->mix;
        s.correct1 = 1 / (double)p->now->correct1;
        s.correct2 = 1 / (double)p->now->correct2;
    }
    return s;
}

/* An element: w and its states, updated in place. */
struct element {
    double w, g, s[2];
};

static void step_moments(const struct plait_update *p, struct element *e)
{
    e->s[0] = p->beta1 * e->s[0] + (1 - (double)p->beta1) * e->g;
    e->s[1] = p->beta2 * e->s[1] + (1 - (double)p->beta2) * e->g * e->g;
}

/* u of ADAMW and LAMB. */
static double adam_direction(const struct plait_update *p,
                             const struct rates *s, double decay,
                             const struct element *e)
{
    return e->s[0] / s->correct1 / (sqrt(e->s[1] / s->correct2) + p->eps) +
           decay * e->w;
}

/* lr_in multiplies what the momentum sums up, lr_out the sum. */
static void step_momentum(const struct plait_update *p, double lr_in,
                          double lr_out, double d, struct element *e)
{
    d *= lr_in;
    e->s[0] = p->momentum * e->s[0] + d;
    e->w -= lr_out * (p->nesterov ? d + p->momentum * e->s[0] : e->s[0]);
}

/* y, for an element whose w is x. */
static double point_of(const struct plait_update *p, const struct element *e)
{
    return e->w + (1 - (double)p->beta1) * e->s[0];
}

static void step_average(const struct plait_update *p, const struct rates *s,
                         double decay, struct element *e)
{
    double y = point_of(p, e), d;

    e->s[1] = p->beta2 * e->s[1] + (1 - (double)p->beta2) * e->g * e->g;
    d = e->g / (sqrt(e->s[1] / s->correct2) + p->eps) + decay * y;
    d = e->s[0] - s->lr * d;
    e->w += s->mix * d;
    e->s[0] = d - s->mix * d;
}

static double sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}

static void step_element(const struct plait_update *p, const struct rates *s,
                         double decay, double f, struct element *e)
{
    double d = f * (e->g + decay * e->w), mixed;

    switch (p->rule) {
    case PLAIT_UPDATE_SGD:
        step_momentum(p, 1, s->lr, d, e);
        break;
    case PLAIT_UPDATE_LARS:
        step_momentum(p, s->lr, 1, d, e);
        break;
    case PLAIT_UPDATE_NOVOGRAD:
        e->s[0] = p->beta1 * e->s[0] + f * e->g + decay * e->w;
        e->w -= s->lr * e->s[0];
        break;
    case PLAIT_UPDATE_ADAMW:
        step_moments(p, e);
        e->w -= s->lr * adam_direction(p, s, decay, e);
        break;
    case PLAIT_UPDATE_LAMB:
        e->w -= s->lr * f * adam_direction(p, s, decay, e);
        break;
    case PLAIT_UPDATE_LION:
        mixed = p->beta1 * e->s[0] + (1 - (double)p->beta1) * e->g;
        e->s[0] = p->beta2 * e->s[0] + (1 - (double)p->beta2) * e->g;
        e->w -= s->lr * (sign(mixed) + decay * e->w);
        break;
    case PLAIT_UPDATE_SCHEDULEFREE:
        step_average(p, s, decay, e);
        break;
    case PLAIT_UPDATE_LEAD:
        break;
    case PLAIT_UPDATE_DIRECTION:
        e->w -= s->lr * (f * e->g + decay * e->w);
        break;
    }
}

static struct element load_element(const struct plait_update *p,
                                   const struct plait_update_run *r, double g,
                                   size_t i)
{
    struct element e = {.w = r->master != NULL ? (double)r->master[i]
                                               : ref_get(p->type, r->weight, i),
                        .g = g};

    for (int k = 0; k < 2; k++)
        if (r->state[k] != NULL)
            e.s[k] = ref_get(p->states, r->state[k], i);
    return e;
}

/* y of what was stored, as one computes it who has nothing else. */
static double rounded_point(const struct plait_update *p,
                            const struct plait_update_run *r, size_t i)
{
    struct element e = load_element(p, r, 0, i);

    return point_of(p, &e);
}

static void store_states(const struct plait_update *p,
                         const struct plait_update_run *r,
                         const struct element *e, size_t i)
{
    int random = p->states == PLAIT_BF16_T && p->random_states;
    uint32_t word =
        random ? plait_rounding_words_of(seed_of(p), &r->origin, i).states : 0;

    for (int k = 0; k < 2; k++, word >>= 16) {
        if (r->state[k] == NULL)
            continue;
        if (random)
            ((uint16_t *)r->state[k])[i] =
                plait_bf16_of_f32_random((float)e->s[k], word);
        else
            ref_put(p->states, r->state[k], i, (float)e->s[k]);
    }
}

static void step_run(const struct plait_update *p, const struct rates *s,
                     const struct plait_update_run *r)
{
    double f = r->factor != NULL ? *r->factor : 1;

    for (size_t i = 0; i < r->n; i++) {
        struct element e = load_element(p, r, s->scale * r->grad[i], i);

        step_element(p, s, r->weight_decay, f, &e);
        store_states(p, r, &e, i);
        if (r->master != NULL)
            r->master[i] = (float)e.w;
        if (p->rule == PLAIT_UPDATE_SCHEDULEFREE ||
            p->rule == PLAIT_UPDATE_LEAD)
            e.w = rounded_point(p, r, i);
        if (r->weight != NULL)
            store_weight(p, r, i, (float)e.w);
    }
}

int ref_update(struct plait_queue *q, const struct plait_update *p,
               const struct plait_update_run *runs, int nruns)
{
    struct rates s = rates_of(p);

    (void)q;
    if (!isfinite(s.scale))
        return 0;
    for (int i = 0; i < nruns; i++)
        step_run(p, &s, &runs[i]);
    return 0;
}

static void sum_run(const struct plait_update *p, const struct rates *s,
                    const struct plait_update_run *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct element e = load_element(p, r, s->scale * r->grad[i], i);
        double x = r->grad[i];

        if (p->rule == PLAIT_UPDATE_LAMB) {
            step_moments(p, &e);
            store_states(p, r, &e, i);
            x = adam_direction(p, s, r->weight_decay, &e);
        }
        r->sums[0] += e.w * e.w;
        r->sums[1] += x * x;
    }
}

int ref_update_sums(struct plait_queue *q, const struct plait_update *p,
                    const struct plait_update_run *runs, int nruns)
{
    struct rates s = rates_of(p);

    (void)q;
    if (!isfinite(s.scale))
        return 0;
    for (int i = 0; i < nruns; i++)
        sum_run(p, &s, &runs[i]);
    return 0;
}

/* -- with states of 8 bits ------------------------------------------------ */

static size_t block_end(const struct plait_update8_run *r, size_t i)
{
    return r->n - i < PLAIT_MAP_BLOCK ? r->n : i + PLAIT_MAP_BLOCK;
}

static void encode_block(const struct plait_update8_run *r, int which,
                         size_t first, const double *x)
{
    size_t end = block_end(r, first);
    float low = 0, high = 0, scale;

    for (size_t i = first; i < end; i++) {
        low = fminf(low, (float)x[i - first]);
        high = fmaxf(high, (float)x[i - first]);
    }
    scale = plait_map_scale(low, high);
    r->scale[which][first / PLAIT_MAP_BLOCK] = scale;
    for (size_t i = first; i < end; i++)
        r->code[which][i] = plait_map_encode(
            (float)x[i - first], plait_map_inverse(scale), which == 0);
}

static void step_block(const struct plait_update *p, const struct rates *s,
                       const struct plait_update8_run *r, size_t first)
{
    double state[2][PLAIT_MAP_BLOCK];

    for (size_t i = first; i < block_end(r, first); i++) {
        struct element e = {.w = r->master[i], .g = s->scale * r->grad[i]};

        for (int k = 0; k < 2; k++)
            e.s[k] = (double)plait_map_decode(r->code[k][i], k == 0) *
                     r->scale[k][first / PLAIT_MAP_BLOCK];
        step_element(p, s, r->weight_decay, 1, &e);
        for (int k = 0; k < 2; k++)
            state[k][i - first] = e.s[k];
        r->master[i] = (float)e.w;
        if (r->weight != NULL)
            ref_put(p->type, r->weight, i, r->master[i]);
    }
    for (int k = 0; k < 2; k++)
        encode_block(r, k, first, state[k]);
}

int ref_update8(struct plait_queue *q, const struct plait_update *p,
                const struct plait_update8_run *runs, int nruns)
{
    struct rates s = rates_of(p);

    (void)q;
    if (!isfinite(s.scale))
        return 0;
    for (int i = 0; i < nruns; i++)
        for (size_t at = 0; at < runs[i].n; at += PLAIT_MAP_BLOCK)
            step_block(p, &s, &runs[i], at);
    return 0;
}
