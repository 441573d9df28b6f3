/* SPDX-License-Identifier: Apache-2.0 */
/* Routing of tokens to experts and back, one token after another. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/route.h"

static int chosen(const int32_t *expert, int n, int e)
{
    for (int j = 0; j < n; j++)
        if (expert[j] == e)
            return 1;
    return 0;
}

/* What experts are chosen by: logits of softmax, since close to 1/2
 * probabilities in fp32 cannot tell apart logits that differ near 0. */
static double rank_of(const struct plait_route *r, const void *logits, size_t i,
                      int e)
{
    size_t at = i * (size_t)r->E + (size_t)e;

    return r->bias ? (double)(float)(r->prob[at] + r->bias[e])
                   : ref_get(r->type, logits, at);
}

/* The best of group g or, with a bias, the sum of its two best. */
static double rank_group(const struct plait_route *r, const void *logits,
                         size_t i, int g)
{
    int n = r->E / r->groups;
    double first = -INFINITY, second = -INFINITY;

    for (int e = g * n; e < (g + 1) * n; e++) {
        double x = rank_of(r, logits, i, e);

        second = fmax(second, fmin(first, x));
        first = fmax(first, x);
    }
    return r->bias ? first + second : first;
}

/* A bit of each group that token i may choose from. */
static uint64_t choose_groups(const struct plait_route *r, const void *logits,
                              size_t i)
{
    uint64_t set = 0;

    if (r->groups < 2)
        return ~(uint64_t)0;
    for (int j = 0; j < r->top_groups; j++) {
        double most = 0;
        int best = -1;

        for (int g = 0; g < r->groups; g++) {
            double x = rank_group(r, logits, i, g);

            if (!(set >> g & 1) && (best < 0 || x > most)) {
                best = g;
                most = x;
            }
        }
        set |= (uint64_t)1 << best;
    }
    return set;
}

/* What the scores of the chosen are added to. */
static double begin_sum(const struct plait_route *r, const float *prob)
{
    double sum = PLAIT_ROUTE_TINY;

    if (!r->bias)
        return 0;
    for (int e = 0; e < r->E; e++)
        if (isnan(prob[e]))
            sum = NAN;
    return sum;
}

/* The k experts of token i and their gates. */
static void choose(const struct plait_route *r, const void *logits, size_t i)
{
    const float *prob = r->prob + i * (size_t)r->E;
    int32_t *expert = r->expert + i * (size_t)r->k;
    uint64_t groups = choose_groups(r, logits, i);
    double sum = begin_sum(r, prob);
    int n = r->groups > 1 ? r->E / r->groups : r->E;

    for (int j = 0; j < r->k; j++) {
        double most = 0;
        int best = -1;

        for (int first = 0; first < r->E; first += n) {
            if (!(groups >> (first / n) & 1))
                continue;
            for (int e = first; e < first + n; e++) {
                double x = rank_of(r, logits, i, e);

                if ((best < 0 || x > most) && !chosen(expert, j, e)) {
                    best = e;
                    most = x;
                }
            }
        }
        expert[j] = best;
        sum += prob[best];
    }
    if (r->whole && !isnan(sum))
        sum = 1;
    for (int j = 0; j < r->k; j++)
        r->gate[i * (size_t)r->k + (size_t)j] =
            (float)((double)r->scale * prob[expert[j]] / sum);
}

/* Weights that are the sigmoids of the chosen logits. */
static void weigh_each(const struct plait_route *r, const void *logits,
                       size_t i)
{
    for (size_t j = i * (size_t)r->k; j < (i + 1) * (size_t)r->k; j++) {
        size_t at = i * (size_t)r->E + (size_t)r->expert[j];

        r->gate[j] = (float)(1 / (1 + exp(-ref_get(r->type, logits, at))));
    }
}

static void take_softmax(const struct plait_route *r, const void *logits,
                         size_t i)
{
    size_t first = i * (size_t)r->E, end = first + (size_t)r->E;
    double max = -INFINITY, sum = 0;

    for (size_t at = first; at < end; at++)
        max = fmax(max, ref_get(r->type, logits, at));
    for (size_t at = first; at < end; at++)
        sum += exp(ref_get(r->type, logits, at) - max);
    for (size_t at = first; at < end; at++)
        r->prob[at] = (float)(exp(ref_get(r->type, logits, at) - max) / sum);
}

