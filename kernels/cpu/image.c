/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>

#include "kernels/cpu/conv.h"
#include "kernels/cpu/vec.h"

/* Batch norm, pooling and activation of images. Rows are cut into chunks that
 * fit L1, independent of the number of threads, so that the order of summation
 * is fixed. */

#define CHUNK 8192 /* elements */

/* -- the chunks of a batch norm -------------------------------------------- */

struct chunks {
    size_t rows; /* of a full chunk */
    size_t each; /* chunks of a group */
    size_t all;
};

static struct chunks cut_chunks(const struct plait_batchnorm *b)
{
    size_t rows = b->C < CHUNK ? CHUNK / b->C : 1;
    size_t each = (b->rows + rows - 1) / rows;

    return (struct chunks){rows, each, each * b->groups};
}

/* The rows of a chunk, and its group. */
struct chunk {
    size_t group, first, rows;
};

static struct chunk find_chunk(const struct plait_batchnorm *b,
                               const struct chunks *k, size_t i)
{
    size_t g = i / k->each, at = i % k->each * k->rows;

    return (struct chunk){g, g * b->rows + at, min(k->rows, b->rows - at)};
}

/* n channels of a chunk, in one vector: where its first element is among those
 * of x, and its statistics among those of all groups. */
struct part {
    size_t at, stat, rows, n;
};

static struct part find_part(const struct plait_batchnorm *b,
                             const struct chunk *k, size_t c)
{
    return (struct part){k->first * b->C + c, k->group * b->C + c, k->rows,
                         min(b->C - c, VLEN)};
}

INLINE vec load(const float *p, size_t n)
{
    return vec_load(PLAIT_F32, p, 0, n);
}

INLINE void store(float *p, size_t n, vec x)
{
    vec_store(PLAIT_F32, p, 0, n, x);
}

/* -- statistics --------------------------------------------------------------
 */

/* The mean of a part, and the sum of squared distances from it. */
INLINE void part_moments(const struct plait_batchnorm *b, struct part p,
                         vec *mean, vec *squares)
{
    const float *x = b->x + p.at;
    size_t C = b->C;
    vec sum[4] = {{0}}, square[4] = {{0}}, m;

    for (size_t r = 0; r < p.rows; r++)
        sum[r % 4] += load(x + r * C, p.n);
    m = (sum[0] + sum[1] + sum[2] + sum[3]) * vec_set(1 / (float)p.rows);
    for (size_t r = 0; r < p.rows; r++) {
        vec d = load(x + r * C, p.n) - m;

        square[r % 4] += d * d;
    }
    *mean = m;
    *squares = square[0] + square[1] + square[2] + square[3];
}

/* Merges the moments of a group's chunks for one channel (Chan, Golub and
 * LeVeque, 1979). */
static void join_moments(const struct plait_batchnorm *b,
                         const struct chunks *k, const float *part, float *mean,
                         float *var)
{
    double n = 0, m = 0, squares = 0;

    for (size_t i = 0; i < k->each; i++) {
        double rows = (double)min(k->rows, b->rows - i * k->rows);
        double d = part[i * 2 * b->C] - m;

        squares += part[(i * 2 + 1) * b->C] + d * d * n * rows / (n + rows);
        n += rows;
        m += d * rows / n;
    }
    *mean = (float)m;
    *var = (float)(squares / n);
}

static int batchnorm_stats(struct plait_queue *q,
                           const struct plait_batchnorm *b)
{
    struct chunks k = cut_chunks(b);
    size_t C = b->C;
    float *part = cpu_scratch(q, CPU_SCRATCH_OP, k.all * 2 * C * sizeof(*part));

    if (part == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        struct chunk chunk = find_chunk(b, &k, i);

        for (size_t c = 0; c < C; c += VLEN) {
            struct part p = find_part(b, &chunk, c);
            vec mean, squares;

            part_moments(b, p, &mean, &squares);
            store(part + i * 2 * C + c, p.n, mean);
            store(part + (i * 2 + 1) * C + c, p.n, squares);
        }
    }
    for (size_t g = 0; g < b->groups; g++)
        for (size_t c = 0; c < C; c++)
            join_moments(b, &k, part + g * k.each * 2 * C + c,
                         b->stats + g * C + c,
                         b->stats + (b->groups + g) * C + c);
    return 0;
}

