/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/update.h"
#include "kernels/rounding.h"

/* Updates of weights by their gradients, and the sums that come before. */

INLINE vec load(const float *p, size_t i, size_t n)
{
    return vec_load(PLAIT_F32, p, i, n);
}

INLINE void store(float *p, size_t i, size_t n, vec x)
{
    vec_store(PLAIT_F32, p, i, n, x);
}

INLINE vec sign(vec x)
{
    vec one = {0};

    one += 1;
    return vec_select(x > 0, one, vec_select(x < 0, -one, x));
}

/* A step of a run. */
struct run_step {
    const struct cpu_step *s;
    const struct plait_update_run *r;
    float factor; /* the run's */
    /* What is rounded stochastically, by this row of the tensor; column: the
     * one of the run's first element, were it in the same row. */
    int states, weights;
    struct plait_rounding_row row;
    uint32_t column;
};

INLINE struct run_step begin_run(const struct cpu_step *s,
                                 const struct plait_update_run *r)
{
    return (struct run_step){
        .s = s,
        .r = r,
        .factor = r->factor != NULL ? *r->factor : 1,
        .states = s->p->states == PLAIT_BF16_T && s->p->random_states,
        .weights = s->p->type == PLAIT_BF16_T && s->p->random_weights};
}

/* Enters the row of element i; where it ends, or `end`. */
INLINE size_t enter_row(struct run_step *of, size_t i, size_t end)
{
    const struct plait_origin *o = &of->r->origin;
    size_t at = o->first + i, left;

    if (!of->states && !of->weights)
        return end;
    left = o->columns - at % o->columns;
    of->row = plait_rounding_row(of->s->seed, o, at / o->columns);
    of->column = (uint32_t)(o->column + at % o->columns - i);
    return left < end - i ? i + left : end;
}

INLINE vec load_state(struct run_step of, int k, size_t i, size_t n)
{
    return of.s->p->states == PLAIT_F32
               ? load(of.r->state[k], i, n)
               : vec_load(PLAIT_BF16_T, of.r->state[k], i, n);
}

/* plait_bf16_of_f32_random() of x. */
INLINE hvec round_randomly(vec x, uvec word)
{
    uvec u = (uvec)x, finite = (uvec)(x - x == 0), nan = (uvec)(x != x);

    u += word & 0xffff & finite;
    return vec_narrow((u | (nan & 0x400000)) >> 16);
}

INLINE void store_state(struct run_step of, int k, size_t i, size_t n, vec x)
{
    uvec word;

    if (of.s->p->states == PLAIT_F32) {
        store(of.r->state[k], i, n, x);
    } else if (!of.states) {
        vec_store(PLAIT_BF16_T, of.r->state[k], i, n, x);
    } else {
        word = vec_drop_word(of.row.states, of.column + (uint32_t)i);
        hvec_store((uint16_t *)of.r->state[k] + i, n,
                   round_randomly(x, k ? word >> 16 : word));
    }
}

/* The master weights, or those that have none. */
INLINE vec load_weights(enum plait_dtype type, const struct plait_update_run *r,
                        size_t i, size_t n)
{
    return r->master != NULL ? load(r->master, i, n)
                             : vec_load(type, r->weight, i, n);
}

INLINE void store_low(enum plait_dtype type, struct run_step of, size_t i,
                      size_t n, vec x)
{
    if (type != PLAIT_BF16_T || !of.weights)
        store_weight(type, of.r->weight, i, n, x);
    else
        hvec_store((uint16_t *)of.r->weight + i, n,
                   round_randomly(x, vec_drop_word(of.row.weights,
                                                   of.column + (uint32_t)i)));
}

/* Computes and stores the new s0 and s1 of ADAMW and LAMB. */
INLINE void step_moments(struct run_step of, size_t i, size_t n, vec *m, vec *v)
{
    const struct plait_update *p = of.s->p;
    vec g = load(of.r->grad, i, n) * of.s->scale;

    *m = p->beta1 * load_state(of, 0, i, n) + (1 - p->beta1) * g;
    *v = p->beta2 * load_state(of, 1, i, n) + (1 - p->beta2) * g * g;
    store_state(of, 0, i, n, *m);
    store_state(of, 1, i, n, *v);
}

