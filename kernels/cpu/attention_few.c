/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention.h"

/* Attention of the few queries that are new in a text that grows: keys and
 * values are read once, as they lie, by all query heads that share them.
 * Tiles would be empty but for a row, and copying keys to them would take
 * longer than the products. */

/* Scores of a row, in whole vectors, and one vector of room. */
static size_t score_floats(const struct plait_attention *a)
{
    return padded((size_t)a->k_len) + VLEN;
}

/* Rows of one key-value head: its query heads by the new positions. */
static size_t row_count(const struct plait_attention *a)
{
    return (size_t)(a->q_heads / a->kv_heads) * (size_t)a->q_len;
}

/* The keys that new position i sees. */
static size_t seen_keys(const struct plait_attention *a, size_t i)
{
    int64_t n = a->q_pos + (int64_t)i - a->k_pos + 1;

    if (n <= 0)
        return 0;
    return n < a->k_len ? (size_t)n : (size_t)a->k_len;
}

/* s[j] = q . k_j for all rows of s, ahead of the mask. */
INLINE void scores(enum plait_dtype type, const struct attention *x,
                   const float *q, float *s, size_t at, size_t rows)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), len = score_floats(a);

    for (size_t j = 0; j < (size_t)a->k_len; j++) {
        size_t key = at + j * a->kv_stride;

        prefetch(type, x->K, at, a->kv_stride, j, (size_t)a->k_len, D);
        for (size_t r = 0; r < rows; r++) {
            vec sum = {0};

            for (size_t d = 0; d < D; d += VLEN)
                sum += vec_load(PLAIT_F32, q, r * ld + d, VLEN) *
                       vec_load(type, x->K, key + d, min(VLEN, D - d));
            s[r * len + j] = vec_sum(sum);
        }
    }
}

/* The first n scores become e^(s - max), those up to the next whole vector 0;
 * returns their sum. */
static float softmax(float *s, size_t n, float *max)
{
    vec largest = vec_set(-INFINITY), sum = {0};

    for (size_t j = n; j < padded(n); j++)
        s[j] = -INFINITY;
    for (size_t j = 0; j < n; j += VLEN)
        largest = vec_max(largest, vec_load(PLAIT_F32, s, j, VLEN));
    *max = vec_largest(largest);
    for (size_t j = 0; j < n; j += VLEN) {
        vec p = vec_exp(vec_load(PLAIT_F32, s, j, VLEN) - *max);

        vec_store(PLAIT_F32, s, j, VLEN, p);
        sum += p;
    }
    return vec_sum(sum);
}

/* out[r] = sum of p[j] v_j: v is read once for all rows. */
INLINE void weigh(enum plait_dtype type, const struct attention *x,
                  const float *s, float *out, size_t at, size_t rows)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), len = score_floats(a);

    memset(out, 0, rows * ld * sizeof(*out));
    for (size_t j = 0; j < (size_t)a->k_len; j++) {
        size_t value = at + j * a->kv_stride;

        prefetch(type, x->V, at, a->kv_stride, j, (size_t)a->k_len, D);
        for (size_t r = 0; r < rows; r++) {
            vec p = vec_set(s[r * len + j]);

            /* What is hidden may be no number. */
            if (j >= seen_keys(a, r % (size_t)a->q_len))
                continue;
            for (size_t d = 0; d < D; d += VLEN)
                vec_store(
                    PLAIT_F32, out, r * ld + d, VLEN,
                    vec_load(PLAIT_F32, out, r * ld + d, VLEN) +
                        p * vec_load(type, x->V, value + d, min(VLEN, D - d)));
        }
    }
}

INLINE void attend(enum plait_dtype type, const struct attention *x,
                   float *place, size_t n)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), Tq = (size_t)a->q_len;
    size_t rows = row_count(a), len = score_floats(a);
    size_t b = n / (size_t)a->kv_heads, kv = n % (size_t)a->kv_heads;
    size_t at = k_at(a, b, kv, 0), first = kv * (rows / Tq);
    float *q = place, *out = q + rows * ld, *s = out + rows * ld;

    for (size_t r = 0; r < rows; r++)
        for (size_t d = 0; d < ld; d += VLEN)
            vec_store(PLAIT_F32, q, r * ld + d, VLEN,
                      d < D ? vec_load(type, x->Q,
                                       q_at(a, b, first + r / Tq, r % Tq) + d,
                                       min(VLEN, D - d)) *
                                  a->scale
                            : vec_set(0));
    scores(type, x, q, s, at, rows);
    for (size_t r = 0; r < rows; r++) {
        size_t seen = seen_keys(a, r % Tq);
        float max = 0, sum = seen ? softmax(s + r * len, seen, &max) : 0;

        /* Until they are used, sums wait in q. */
        q[r * ld] = sum;
        x->lse[(b * (size_t)a->q_heads + first + r / Tq) * Tq + r % Tq] =
            seen ? max + logf(sum) : -INFINITY;
    }
    weigh(type, x, s, out, at, rows);
    for (size_t r = 0; r < rows; r++) {
        float by = seen_keys(a, r % Tq) ? 1 / q[r * ld] : 0;

        for (size_t d = 0; d < D; d += VLEN)
            vec_store(type, x->out, out_at(a, b, first + r / Tq, r % Tq) + d,
                      min(VLEN, D - d),
                      vec_load(PLAIT_F32, out, r * ld + d, VLEN) * by);
    }
}

int CPU_NAME(cpu_attention_few)(struct plait_queue *q, enum plait_dtype type,
                                const struct plait_attention *a, void *out,
                                float *lse, const void *Q, const void *K,
                                const void *V)
{
    struct attention x = {
        .type = type, .a = a, .Q = Q, .K = K, .V = V, .out = out, .lse = lse};
    size_t items = (size_t)a->batch * (size_t)a->kv_heads, rows = row_count(a);
    size_t each = rows * (2 * padded((size_t)a->head_dim) + score_floats(a));
    int threads = cpu_threads(q, items * rows * (size_t)a->k_len *
                                     (size_t)a->head_dim / 4);
    float *place;

    each = (each + 15) / 16 * 16;
    place =
        cpu_scratch(q, CPU_SCRATCH_OP, (size_t)threads * each * sizeof(*place));
    if (place == NULL)
        return -1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t n = 0; n < items; n++) {
        float *mine = place + (size_t)omp_get_thread_num() * each;

        if (type == PLAIT_F32)
            attend(PLAIT_F32, &x, mine, n);
        else if (type == PLAIT_BF16_T)
            attend(PLAIT_BF16_T, &x, mine, n);
        else
            attend(PLAIT_FP16_T, &x, mine, n);
    }
    return 0;
}
