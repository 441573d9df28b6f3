/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention_tiles.h"

/* -- forward ------------------------------------------------------------ */

struct forward_tiles {
    struct forward_rows rows;
    float *q;              /* [RUN] */
    float *k, *kt, *v, *s; /* k and v share memory */
};

static size_t forward_floats(size_t D)
{
    return (2 * RUN + 2) * TILE * padded(D) + TILE * TILE;
}

static struct forward_tiles forward_place(float *p, size_t D)
{
    size_t tile = TILE * padded(D);
    struct forward_tiles t = {.rows.out = p + RUN * tile, .q = p};

    t.k = t.v = p + 2 * RUN * tile;
    t.kt = t.k + tile;
    t.s = t.kt + tile;
    return t;
}

static void forward_queries(const struct attention *x, void *tiles, size_t at,
                            size_t rows)
{
    struct forward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, ld = padded(D);

    for (size_t i = 0; i < rows; i += TILE)
        load_any(x->type, t->q + i * ld, x->Q,
                 (struct head_rows){at + i * x->a->q_stride, x->a->q_stride,
                                    min(TILE, rows - i), D},
                 x->a->scale);
}

/* K is transposed to kt first: V is then loaded over it. */
static void forward_keys(const struct attention *x, void *tiles, size_t at,
                         size_t cols)
{
    struct forward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, ld = padded(D);
    struct head_rows keys = {at, x->a->kv_stride, cols, D};

    load_any(x->type, t->k, x->K, keys, 1);
    transpose(t->kt, t->k, ld, D);
    load_any(x->type, t->v, x->V, keys, 1);
}

/* Turns one row of scores into e^(s - max); keys from .. n - 1 are seen. The
 * output and the sum so far are rescaled to the new maximum. */
static void softmax_row(struct forward_tiles *t, size_t row, size_t from,
                        size_t n, size_t ld)
{
    float *s = t->s + row % TILE * TILE, *out = t->rows.out + row * ld;
    float old = t->rows.max[row], max, keep;
    vec largest = vec_set(-INFINITY), sum = {0};

    n = from < n ? n : 0;
    for (size_t k = 0; k < from && n > 0; k++)
        s[k] = -INFINITY;
    for (size_t k = n; k < padded(n); k++)
        s[k] = -INFINITY;
    for (size_t j = 0; j < n; j += VLEN)
        largest = vec_max(largest, vec_load(PLAIT_F32, s, j, VLEN));
    max = vec_largest(largest);
    max = max < old ? old : max;
    for (size_t j = 0; j < n; j += VLEN) {
        vec p = vec_exp(vec_load(PLAIT_F32, s, j, VLEN) - max);

        vec_store(PLAIT_F32, s, j, VLEN, p);
        sum += p;
    }
    for (size_t j = padded(n); j < TILE; j++)
        s[j] = 0;
    if (n == 0)
        return;
    keep = old == max ? 1 : vec_exp(vec_set(old - max))[0];
    t->rows.sum[row] = t->rows.sum[row] * keep + vec_sum(sum);
    t->rows.max[row] = max;
    if (keep != 1)
        for (size_t d = 0; d < ld; d += VLEN)
            vec_store(PLAIT_F32, out, d, VLEN,
                      vec_load(PLAIT_F32, out, d, VLEN) * keep);
}

static void forward_tile(const struct attention *x, void *tiles, size_t r,
                         size_t i0, size_t rows, const struct window *w)
{
    struct forward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, ld = padded(D);

    (void)i0;
    for (size_t i = 0; i < rows; i += HIGH) {
        size_t last = min(i + HIGH, rows) - 1, n = visible(w, last);
        size_t row = r * TILE + i;

        if (n <= hidden(w, i))
            continue;
        product(t->s + i * TILE, t->q + row * ld, ld, t->kt, padded(n), D);
        if (x->a->cap > 0)
            cap_rows(x->a, 1, t->s + i * TILE, HIGH, n);
        for (size_t k = i; k < i + HIGH; k++)
            softmax_row(t, r * TILE + k, k <= last ? hidden(w, k) : 0,
                        k <= last ? visible(w, k) : 0, ld);
        for (size_t k = i; k <= last && x->drops->keys != NULL; k++)
            drop_keys(x->drops, w, k, t->s + k * TILE, n);
        product_add(t->rows.out + row * ld, t->s + i * TILE,
                    (struct right){t->v, ld}, n);
    }
}

static void forward_item(const struct attention *x, void *place, size_t n)
{
    static const struct forward_steps steps = {
        .load_queries = forward_queries,
        .load_keys = forward_keys,
        .add_tile = forward_tile,
        .log_base = 1,
    };
    struct forward_tiles t = forward_place(place, (size_t)x->a->head_dim);

    forward_run(x, &steps, &t, n);
}

int CPU_NAME(cpu_attention_forward)(struct plait_queue *q,
                                    const struct plait_attention_forward *f)
{
    struct attention x = forward_operands(f);

    if (cpu_few_queries(&x))
        return CPU_NAME(cpu_attention_few)(q, f);
    return for_each_item(q, &x, forward_items(x.a),
                         forward_floats((size_t)x.a->head_dim) * sizeof(float),
                         forward_item);
}

/* -- merge --------------------------------------------------------------- */

INLINE void merge_row(enum plait_dtype type,
                      const struct plait_attention_merge *m, size_t at,
                      float w1, float w2)
{
    size_t D = (size_t)m->a.head_dim;

    for (size_t d = 0; d < D; d += VLEN) {
        size_t n = min(VLEN, D - d);

        vec_store(PLAIT_F32, m->out, at + d, n,
                  vec_load(PLAIT_F32, m->out, at + d, n) * w1 +
                      vec_load(type, m->out2, at + d, n) * w2);
    }
}

static int attention_merge(struct plait_queue *q,
                           const struct plait_attention_merge *m)
{
    const struct plait_attention *a = &m->a;
    size_t H = (size_t)a->q_heads, T = (size_t)a->q_len;
    size_t D = (size_t)a->head_dim, rows = (size_t)a->batch * H * T;
    int threads = cpu_threads(q, rows * D);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t r = 0; r < rows; r++) {
        size_t at = out_at(a, r / (H * T), r / T % H, r % T);
        float l1 = m->lse[r], l2 = m->lse2[r], max = l1 < l2 ? l2 : l1;
        float e1, e2, sum;

        if (l1 == -INFINITY && l2 == -INFINITY)
            continue; /* neither part saw a key: out is 0 and lse -inf
                       * already */
        e1 = expf(l1 - max);
        e2 = expf(l2 - max);
        sum = e1 + e2;
        if (m->type == PLAIT_F32)
            merge_row(PLAIT_F32, m, at, e1 / sum, e2 / sum);
        else if (m->type == PLAIT_BF16_T)
            merge_row(PLAIT_BF16_T, m, at, e1 / sum, e2 / sum);
        else
            merge_row(PLAIT_FP16_T, m, at, e1 / sum, e2 / sum);
        m->lse[r] = max + logf(sum);
    }
    return 0;
}

void CPU_NAME(cpu_fill_attention)(struct plait_ops *ops)
{
    ops->attention_forward = CPU_NAME(cpu_attention_forward);
    ops->attention_backward = CPU_NAME(cpu_attention_backward);
    ops->attention_merge = attention_merge;
}