INLINE vec adam_direction(const struct cpu_step *s, float decay, vec w, vec m,
                          vec v)
{
    return m * s->correct1 / (vec_sqrt(v) * s->correct2 + s->p->eps) +
           decay * w;
}

/* What SGD and LARS subtract from w; d enters the momentum. */
INLINE vec step_momentum(struct run_step of, size_t i, size_t n, vec d)
{
    float momentum = of.s->p->momentum;
    vec m;

    if (of.r->state[0] == NULL)
        return d;
    m = momentum * load_state(of, 0, i, n) + d;
    store_state(of, 0, i, n, m);
    return of.s->p->nesterov ? d + momentum * m : m;
}

/* What LION subtracts from w, without rate and weight decay. */
INLINE vec step_lion(struct run_step of, size_t i, size_t n, vec g)
{
    const struct plait_update *p = of.s->p;
    vec m = load_state(of, 0, i, n);

    store_state(of, 0, i, n, p->beta2 * m + (1 - p->beta2) * g);
    return sign(p->beta1 * m + (1 - p->beta1) * g);
}

/* y of SCHEDULEFREE. */
INLINE vec point_of(const struct cpu_step *s, vec x, vec lead)
{
    return x + (1 - s->p->beta1) * lead;
}

/* Computes and stores the new s0 and s1 of SCHEDULEFREE; the new x. */
INLINE vec step_average(struct run_step of, size_t i, size_t n, vec x)
{
    const struct cpu_step *s = of.s;
    const struct plait_update_run *r = of.r;
    const struct plait_update *p = s->p;
    vec g = load(r->grad, i, n) * s->scale, d = load_state(of, 0, i, n);
    vec v = p->beta2 * load_state(of, 1, i, n) + (1 - p->beta2) * g * g;
    vec u = g / (vec_sqrt(v) * s->correct2 + p->eps) +
            r->weight_decay * point_of(s, x, d);

    d -= s->lr * u;
    store_state(of, 0, i, n, d - s->mix * d);
    store_state(of, 1, i, n, v);
    return x + s->mix * d;
}

/* The new weights. */
INLINE vec step_weights(enum plait_update_rule rule, struct run_step of,
                        size_t i, size_t n, vec w)
{
    const struct cpu_step *s = of.s;
    const struct plait_update_run *r = of.r;
    float f = of.factor, decay = r->weight_decay;
    vec g, m, v;

    if (rule == PLAIT_UPDATE_ADAMW) {
        step_moments(of, i, n, &m, &v);
        return w - s->lr * adam_direction(s, decay, w, m, v);
    }
    if (rule == PLAIT_UPDATE_LAMB) {
        m = load_state(of, 0, i, n);
        v = load_state(of, 1, i, n);
        return w - s->lr * f * adam_direction(s, decay, w, m, v);
    }
    if (rule == PLAIT_UPDATE_SCHEDULEFREE)
        return step_average(of, i, n, w);
    if (rule == PLAIT_UPDATE_LEAD)
        return w;
    g = load(r->grad, i, n) * s->scale;
    if (rule == PLAIT_UPDATE_LION)
        return w - s->lr * (step_lion(of, i, n, g) + decay * w);
    if (rule == PLAIT_UPDATE_NOVOGRAD) {
        m = s->p->beta1 * load_state(of, 0, i, n) + (f * g + decay * w);
        store_state(of, 0, i, n, m);
        return w - s->lr * m;
    }
    if (rule == PLAIT_UPDATE_DIRECTION)
        return w - s->lr * (f * g + decay * w);
    g = f * (g + decay * w);
    if (rule == PLAIT_UPDATE_LARS)
        return w - step_momentum(of, i, n, s->lr * g);
    return w - s->lr * step_momentum(of, i, n, g);
}

INLINE void update_part(enum plait_update_rule rule, enum plait_dtype type,
                        struct run_step of, size_t i, size_t n)
{
    const struct plait_update_run *r = of.r;
    vec w = step_weights(rule, of, i, n, load_weights(type, r, i, n));

    if (r->master != NULL)
        store(r->master, i, n, w);
    if (rule == PLAIT_UPDATE_SCHEDULEFREE || rule == PLAIT_UPDATE_LEAD)
        w = point_of(of.s, w, load_state(of, 0, i, n));
    if (r->weight != NULL && r->weight != r->master)
        store_low(type, of, i, n, w);
}

