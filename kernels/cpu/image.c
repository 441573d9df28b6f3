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

/* Chunk i: returns its group; its first row, and how many. */
static size_t find_chunk(const struct plait_batchnorm *b,
                         const struct chunks *k, size_t i, size_t *first,
                         size_t *rows)
{
    size_t g = i / k->each, at = i % k->each * k->rows;

    *first = g * b->rows + at;
    *rows = min(k->rows, b->rows - at);
    return g;
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

/* The mean, and the sum of squared distances from it, for one vector of
 * channels. */
INLINE void chunk_moments(const float *x, size_t rows, size_t C, size_t n,
                          vec *mean, vec *squares)
{
    vec sum[4] = {{0}}, square[4] = {{0}}, m;

    for (size_t r = 0; r < rows; r++)
        sum[r % 4] += load(x + r * C, n);
    m = (sum[0] + sum[1] + sum[2] + sum[3]) * vec_set(1 / (float)rows);
    for (size_t r = 0; r < rows; r++) {
        vec d = load(x + r * C, n) - m;

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
                           const struct plait_batchnorm *b, float *stats,
                           const float *x)
{
    struct chunks k = cut_chunks(b);
    size_t C = b->C;
    float *part = cpu_scratch(q, CPU_SCRATCH_OP, k.all * 2 * C * sizeof(*part));

    if (part == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        size_t first, rows;

        find_chunk(b, &k, i, &first, &rows);
        for (size_t c = 0; c < C; c += VLEN) {
            size_t n = min(C - c, VLEN);
            vec mean, squares;

            chunk_moments(x + first * C + c, rows, C, n, &mean, &squares);
            store(part + i * 2 * C + c, n, mean);
            store(part + (i * 2 + 1) * C + c, n, squares);
        }
    }
    for (size_t g = 0; g < b->groups; g++)
        for (size_t c = 0; c < C; c++)
            join_moments(b, &k, part + g * k.each * 2 * C + c,
                         stats + g * C + c, stats + (b->groups + g) * C + c);
    return 0;
}

/* -- forward -----------------------------------------------------------------
 */

/* Mean and rstd of one vector of channels: normalised is (x - mean) * rstd. */
INLINE void load_stats(const struct plait_batchnorm *b, const float *stats,
                       size_t at, size_t n, vec *mean, vec *rstd)
{
    *mean = load(stats + at, n);
    *rstd = vec_set(1) /
            vec_sqrt(load(stats + b->groups * b->C + at, n) + vec_set(b->eps));
}

INLINE void normalise_rows(float *out, const float *x, const float *residual,
                           size_t rows, size_t C, size_t n, vec mean, vec scale,
                           vec beta, int relu)
{
    for (size_t r = 0; r < rows; r++) {
        vec y = (load(x + r * C, n) - mean) * scale + beta;

        if (residual != NULL)
            y += load(residual + r * C, n);
        if (relu)
            y = vec_max(y, (vec){0});
        store(out + r * C, n, y);
    }
}

static int batchnorm_forward(struct plait_queue *q,
                             const struct plait_batchnorm *b, float *out,
                             const float *x, const float *stats,
                             const float *gamma, const float *beta,
                             const float *residual, int relu)
{
    struct chunks k = cut_chunks(b);
    size_t C = b->C;

#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        size_t first, rows, g = find_chunk(b, &k, i, &first, &rows);

        for (size_t c = 0; c < C; c += VLEN) {
            size_t n = min(C - c, VLEN), at = first * C + c;
            vec mean, rstd;

            load_stats(b, stats, g * C + c, n, &mean, &rstd);
            normalise_rows(out + at, x + at, residual ? residual + at : NULL,
                           rows, C, n, mean, rstd * load(gamma + c, n),
                           load(beta + c, n), relu);
        }
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

/* Sums, for one vector of channels, the gradient and gradient * (x - mean). */
INLINE void sum_rows(const float *dout, const float *out, const float *x,
                     size_t rows, size_t C, size_t n, vec mean, vec *sum,
                     vec *product)
{
    vec s[2] = {{0}}, p[2] = {{0}};

    for (size_t r = 0; r < rows; r++) {
        vec d = masked(dout, out, r * C, n);

        s[r % 2] += d;
        p[r % 2] += d * (load(x + r * C, n) - mean);
    }
    *sum = s[0] + s[1];
    *product = p[0] + p[1];
}

static int batchnorm_sums(struct plait_queue *q,
                          const struct plait_batchnorm *b, float *sums,
                          const float *dout, const float *out, const float *x,
                          const float *stats)
{
    struct chunks k = cut_chunks(b);
    size_t C = b->C;
    float *part = cpu_scratch(q, CPU_SCRATCH_OP, k.all * 2 * C * sizeof(*part));

    if (part == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        size_t first, rows, g = find_chunk(b, &k, i, &first, &rows);

        for (size_t c = 0; c < C; c += VLEN) {
            size_t n = min(C - c, VLEN), at = first * C + c;
            vec mean, rstd, sum, product;

            load_stats(b, stats, g * C + c, n, &mean, &rstd);
            sum_rows(dout + at, out ? out + at : NULL, x + at, rows, C, n, mean,
                     &sum, &product);
            store(part + i * 2 * C + c, n, sum);
            store(part + (i * 2 + 1) * C + c, n, product * rstd);
        }
    }
    for (size_t i = 0; i < b->groups * 2 * C; i++) {
        const float *at = part + i / (2 * C) * k.each * 2 * C + i % (2 * C);
        double sum = 0;

        for (size_t j = 0; j < k.each; j++)
            sum += at[j * 2 * C];
        sums[i] = (float)sum;
    }
    return 0;
}

/* dx = scale * (d - sum - (x - mean) * product), where `sum` and `product` are
 * already divided by the count. */
struct slope {
    vec mean, scale, sum, product;
};

INLINE void rows_backward(float *dx, float *dresidual, const float *dout,
                          const float *out, const float *x, size_t rows,
                          size_t C, size_t n, const struct slope *s)
{
    for (size_t r = 0; r < rows; r++) {
        vec d = masked(dout, out, r * C, n);
        vec centred = load(x + r * C, n) - s->mean;

        if (dresidual != NULL)
            store(dresidual + r * C, n, d);
        store(dx + r * C, n, s->scale * (d - s->sum - centred * s->product));
    }
}

static int batchnorm_backward(struct plait_queue *q,
                              const struct plait_batchnorm *b, float *dx,
                              float *dresidual, const float *dout,
                              const float *out, const float *x,
                              const float *stats, const float *gamma,
                              const float *sums, size_t count)
{
    struct chunks k = cut_chunks(b);
    vec share = vec_set(1 / (float)count);
    size_t C = b->C;

#pragma omp parallel for num_threads(cpu_threads(q, b->groups * b->rows * C))
    for (size_t i = 0; i < k.all; i++) {
        size_t first, rows, g = find_chunk(b, &k, i, &first, &rows);

        for (size_t c = 0; c < C; c += VLEN) {
            size_t n = min(C - c, VLEN), at = first * C + c;
            struct slope s;
            vec rstd;

            load_stats(b, stats, g * C + c, n, &s.mean, &rstd);
            s.scale = load(gamma + c, n) * rstd;
            s.sum = load(sums + g * 2 * C + c, n) * share;
            s.product = load(sums + (g * 2 + 1) * C + c, n) * share * rstd;
            rows_backward(dx + at, dresidual ? dresidual + at : NULL, dout + at,
                          out ? out + at : NULL, x + at, rows, C, n, &s);
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

static int avgpool_forward(struct plait_queue *q, float *out, const float *x,
                           size_t N, size_t rows, size_t C)
{
#pragma omp parallel for num_threads(cpu_threads(q, N *rows *C))
    for (size_t i = 0; i < N; i++)
        for (size_t c = 0; c < C; c += VLEN) {
            size_t n = min(C - c, VLEN);
            vec sum = {0};

            for (size_t r = 0; r < rows; r++)
                sum += load(x + (i * rows + r) * C + c, n);
            store(out + i * C + c, n, sum * vec_set(1 / (float)rows));
        }
    return 0;
}

static int avgpool_backward(struct plait_queue *q, float *dx, const float *dout,
                            size_t N, size_t rows, size_t C)
{
#pragma omp parallel for num_threads(cpu_threads(q, N *rows *C))
    for (size_t i = 0; i < N * rows; i++)
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
