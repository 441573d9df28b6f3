/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention.h"

#include <stdbool.h>

/* Attention of a few new queries over many cached keys, as in generation. Keys
 * and values are read once, in place, for all query heads that share them.
 * Tiles of queries would be nearly empty, and copying keys into tiles would
 * take longer than the products. */

/* Length of a row of scores: whole vectors, and one more as room. */
static size_t score_floats(const struct plait_attention *a)
{
    return padded((size_t)a->k_len) + VLEN;
}

/* Rows of one key-value head: its query heads times the new positions. */
static size_t row_count(const struct plait_attention *a)
{
    return (size_t)(a->q_heads / a->kv_heads) * (size_t)a->q_len;
}

/* The number of keys that new position i sees. */
static size_t seen_keys(const struct plait_attention *a, size_t i)
{
    int64_t n = a->q_pos + (int64_t)i - a->k_pos + 1;

    if (n <= 0)
        return 0;
    return n < a->k_len ? (size_t)n : (size_t)a->k_len;
}

/* s[j] = q . k_j for all rows of s, before the mask. Takes a vector of keys at
 * a time, so that the lanes of their products are summed up together. Scores
 * after the last key are 0. */
INLINE void scores(enum plait_dtype type, const struct attention *x,
                   const float *q, float *s, size_t at, size_t rows)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), len = score_floats(a);
    size_t keys = (size_t)a->k_len;

    for (size_t j = 0; j < keys; j += VLEN) {
        size_t n = min(VLEN, keys - j);

        for (size_t i = 0; i < n; i++)
            prefetch(type, x->K, (struct head_rows){at, a->kv_stride, keys, D},
                     j + i);
        for (size_t r = 0; r < rows; r++) {
            vec sum[VLEN] = {{0}};

            for (size_t d = 0; d < D; d += VLEN) {
                vec part = vec_load(PLAIT_F32, q, r * ld + d, VLEN);
                size_t m = min(VLEN, D - d), key = at + j * a->kv_stride + d;

                if (n == VLEN)
#pragma GCC unroll 16
                    for (size_t i = 0; i < VLEN; i++)
                        sum[i] += part * vec_load(type, x->K,
                                                  key + i * a->kv_stride, m);
                else
                    for (size_t i = 0; i < n; i++)
                        sum[i] += part * vec_load(type, x->K,
                                                  key + i * a->kv_stride, m);
            }
            vec_store(PLAIT_F32, s, r * len + j, VLEN, vec_sums(sum));
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

/* The block of sums that is kept in registers: WIDE vectors of a value's
 * columns for HIGH rows that share it. */
#define WIDE 4
#if VLEN == 16
#define HIGH 4
#else
#define HIGH 2
#endif

/* The operands of a weighted sum of the values of one key-value head. */
struct weighing {
    const struct attention *x;
    const float *s; /* [rows, score_floats()]: the weights p */
    float *out;     /* [rows, padded(D)] */
    size_t at;      /* of the head's first value */
};

/* Rows first .. first + high - 1 of out, and the keys from .. end - 1 that they
 * see; high is a constant. */
struct some_rows {
    size_t first, high, from, end;
};

/* Adds the sum of p[j] v_j over the keys of r to columns d .. d + WIDE * VLEN -
 * 1 of its rows. `whole`: all those columns exist. */
INLINE void weigh_block(enum plait_dtype type, struct weighing w,
                        struct some_rows r, size_t d, bool whole)
{
    const void *V = w.x->V;
    const struct plait_attention *a = w.x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), len = score_floats(a);
    vec sum[HIGH][WIDE] = {{{0}}};

    for (size_t j = r.from; j < r.end; j++) {
        size_t value = w.at + j * a->kv_stride + d;
        vec v[WIDE];

        if (r.first == 0 && d == 0)
            prefetch(type, V, (struct head_rows){w.at, a->kv_stride, r.end, D},
                     j);
#pragma GCC unroll 4
        for (size_t c = 0; c < WIDE; c++)
            v[c] = whole ? vec_load(type, V, value + c * VLEN, VLEN)
                   : d + c * VLEN < D ? vec_load(type, V, value + c * VLEN,
                                                 min(VLEN, D - d - c * VLEN))
                                      : vec_set(0);
#pragma GCC unroll 4
        for (size_t i = 0; i < r.high; i++) {
            vec p = vec_set(w.s[(r.first + i) * len + j]);

#pragma GCC unroll 4
            for (size_t c = 0; c < WIDE; c++)
                sum[i][c] += p * v[c];
        }
    }
    for (size_t i = 0; i < r.high; i++)
        for (size_t c = 0; c < WIDE && d + c * VLEN < D; c++) {
            size_t to = (r.first + i) * ld + d + c * VLEN;

            vec_store(PLAIT_F32, w.out, to, VLEN,
                      vec_load(PLAIT_F32, w.out, to, VLEN) + sum[i][c]);
        }
}

/* All columns. */
INLINE void weigh_rows(enum plait_dtype type, struct weighing w,
                       struct some_rows r)
{
    size_t D = (size_t)w.x->a->head_dim, d = 0;

    for (; d + WIDE * VLEN <= D; d += WIDE * VLEN)
        weigh_block(type, w, r, d, true);
    if (d < D)
        weigh_block(type, w, r, d, false);
}

/* out[r] = sum of p[j] v_j. A hidden value may be NaN, so that 0 * v_j must not
 * be added: only keys that all rows of a block see are summed for all of them
 * together, the others row by row. */
INLINE void weigh(enum plait_dtype type, struct weighing w, size_t rows)
{
    size_t Tq = (size_t)w.x->a->q_len, high;

    memset(w.out, 0, rows * padded((size_t)w.x->a->head_dim) * sizeof(*w.out));
    for (size_t r = 0; r < rows; r += high) {
        size_t all = SIZE_MAX;

        high = rows - r >= HIGH ? HIGH : rows - r >= 2 ? 2 : 1;
        for (size_t i = 0; i < high; i++)
            all = min(all, seen_keys(w.x->a, (r + i) % Tq));
        if (high == HIGH)
            weigh_rows(type, w, (struct some_rows){r, HIGH, 0, all});
        else if (high == 2)
            weigh_rows(type, w, (struct some_rows){r, 2, 0, all});
        else
            weigh_rows(type, w, (struct some_rows){r, 1, 0, all});
        for (size_t i = 0; i < high; i++) {
            size_t end = seen_keys(w.x->a, (r + i) % Tq);

            if (end > all)
                weigh_rows(type, w, (struct some_rows){r + i, 1, all, end});
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
    for (size_t r = 0; r < rows && a->cap > 0; r++)
        cap_rows(a, 1, s + r * len, 1, (size_t)a->k_len);
    for (size_t r = 0; r < rows; r++) {
        size_t seen = seen_keys(a, r % Tq);
        float max = 0, sum = seen ? softmax(s + r * len, seen, &max) : 0;

        /* q is not used any more: it keeps the sums until the output is
         * scaled. */
        q[r * ld] = sum;
        x->lse[(b * (size_t)a->q_heads + first + r / Tq) * Tq + r % Tq] =
            seen ? max + logf(sum) : -INFINITY;
        if (seen)
            raise_peak(x, first + r / Tq, max);
    }
    weigh(type, (struct weighing){x, s, out, at}, rows);
    for (size_t r = 0; r < rows; r++) {
        float by = seen_keys(a, r % Tq) ? 1 / q[r * ld] : 0;

        for (size_t d = 0; d < D; d += VLEN)
            vec_store(type, x->out, out_at(a, b, first + r / Tq, r % Tq) + d,
                      min(VLEN, D - d),
                      vec_load(PLAIT_F32, out, r * ld + d, VLEN) * by);
    }
}

int CPU_NAME(cpu_attention_few)(struct plait_queue *q,
                                const struct plait_attention_forward *f)
{
    const struct plait_attention *a = &f->a;
    struct attention x = forward_operands(f);
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

        if (x.type == PLAIT_F32)
            attend(PLAIT_F32, &x, mine, n);
        else if (x.type == PLAIT_BF16_T)
            attend(PLAIT_BF16_T, &x, mine, n);
        else
            attend(PLAIT_FP16_T, &x, mine, n);
    }
    return 0;
}