INLINE void update_span(enum plait_update_rule rule, enum plait_dtype type,
                        const struct cpu_step *s,
                        const struct plait_update_run *r, size_t i, size_t end)
{
    struct run_step of = begin_run(s, r);

    while (i < end) {
        size_t next = enter_row(&of, i, end);

        for (; i + VLEN <= next; i += VLEN)
            update_part(rule, type, of, i, VLEN);
        if (i < next)
            update_part(rule, type, of, i, next - i);
        i = next;
    }
}

typedef void span_fn(enum plait_dtype type, const struct cpu_step *s,
                     const struct plait_update_run *r, size_t i, size_t end);

INLINE void update_typed(enum plait_update_rule rule, enum plait_dtype type,
                         const struct cpu_step *s,
                         const struct plait_update_run *r, size_t i, size_t end)
{
    if (type == PLAIT_F32)
        update_span(rule, PLAIT_F32, s, r, i, end);
    else if (type == PLAIT_BF16_T)
        update_span(rule, PLAIT_BF16_T, s, r, i, end);
    else
        update_span(rule, PLAIT_FP16_T, s, r, i, end);
}

#define SPAN_FUNCTION(name, rule)                                            \
    static void name(enum plait_dtype type, const struct cpu_step *s,        \
                     const struct plait_update_run *r, size_t i, size_t end) \
    {                                                                        \
        update_typed(rule, type, s, r, i, end);                              \
    }

SPAN_FUNCTION(span_sgd, PLAIT_UPDATE_SGD)
SPAN_FUNCTION(span_lars, PLAIT_UPDATE_LARS)
SPAN_FUNCTION(span_novograd, PLAIT_UPDATE_NOVOGRAD)
SPAN_FUNCTION(span_adamw, PLAIT_UPDATE_ADAMW)
SPAN_FUNCTION(span_lamb, PLAIT_UPDATE_LAMB)
SPAN_FUNCTION(span_lion, PLAIT_UPDATE_LION)
SPAN_FUNCTION(span_schedulefree, PLAIT_UPDATE_SCHEDULEFREE)
SPAN_FUNCTION(span_lead, PLAIT_UPDATE_LEAD)
SPAN_FUNCTION(span_direction, PLAIT_UPDATE_DIRECTION)

static span_fn *const spans[] = {
    [PLAIT_UPDATE_SGD] = span_sgd,
    [PLAIT_UPDATE_LARS] = span_lars,
    [PLAIT_UPDATE_NOVOGRAD] = span_novograd,
    [PLAIT_UPDATE_ADAMW] = span_adamw,
    [PLAIT_UPDATE_LAMB] = span_lamb,
    [PLAIT_UPDATE_LION] = span_lion,
    [PLAIT_UPDATE_SCHEDULEFREE] = span_schedulefree,
    [PLAIT_UPDATE_LEAD] = span_lead,
    [PLAIT_UPDATE_DIRECTION] = span_direction,
};

/* Updates elements i .. end-1, counted through all runs. */
static void update_runs(const struct cpu_step *s,
                        const struct plait_update_run *r, size_t i, size_t end)
{
    for (size_t first = 0; first < end; first += r->n, r++) {
        size_t from = i > first ? i - first : 0;
        size_t to = end - first < r->n ? end - first : r->n;

        if (from < to)
            spans[s->p->rule](s->p->type, s, r, from, to);
    }
#if defined(__AVX512BF16__)
    _mm_sfence();
#endif
}