static void take_sigmoid(const struct plait_route *r, const void *logits,
                         size_t i)
{
    size_t first = i * (size_t)r->E, end = first + (size_t)r->E;

    for (size_t at = first; at < end; at++)
        r->prob[at] = (float)(1 / (1 + exp(-ref_get(r->type, logits, at))));
}

int ref_route_forward(struct plait_queue *q, const struct plait_route *r,
                      const void *logits)
{
    (void)q;
    for (size_t i = 0; i < r->N; i++) {
        if (r->bias)
            take_sigmoid(r, logits, i);
        else
            take_softmax(r, logits, i);
        choose(r, logits, i);
        if (r->each)
            weigh_each(r, logits, i);
    }
    return 0;
}

/* The sequence of token i. */
static size_t sequence_of(const struct plait_route *r, size_t i)
{
    return i / r->run % (size_t)r->sequences;
}

int ref_route_load(struct plait_queue *q, const struct plait_route *r,
                   float *load)
{
    (void)q;
    for (size_t i = 0; i < r->N * (size_t)r->k; i++) {
        size_t s = sequence_of(r, i / (size_t)r->k);

        load[s * (size_t)r->E + (size_t)r->expert[i]] += 1;
    }
    return 0;
}

/* Token i. gate_j = scale p_j / S with S the sum over the chosen, hence dp_j =
 * (scale dgate_j - sum_i dgate_i gate_i) / S, or scale p_j and scale dgate_j;
 * then the softmax's backward. */
static void token_backward(const struct plait_route *r,
                           const struct plait_route_gradient *g, size_t i)
{
    size_t first = i * (size_t)r->k, end = first + (size_t)r->k;
    const float *prob = r->prob + i * (size_t)r->E;
    const float *load = g->load + sequence_of(r, i) * (size_t)r->E;
    double balance = g->factor ? (double)g->balance * *g->factor : g->balance;
    double S = 0, mean = 0, dot = 0;

    for (size_t j = first; j < end; j++) {
        S += prob[r->expert[j]];
        mean += (double)g->dgate[j] * r->gate[j];
    }
    if (r->whole) {
        S = 1;
        mean = 0;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int e = 0; e < r->E; e++) {
            double dp = balance != 0 ? balance * load[e] : 0;

            for (size_t j = first; j < end; j++)
                if (r->expert[j] == e)
                    dp += ((double)r->scale * g->dgate[j] - mean) / S;
            if (pass == 0)
                dot += dp * prob[e];
            else
                ref_put(r->type, g->dlogits, i * (size_t)r->E + (size_t)e,
                        prob[e] * (dp - dot));
        }
}

/* The same of sigmoids. The balance loss is of shares of the sum A of all, p_e
 * / A. */
static void sigmoid_backward(const struct plait_route *r,
                             const struct plait_route_gradient *g, size_t i)
{
    size_t first = i * (size_t)r->k, end = first + (size_t)r->k;
    const float *prob = r->prob + i * (size_t)r->E;
    const float *load = g->load + sequence_of(r, i) * (size_t)r->E;
    double balance = g->factor ? (double)g->balance * *g->factor : g->balance;
    double S = PLAIT_ROUTE_TINY, A = PLAIT_ROUTE_TINY, mean = 0, dot = 0;

    for (size_t j = first; j < end; j++) {
        S += prob[r->expert[j]];
        mean += (double)g->dgate[j] * r->gate[j];
    }
    if (r->whole) {
        S = 1;
        mean = 0;
    }
    for (int e = 0; e < r->E; e++) {
        A += prob[e];
        dot += balance != 0 ? balance * load[e] * prob[e] : 0;
    }
    for (int e = 0; e < r->E; e++) {
        double p = prob[e];
        double dp = balance != 0 ? (balance * load[e] - dot / A) / A : 0;

        for (size_t j = first; j < end; j++)
            if (r->expert[j] == e)
                dp += ((double)r->scale * g->dgate[j] - mean) / S;
        ref_put(r->type, g->dlogits, i * (size_t)r->E + (size_t)e,
                p * (1 - p) * dp);
    }
}