/* -- forward -----------------------------------------------------------------
 */

/* Mean and rstd of a part's channels: normalised is (x - mean) * rstd. */
INLINE void load_stats(const struct plait_batchnorm *b, struct part p,
                       vec *mean, vec *rstd)
{
    const float *var = b->stats + b->groups * b->C;

    *mean = load(b->stats + p.stat, p.n);
    *rstd = vec_set(1) / vec_sqrt(load(var + p.stat, p.n) + vec_set(b->eps));
}

INLINE void normalise_part(const struct plait_batchnorm *b, struct part p,
                           size_t c)
{
    const float *x = b->x + p.at;
    const float *residual = b->residual ? b->residual + p.at : NULL;
    float *out = b->out + p.at;
    size_t C = b->C;
    int relu = b->relu;
    vec mean, rstd, scale, beta = load(b->beta + c, p.n);

    load_stats(b, p, &mean, &rstd);
    scale = rstd * load(b->gamma + c, p.n);
    for (size_t r = 0; r < p.rows; r++) {
        vec y = (load(x + r * C, p.n) - mean) * scale + beta;

        if (residual != NULL)
            y += load(residual + r * C, p.n);
        if (relu)
            y = vec_max(y, (vec){0});
        store(out + r * C, p.n, y);
    }
}

static int batchnorm_forward(struct plait_queue *q,
                             const struct plait_batchnorm *b)
{
    struct chunks k = cut_chunks(b);
    size_t C = b->C;

#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        struct chunk chunk = find_chunk(b, &k, i);

        for (size_t c = 0; c < C; c += VLEN)
            normalise_part(b, find_part(b, &chunk, c), c);
    }
    return 0;
}

/* -- backward ----------------------------------------------------------------
 */

INLINE vec masked(const float *dout, const float *out, size_t i, size_t n)
{
    vec d = load(dout + i, n);

    if (out == NULL)
        return d;
    return vec_select(load(out + i, n) <= (vec){0}, (vec){0}, d);
}

/* Sums, for a part, the gradient and gradient * (x - mean). */
INLINE void sum_part(const struct plait_batchnorm *b, struct part p, vec mean,
                     vec *sum, vec *product)
{
    const float *dout = b->dout + p.at, *x = b->x + p.at;
    const float *out = b->out ? b->out + p.at : NULL;
    size_t C = b->C;
    vec s[2] = {{0}}, t[2] = {{0}};

    for (size_t r = 0; r < p.rows; r++) {
        vec d = masked(dout, out, r * C, p.n);

        s[r % 2] += d;
        t[r % 2] += d * (load(x + r * C, p.n) - mean);
    }
    *sum = s[0] + s[1];
    *product = t[0] + t[1];
}

static int batchnorm_sums(struct plait_queue *q,
                          const struct plait_batchnorm *b)
{
    struct chunks k = cut_chunks(b);
    size_t C = b->C;
    float *part = cpu_scratch(q, CPU_SCRATCH_OP, k.all * 2 * C * sizeof(*part));

    if (part == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        struct chunk chunk = find_chunk(b, &k, i);

        for (size_t c = 0; c < C; c += VLEN) {
            struct part p = find_part(b, &chunk, c);
            vec mean, rstd, sum, product;

            load_stats(b, p, &mean, &rstd);
            sum_part(b, p, mean, &sum, &product);
            store(part + i * 2 * C + c, p.n, sum);
            store(part + (i * 2 + 1) * C + c, p.n, product * rstd);
        }
    }
    for (size_t i = 0; i < b->groups * 2 * C; i++) {
        const float *at = part + i / (2 * C) * k.each * 2 * C + i % (2 * C);
        double sum = 0;

        for (size_t j = 0; j < k.each; j++)
            sum += at[j * 2 * C];
        b->sums[i] = (float)sum;
    }
    return 0;
}

/* dx = scale * (d - sum - (x - mean) * product), where `sum` and `product` are
 * already divided by the count. */
struct slope {
    vec mean, scale, sum, product;
};

INLINE struct slope load_slope(const struct plait_batchnorm *b, struct part p,
                               size_t group, size_t c)
{
    const float *sums = b->sums + group * 2 * b->C + c;
    vec rstd, share = vec_set(1 / (float)b->count);
    struct slope s;

    load_stats(b, p, &s.mean, &rstd);
    s.scale = load(b->gamma + c, p.n) * rstd;
    s.sum = load(sums, p.n) * share;
    s.product = load(sums + b->C, p.n) * share * rstd;
    return s;
}

