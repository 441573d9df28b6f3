/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/update.h"

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
};

/* Computes and stores the new s0 and s1 of ADAMW and LAMB. */
INLINE void step_moments(const struct cpu_step *s,
                         const struct plait_update_run *r, size_t i, size_t n,
                         vec *m, vec *v)
{
    const struct plait_update *p = s->p;
    vec g = load(r->grad, i, n) * s->scale;

    *m = p->beta1 * load(r->state[0], i, n) + (1 - p->beta1) * g;
    *v = p->beta2 * load(r->state[1], i, n) + (1 - p->beta2) * g * g;
    store(r->state[0], i, n, *m);
    store(r->state[1], i, n, *v);
}

INLINE vec adam_direction(const struct cpu_step *s, float decay, vec w, vec m,
                          vec v)
{
    return m * s->correct1 / (vec_sqrt(v) * s->correct2 + s->p->eps) +
           decay * w;
}

/* What SGD and LARS subtract from w; d enters the momentum. */
INLINE vec step_momentum(const struct cpu_step *s,
                         const struct plait_update_run *r, size_t i, size_t n,
                         vec d)
{
    float momentum = s->p->momentum;
    vec m;

    if (r->state[0] == NULL)
        return d;
    m = momentum * load(r->state[0], i, n) + d;
    store(r->state[0], i, n, m);
    return s->p->nesterov ? d + momentum * m : m;
}

/* What LION subtracts from w, without rate and weight decay. */
INLINE vec step_lion(const struct cpu_step *s, const struct plait_update_run *r,
                     size_t i, size_t n, vec g)
{
    const struct plait_update *p = s->p;
    vec m = load(r->state[0], i, n);

    store(r->state[0], i, n, p->beta2 * m + (1 - p->beta2) * g);
    return sign(p->beta1 * m + (1 - p->beta1) * g);
}

/* y of SCHEDULEFREE. */
INLINE vec point_of(const struct cpu_step *s, vec x, vec lead)
{
    return x + (1 - s->p->beta1) * lead;
}

/* Computes and stores the new s0 and s1 of SCHEDULEFREE; the new x. */
INLINE vec step_average(const struct cpu_step *s,
                        const struct plait_update_run *r, size_t i, size_t n,
                        vec x)
{
    const struct plait_update *p = s->p;
    vec g = load(r->grad, i, n) * s->scale, d = load(r->state[0], i, n);
    vec v = p->beta2 * load(r->state[1], i, n) + (1 - p->beta2) * g * g;
    vec u = g / (vec_sqrt(v) * s->correct2 + p->eps) +
            r->weight_decay * point_of(s, x, d);

    d -= s->lr * u;
    store(r->state[0], i, n, d - s->mix * d);
    store(r->state[1], i, n, v);
    return x + s->mix * d;
}

/* The new weights. */
INLINE vec step_weights(enum plait_update_rule rule, struct run_step of,
                        size_t i, size_t n)
{
    const struct cpu_step *s = of.s;
    const struct plait_update_run *r = of.r;
    float f = of.factor, decay = r->weight_decay;
    vec w = load(r->master, i, n), g, m, v;

    if (rule == PLAIT_UPDATE_ADAMW) {
        step_moments(s, r, i, n, &m, &v);
        return w - s->lr * adam_direction(s, decay, w, m, v);
    }
    if (rule == PLAIT_UPDATE_LAMB) {
        m = load(r->state[0], i, n);
        v = load(r->state[1], i, n);
        return w - s->lr * f * adam_direction(s, decay, w, m, v);
    }
    if (rule == PLAIT_UPDATE_SCHEDULEFREE)
        return step_average(s, r, i, n, w);
    if (rule == PLAIT_UPDATE_LEAD)
        return w;
    g = load(r->grad, i, n) * s->scale;
    if (rule == PLAIT_UPDATE_LION)
        return w - s->lr * (step_lion(s, r, i, n, g) + decay * w);
    if (rule == PLAIT_UPDATE_NOVOGRAD) {
        m = s->p->beta1 * load(r->state[0], i, n) + (f * g + decay * w);
        store(r->state[0], i, n, m);
        return w - s->lr * m;
    }
    if (rule == PLAIT_UPDATE_DIRECTION)
        return w - s->lr * (f * g + decay * w);
    g = f * (g + decay * w);
    if (rule == PLAIT_UPDATE_LARS)
        return w - step_momentum(s, r, i, n, s->lr * g);
    return w - s->lr * step_momentum(s, r, i, n, g);
}

INLINE void update_part(enum plait_update_rule rule, enum plait_dtype type,
                        struct run_step of, size_t i, size_t n)
{
    const struct plait_update_run *r = of.r;
    vec w = step_weights(rule, of, i, n);

    store(r->master, i, n, w);
    if (rule == PLAIT_UPDATE_SCHEDULEFREE || rule == PLAIT_UPDATE_LEAD)
        w = point_of(of.s, w, load(r->state[0], i, n));
    if (r->weight != NULL && r->weight != r->master)
        store_weight(type, of.s, (struct cpu_weight){r->weight, r->first}, i, n,
                     w);
}

INLINE void update_span(enum plait_update_rule rule, enum plait_dtype type,
                        const struct cpu_step *s,
                        const struct plait_update_run *r, size_t i, size_t end)
{
    struct run_step of = {s, r, r->factor != NULL ? *r->factor : 1};

    for (; i + VLEN <= end; i += VLEN)
        update_part(rule, type, of, i, VLEN);
    if (i < end)
        update_part(rule, type, of, i, end - i);
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

INLINE void add_squares(enum plait_update_rule rule, const struct cpu_step *s,
                        const struct plait_update_run *r, size_t i, size_t n,
                        struct lane_sums *sums)
{
    vec w = load(r->master, i, n), x, m, v;

    if (rule == PLAIT_UPDATE_LAMB) {
        step_moments(s, r, i, n, &m, &v);
        x = adam_direction(s, r->weight_decay, w, m, v);
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

    for (; i + VLEN <= end; i += VLEN)
        add_squares(rule, s, r, i, VLEN, &sums);
    if (i < end)
        add_squares(rule, s, r, i, end - i, &sums);
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