static int update(struct plait_queue *q, const struct plait_update *p,
                  const struct plait_update_run *runs, int nruns)
{
    struct cpu_step s = step_of(p);
    size_t n = 0;

    if (!isfinite(s.scale))
        return 0;
    for (int i = 0; i < nruns; i++)
        n += runs[i].n;
#pragma omp parallel num_threads(cpu_threads(q, n))
    {
        size_t i, end;

        cpu_span(n, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        update_runs(&s, runs, i, end);
    }
    return 0;
}

/* -- sums ---------------------------------------------------------------- */

/* Blocks of fixed size are summed separately and added in order, so that the
 * bits do not depend on the number of threads. */
#define BLOCK 16384

struct sums {
    double w, x;
};

typedef double dvec __attribute__((vector_size(VLEN * sizeof(double))));

INLINE double dvec_sum(const dvec *x)
{
    double sum = 0;

    for (int i = 0; i < VLEN; i++)
        sum += (*x)[i];
    return sum;
}

INLINE void add_square(dvec *sum, vec x)
{
    dvec d = __builtin_convertvector(x, dvec);

    *sum += d * d;
}

/* The sums of a span by lanes. */
struct lane_sums {
    dvec w, x;
};

INLINE void add_squares(enum plait_update_rule rule, struct run_step of,
                        size_t i, size_t n, struct lane_sums *sums)
{
    const struct plait_update_run *r = of.r;
    vec x, m, v;
    vec w = of.s->p->type == PLAIT_BF16_T ? load_weights(PLAIT_BF16_T, r, i, n)
                                          : load_weights(PLAIT_FP16_T, r, i, n);

    if (rule == PLAIT_UPDATE_LAMB) {
        step_moments(of, i, n, &m, &v);
        x = adam_direction(of.s, r->weight_decay, w, m, v);
    } else {
        x = load(r->grad, i, n);
    }
    add_square(&sums->w, w);
    add_square(&sums->x, x);
}

INLINE struct sums sum_span(enum plait_update_rule rule,
                            const struct cpu_step *s,
                            const struct plait_update_run *r, size_t i,
                            size_t end)
{
    struct lane_sums sums = {{0}, {0}};
    struct run_step of = begin_run(s, r);

    while (i < end) {
        size_t next = enter_row(&of, i, end);

        for (; i + VLEN <= next; i += VLEN)
            add_squares(rule, of, i, VLEN, &sums);
        if (i < next)
            add_squares(rule, of, i, next - i, &sums);
        i = next;
    }
    return (struct sums){dvec_sum(&sums.w), dvec_sum(&sums.x)};
}

static struct sums sum_block(const struct cpu_step *s,
                             const struct plait_update_run *r, size_t block)
{
    size_t i = block * BLOCK, end = r->n - i < BLOCK ? r->n : i + BLOCK;

    return s->p->rule == PLAIT_UPDATE_LAMB
               ? sum_span(PLAIT_UPDATE_LAMB, s, r, i, end)
               : sum_span(PLAIT_UPDATE_SGD, s, r, i, end);
}

static size_t blocks_of(const struct plait_update_run *r)
{
    return (r->n + BLOCK - 1) / BLOCK;
}

/* Sums of blocks b .. end-1, counted through all runs. */
static void sum_blocks(const struct cpu_step *s,
                       const struct plait_update_run *r, struct sums *sums,
                       size_t b, size_t end)
{
    for (size_t first = 0; first < end; first += blocks_of(r), r++)
        for (; b < end && b < first + blocks_of(r); b++)
            sums[b] = sum_block(s, r, b - first);
}

static int update_sums(struct plait_queue *q, const struct plait_update *p,
                       const struct plait_update_run *runs, int nruns)
{
    struct cpu_step s = step_of(p);
    size_t blocks = 0, b = 0;
    struct sums *sums;

    if (!isfinite(s.scale))
        return 0;
    for (int i = 0; i < nruns; i++)
        blocks += blocks_of(&runs[i]);
    sums = cpu_scratch(q, CPU_SCRATCH_OP, blocks * sizeof(*sums));
    if (sums == NULL)
        return -1;
#pragma omp parallel num_threads(blocks > 1 ? q->dev->threads : 1)
    {
        size_t threads = (size_t)omp_get_num_threads();
        size_t t = (size_t)omp_get_thread_num();

        sum_blocks(&s, runs, sums, blocks * t / threads,
                   blocks * (t + 1) / threads);
    }
    for (int i = 0; i < nruns; i++)
        for (size_t end = b + blocks_of(&runs[i]); b < end; b++) {
            runs[i].sums[0] += sums[b].w;
            runs[i].sums[1] += sums[b].x;
        }
    return 0;
}

void CPU_NAME(cpu_fill_update)(struct plait_ops *ops)
{
    ops->update = update;
    ops->update_sums = update_sums;
}