INLINE void part_backward(const struct plait_batchnorm *b, struct part p,
                          const struct slope *s)
{
    const float *dout = b->dout + p.at, *x = b->x + p.at;
    const float *out = b->out ? b->out + p.at : NULL;
    float *dresidual = b->dresidual ? b->dresidual + p.at : NULL;
    float *dx = b->dx + p.at;
    size_t C = b->C;

    for (size_t r = 0; r < p.rows; r++) {
        vec d = masked(dout, out, r * C, p.n);
        vec centred = load(x + r * C, p.n) - s->mean;

        if (dresidual != NULL)
            store(dresidual + r * C, p.n, d);
        store(dx + r * C, p.n, s->scale * (d - s->sum - centred * s->product));
    }
}

static int batchnorm_backward(struct plait_queue *q,
                              const struct plait_batchnorm *b)
{
    struct chunks k = cut_chunks(b);
    size_t C = b->C;

#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        struct chunk chunk = find_chunk(b, &k, i);

        for (size_t c = 0; c < C; c += VLEN) {
            struct part p = find_part(b, &chunk, c);
            struct slope s = load_slope(b, p, chunk.group, c);

            part_backward(b, p, &s);
        }
    }
    return 0;
}

/* -- activation, pooling ------------------------------------------------------
 */

static int relu(struct plait_queue *q, float *x, size_t n)
{
#pragma omp parallel for num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i += VLEN) {
        size_t m = min(n - i, VLEN);

        store(x + i, m, vec_max(load(x + i, m), (vec){0}));
    }
    return 0;
}

static int relu_backward(struct plait_queue *q, float *dx, const float *out,
                         size_t n)
{
#pragma omp parallel for num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i += VLEN) {
        size_t m = min(n - i, VLEN);

        store(dx + i, m, masked(dx, out, i, m));
    }
    return 0;
}

static int avgpool_forward(struct plait_queue *q, const struct plait_avgpool *p,
                           float *out, const float *x)
{
    size_t rows = p->rows, C = p->C;

#pragma omp parallel for num_threads(cpu_threads(q, p->N *rows *C))
    for (size_t i = 0; i < p->N; i++)
        for (size_t c = 0; c < C; c += VLEN) {
            size_t n = min(C - c, VLEN);
            vec sum = {0};

            for (size_t r = 0; r < rows; r++)
                sum += load(x + (i * rows + r) * C + c, n);
            store(out + i * C + c, n, sum * vec_set(1 / (float)rows));
        }
    return 0;
}

static int avgpool_backward(struct plait_queue *q,
                            const struct plait_avgpool *p, float *dx,
                            const float *dout)
{
    size_t rows = p->rows, C = p->C;

#pragma omp parallel for num_threads(cpu_threads(q, p->N *rows *C))
    for (size_t i = 0; i < p->N * rows; i++)
        for (size_t c = 0; c < C; c += VLEN) {
            size_t n = min(C - c, VLEN);

            store(dx + i * C + c, n,
                  load(dout + i / rows * C + c, n) * vec_set(1 / (float)rows));
        }
    return 0;
}

void CPU_NAME(cpu_fill_image)(struct plait_ops *ops)
{
    static const struct plait_image_ops table = {
        .conv_forward = cpu_conv_forward,
        .conv_backward_input = cpu_conv_backward_input,
        .conv_backward_weight = cpu_conv_backward_weight,
        .batchnorm_stats = batchnorm_stats,
        .batchnorm_join = ref_batchnorm_join,
        .batchnorm_forward = batchnorm_forward,
        .batchnorm_sums = batchnorm_sums,
        .batchnorm_backward = batchnorm_backward,
        .batchnorm_fold = ref_batchnorm_fold,
        .relu = relu,
        .relu_backward = relu_backward,
        .avgpool_forward = avgpool_forward,
        .avgpool_backward = avgpool_backward,
        .maxpool_forward = ref_maxpool_forward,
        .maxpool_backward = ref_maxpool_backward,
        .class_loss = ref_class_loss,
    };

    ops->image = &table;
}