/* Of such weights, and of the balance loss of the softmax. */
static void each_backward(const struct plait_route *r,
                          const struct plait_route_gradient *g, size_t i)
{
    size_t first = i * (size_t)r->k, end = first + (size_t)r->k;
    const float *prob = r->prob + i * (size_t)r->E;
    const float *load = g->load + sequence_of(r, i) * (size_t)r->E;
    double balance = g->factor ? (double)g->balance * *g->factor : g->balance;
    double dot = 0;

    for (int e = 0; e < r->E; e++)
        dot += balance != 0 ? balance * load[e] * prob[e] : 0;
    for (int e = 0; e < r->E; e++) {
        double d = balance != 0 ? prob[e] * (balance * load[e] - dot) : 0;

        for (size_t j = first; j < end; j++)
            if (r->expert[j] == e)
                d +=
                    (double)g->dgate[j] * r->gate[j] * (1 - (double)r->gate[j]);
        ref_put(r->type, g->dlogits, i * (size_t)r->E + (size_t)e, d);
    }
}

int ref_route_backward(struct plait_queue *q, const struct plait_route *r,
                       const struct plait_route_gradient *g)
{
    (void)q;
    for (size_t i = 0; i < r->N; i++)
        if (r->each)
            each_backward(r, g, i);
        else if (r->bias)
            sigmoid_backward(r, g, i);
        else
            token_backward(r, g, i);
    return 0;
}

/* Limits expert e in one run of tokens. */
static void limit_run(const struct plait_route *r,
                      const struct plait_route_limit *limit, size_t run, int e)
{
    size_t at = run * (size_t)r->E + (size_t)e;
    size_t first = run * r->run * (size_t)r->k;
    double count = limit->before ? limit->before[at] : 0;

    for (size_t i = first; i < first + r->run * (size_t)r->k; i++) {
        if (r->expert[i] != e)
            continue;
        limit->kept[i] = count < limit->most ? e : r->E;
        if (count++ >= limit->most)
            r->gate[i] = 0;
    }
}

int ref_route_limit(struct plait_queue *q, const struct plait_route *r,
                    const struct plait_route_limit *limit)
{
    (void)q;
    for (size_t run = 0; run < r->N / r->run; run++)
        for (int e = 0; e < r->E; e++)
            limit_run(r, limit, run, e);
    return 0;
}

int ref_route_sort(struct plait_queue *q, const struct plait_route_sort *s)
{
    int32_t at = 0;

    (void)q;
    for (int e = 0; e < s->E; e++) {
        s->count[e] = 0;
        for (size_t i = 0; i < s->n; i++)
            if (s->expert[i] == e) {
                s->place[i] = at++;
                s->count[e]++;
            }
    }
    return 0;
}

int ref_rows_spread(struct plait_queue *q, const struct plait_rows *r)
{
    size_t k = (size_t)r->k, C = r->C;

    (void)q;
    for (size_t i = 0; i < r->N * k; i++)
        for (size_t c = 0; c < C; c++)
            ref_put(r->type, r->out, (size_t)r->place[i] * C + c,
                    ref_get(r->type, r->x, i / k * C + c) *
                        (r->gate ? r->gate[i] : 1));
    return 0;
}

int ref_rows_join(struct plait_queue *q, const struct plait_rows *r)
{
    size_t k = (size_t)r->k, C = r->C;

    (void)q;
    for (size_t i = 0; i < r->N; i++)
        for (size_t c = 0; c < C; c++) {
            double sum =
                r->accumulate ? ref_get(r->type, r->out, i * C + c) : 0;

            for (size_t j = i * k; j < (i + 1) * k; j++)
                sum += ref_get(r->type, r->rows, (size_t)r->place[j] * C + c) *
                       (r->gate ? r->gate[j] : 1);
            ref_put(r->type, r->out, i * C + c, sum);
        }
    return 0;
}

int ref_rows_dot(struct plait_queue *q, const struct plait_rows *r)
{
    size_t k = (size_t)r->k, C = r->C;

    (void)q;
    for (size_t i = 0; i < r->N * k; i++) {
        double sum = 0;

        for (size_t c = 0; c < C; c++)
            sum += ref_get(r->type, r->dout, i / k * C + c) *
                   ref_get(r->type, r->rows, (size_t)r->place[i] * C + c);
        r->dgate[i] = (float)sum;
    }
    return 0;
}
