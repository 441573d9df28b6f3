/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/ref/ref.h"

static int chosen(const int32_t *expert, int n, int e)
{
    for (int j = 0; j < n; j++)
        if (expert[j] == e)
            return 1;
    return 0;
}

/* One token: its k experts and their gates. Chosen by logits: close to 1/2,
 * probabilities in fp32 cannot tell apart logits that differ near 0. */
static void choose(enum plait_dtype type, const void *logits, size_t at,
                   const float *prob, int32_t *expert, float *gate, int E,
                   int k)
{
    double sum = 0;

    for (int j = 0; j < k; j++) {
        int best = -1;

        for (int e = 0; e < E; e++)
            if (!chosen(expert, j, e) &&
                (best < 0 || ref_get(type, logits, at + (size_t)e) >
                                 ref_get(type, logits, at + (size_t)best)))
                best = e;
        expert[j] = best;
        sum += prob[best];
    }
    for (int j = 0; j < k; j++)
        gate[j] = (float)(prob[expert[j]] / sum);
}

int ref_route_forward(struct plait_queue *q, enum plait_dtype type, float *prob,
                      int32_t *expert, float *gate, const void *logits,
                      size_t N, int E, int k)
{
    (void)q;
    for (size_t i = 0; i < N; i++) {
        size_t at = i * (size_t)E;
        double max = -INFINITY, sum = 0;

        for (int e = 0; e < E; e++)
            max = fmax(max, ref_get(type, logits, at + (size_t)e));
        for (int e = 0; e < E; e++)
            sum += exp(ref_get(type, logits, at + (size_t)e) - max);
        for (int e = 0; e < E; e++)
            prob[at + (size_t)e] =
                (float)(exp(ref_get(type, logits, at + (size_t)e) - max) / sum);
        choose(type, logits, at, prob + at, expert + i * (size_t)k,
               gate + i * (size_t)k, E, k);
    }
    return 0;
}

int ref_route_load(struct plait_queue *q, float *load, const int32_t *expert,
                   size_t run, int sequences, size_t N, int E, int k)
{
    (void)q;
    for (size_t i = 0; i < N * (size_t)k; i++) {
        size_t s = i / (size_t)k / run % (size_t)sequences;

        load[s * (size_t)E + (size_t)expert[i]] += 1;
    }
    return 0;
}

/* gate_j = p_j / S with S the sum over the chosen, hence dp_j = (dgate_j -
 * sum_i dgate_i gate_i) / S; then the softmax's backward. */
static void token_backward(enum plait_dtype type, void *dlogits, size_t at,
                           const float *dgate, const float *prob,
                           const int32_t *expert, const float *gate,
                           const float *load, double balance, int E, int k)
{
    double S = 0, mean = 0, dot = 0;

    for (int j = 0; j < k; j++) {
        S += prob[expert[j]];
        mean += (double)dgate[j] * gate[j];
    }
    for (int pass = 0; pass < 2; pass++)
        for (int e = 0; e < E; e++) {
            double dp = balance != 0 ? balance * load[e] : 0;

            for (int j = 0; j < k; j++)
                if (expert[j] == e)
                    dp += (dgate[j] - mean) / S;
            if (pass == 0)
                dot += dp * prob[e];
            else
                ref_put(type, dlogits, at + (size_t)e, prob[e] * (dp - dot));
        }
}

int ref_route_backward(struct plait_queue *q, enum plait_dtype type,
                       void *dlogits, const float *dgate, const float *prob,
                       const int32_t *expert, const float *gate,
                       const float *load, float balance, const float *factor,
                       size_t run, int sequences, size_t N, int E, int k)
{
    double scale = factor ? (double)balance * *factor : balance;

    (void)q;
    for (size_t i = 0; i < N; i++) {
        size_t s = i / run % (size_t)sequences, j = i * (size_t)k;

        token_backward(type, dlogits, i * (size_t)E, dgate + j,
                       prob + i * (size_t)E, expert + j, gate + j,
                       load + s * (size_t)E, scale, E, k);
    }
    return 0;
}

/* Limits one expert in one run of n tokens. */
static void limit_run(int32_t *kept, float *gate, const int32_t *expert,
                      float before, size_t n, int e, int none, int k, int most)
{
    double count = before;

    for (size_t i = 0; i < n * (size_t)k; i++) {
        if (expert[i] != e)
            continue;
        kept[i] = count < most ? e : none;
        if (count++ >= most)
            gate[i] = 0;
    }
}

int ref_route_limit(struct plait_queue *q, int32_t *kept, float *gate,
                    const int32_t *expert, const float *before, size_t run,
                    size_t N, int E, int k, int most)
{
    (void)q;
    for (size_t r = 0; r < N / run; r++)
        for (int e = 0; e < E; e++) {
            size_t i = r * run * (size_t)k;

            limit_run(kept + i, gate + i, expert + i,
                      before ? before[r * (size_t)E + (size_t)e] : 0, run, e, E,
                      k, most);
        }
    return 0;
}

int ref_route_sort(struct plait_queue *q, int32_t *place, int32_t *count,
                   const int32_t *expert, size_t n, int E)
{
    int32_t at = 0;

    (void)q;
    for (int e = 0; e < E; e++) {
        count[e] = 0;
        for (size_t i = 0; i < n; i++)
            if (expert[i] == e) {
                place[i] = at++;
                count[e]++;
            }
    }
    return 0;
}

int ref_rows_spread(struct plait_queue *q, enum plait_dtype type, void *out,
                    const void *x, const int32_t *place, const float *gate,
                    size_t N, int k, size_t C)
{
    (void)q;
    for (size_t i = 0; i < N * (size_t)k; i++)
        for (size_t c = 0; c < C; c++)
            ref_put(type, out, (size_t)place[i] * C + c,
                    ref_get(type, x, i / (size_t)k * C + c) *
                        (gate ? gate[i] : 1));
    return 0;
}

int ref_rows_join(struct plait_queue *q, enum plait_dtype type, void *out,
                  const void *rows, const int32_t *place, const float *gate,
                  size_t N, int k, size_t C)
{
    (void)q;
    for (size_t i = 0; i < N; i++)
        for (size_t c = 0; c < C; c++) {
            double sum = 0;

            for (size_t j = i * (size_t)k; j < (i + 1) * (size_t)k; j++)
                sum += ref_get(type, rows, (size_t)place[j] * C + c) *
                       (gate ? gate[j] : 1);
            ref_put(type, out, i * C + c, sum);
        }
    return 0;
}

int ref_rows_dot(struct plait_queue *q, enum plait_dtype type, float *dgate,
                 const void *dout, const void *rows, const int32_t *place,
                 size_t N, int k, size_t C)
{
    (void)q;
    for (size_t i = 0; i < N * (size_t)k; i++) {
        double sum = 0;

        for (size_t c = 0; c < C; c++)
            sum += ref_get(type, dout, i / (size_t)k * C + c) *
                   ref_get(type, rows, (size_t)place[i] * C + c);
        dgate[i] = (float)sum;
    }
    return 0;
}
