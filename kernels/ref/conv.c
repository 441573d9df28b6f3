/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution as it is defined, one tap at a time: the oracle of the other
 * implementations. */
#include <math.h>
#include <string.h>

#include "kernels/ref/image.h"

/* The input coordinate that output coordinate `at` reads at kernel offset k;
 * returns 0 if it lies in the padding. */
static int input_side(const struct plait_conv *c, size_t at, int k, size_t side,
                      size_t *in)
{
    size_t shifted = at * (size_t)c->stride + (size_t)k;

    *in = shifted - (size_t)c->pad;
    return shifted >= (size_t)c->pad && *in < side;
}

/* One output pixel and one offset of the kernel. */
struct tap {
    size_t out, in; /* rows */
    size_t k;       /* 0 .. kernel * kernel - 1 */
};

/* Calls f for each tap that lies inside the image. */
static void each_tap(const struct plait_conv *c,
                     void (*f)(void *arg, const struct tap *t), void *arg)
{
    size_t OH = plait_conv_side(c, c->H), OW = plait_conv_side(c, c->W);
    size_t rows = plait_conv_rows(c), y, x;

    for (size_t r = 0; r < rows; r++) {
        size_t n = r / (OH * OW), oy = r / OW % OH, ox = r % OW;

        for (int k = 0; k < c->kernel * c->kernel; k++) {
            struct tap t = {.out = r, .k = (size_t)k};

            if (!input_side(c, oy, k / c->kernel, c->H, &y) ||
                !input_side(c, ox, k % c->kernel, c->W, &x))
                continue;
            t.in = (n * c->H + y) * c->W + x;
            f(arg, &t);
        }
    }
}

struct product {
    const struct plait_conv *c;
    double *sum;
    const float *a, *w;
};

static const float *kernel_at(const struct product *p, size_t o, size_t k)
{
    return p->w + o * plait_conv_patch(p->c) + k * p->c->C;
}

static void add_output(void *arg, const struct tap *t)
{
    struct product *p = arg;

    for (size_t o = 0; o < p->c->O; o++)
        for (size_t i = 0; i < p->c->C; i++)
            p->sum[t->out * p->c->O + o] +=
                (double)p->a[t->in * p->c->C + i] * kernel_at(p, o, t->k)[i];
}

static void add_input(void *arg, const struct tap *t)
{
    struct product *p = arg;

    for (size_t o = 0; o < p->c->O; o++)
        for (size_t i = 0; i < p->c->C; i++)
            p->sum[t->in * p->c->C + i] +=
                (double)p->a[t->out * p->c->O + o] * kernel_at(p, o, t->k)[i];
}

/* p->w is the input here. */
static void add_weight(void *arg, const struct tap *t)
{
    struct product *p = arg;

    for (size_t o = 0; o < p->c->O; o++)
        for (size_t i = 0; i < p->c->C; i++)
            p->sum[o * plait_conv_patch(p->c) + t->k * p->c->C + i] +=
                (double)p->a[t->out * p->c->O + o] * p->w[t->in * p->c->C + i];
}

/* dst [n] = (+=) what `add` sums up in p->sum. */
static int run(struct plait_queue *q, struct product *p,
               void (*add)(void *arg, const struct tap *t), float *dst,
               size_t n, int accumulate)
{
    p->sum = calloc(n + 1, sizeof(double));
    if (p->sum == NULL)
        return plait_queue_fail(&q->head, ENOMEM, "out of memory");
    each_tap(p->c, add, p);
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)(p->sum[i] + (accumulate ? dst[i] : 0));
    free(p->sum);
    return 0;
}

int ref_conv_forward(struct plait_queue *q, const struct plait_conv *c,
                     const struct plait_conv_arrays *a)
{
    struct product p = {.c = c, .a = a->inp, .w = a->w};

    return run(q, &p, add_output, a->out, plait_conv_rows(c) * c->O, 0);
}

int ref_conv_backward_input(struct plait_queue *q, const struct plait_conv *c,
                            const struct plait_conv_arrays *a)
{
    struct product p = {.c = c, .a = a->dout, .w = a->w};

    return run(q, &p, add_input, a->dinp, c->N * c->H * c->W * c->C, 0);
}

int ref_conv_backward_weight(struct plait_queue *q, const struct plait_conv *c,
                             const struct plait_conv_arrays *a)
{
    struct product p = {.c = c, .a = a->dout, .w = a->inp};

    return run(q, &p, add_weight, a->dw, c->O * plait_conv_patch(c),
               a->accumulate);
}

/* -- max pooling ----------------------------------------------------------- */

struct pool {
    const struct plait_conv *c;
    const float *x;
    float *best; /* [rows, C] */
    size_t *row; /* [rows, C] where it was found */
};

/* A NaN counts as larger than every number. */
static void take_larger(void *arg, const struct tap *t)
{
    struct pool *p = arg;
    size_t C = p->c->C;

    for (size_t i = 0; i < C; i++) {
        float v = p->x[t->in * C + i], *best = &p->best[t->out * C + i];

        if (v > *best || (isnan(v) && !isnan(*best))) {
            *best = v;
            p->row[t->out * C + i] = t->in;
        }
    }
}

static int find_largest(struct plait_queue *q, struct pool *p, size_t n)
{
    p->row = calloc(n + 1, sizeof(*p->row));
    if (p->row == NULL)
        return plait_queue_fail(&q->head, ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        p->best[i] = -INFINITY;
    each_tap(p->c, take_larger, p);
    return 0;
}

int ref_maxpool_forward(struct plait_queue *q, const struct plait_conv *c,
                        const struct plait_conv_arrays *a)
{
    struct pool p = {.c = c, .x = a->inp, .best = a->out};
    int rc = find_largest(q, &p, plait_conv_rows(c) * c->C);

    free(p.row);
    return rc;
}

int ref_maxpool_backward(struct plait_queue *q, const struct plait_conv *c,
                         const struct plait_conv_arrays *a)
{
    size_t n = plait_conv_rows(c) * c->C;
    struct pool p = {
        .c = c, .x = a->inp, .best = malloc((n + 1) * sizeof(*p.best))};
    int rc = -1;

    if (p.best == NULL)
        return plait_queue_fail(&q->head, ENOMEM, "out of memory");
    rc = find_largest(q, &p, n);
    memset(a->dinp, 0, c->N * c->H * c->W * c->C * sizeof(*a->dinp));
    for (size_t i = 0; i < n && rc == 0; i++)
        a->dinp[p.row[i] * c->C + i % c->C] += a->dout[i];
    free(p.best);
    free(p.row);
    return rc;
}
