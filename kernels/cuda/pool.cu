/* SPDX-License-Identifier: Apache-2.0 */
/* Patches, pooling, activation and loss of images. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/image.h"

static const unsigned threads = 256;

/* A convolution with the sides of its output. */
struct window {
    struct plait_conv c;
    size_t OH, OW;
};

static window window_of(const struct plait_conv *c)
{
    return window{*c, plait_conv_side(c, c->H), plait_conv_side(c, c->W)};
}

/* The input coordinate that output coordinate `at` reads at kernel offset k;
 * returns false if it is in the padding. */
static __device__ inline bool input_side(const struct plait_conv &c, size_t at,
                                         int k, size_t side, size_t *in)
{
    long shifted = (long)(at * (size_t)c.stride) + k - c.pad;

    *in = (size_t)shifted;
    return shifted >= 0 && shifted < (long)side;
}

/* -- patches -------------------------------------------------------------- */

static __global__ void im2col_kernel(struct window w, size_t n, float *patches,
                                     const float *inp)
{
    const struct plait_conv &c = w.c;
    size_t kernel = (size_t)c.kernel;

    GRID_LOOP(i, n)
    {
        size_t ch = i % c.C, k = i / c.C % (kernel * kernel);
        size_t r = i / c.C / (kernel * kernel), image = r / (w.OH * w.OW);
        size_t y, x;
        bool inside =
            input_side(c, r / w.OW % w.OH, (int)(k / kernel), c.H, &y) &
            input_side(c, r % w.OW, (int)(k % kernel), c.W, &x);

        patches[i] = inside ? inp[((image * c.H + y) * c.W + x) * c.C + ch] : 0;
    }
}

void cuda_im2col(struct plait_queue *q, const struct plait_conv *c,
                 float *patches, const float *inp)
{
    size_t n = plait_conv_rows(c) * plait_conv_patch(c);

    im2col_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(
        window_of(c), n, patches, inp);
}

/* The output coordinate that reads input coordinate `at` at kernel offset k;
 * returns false if there is none. */
static __device__ inline bool output_side(const struct plait_conv &c, size_t at,
                                          int k, size_t side, size_t *out)
{
    long shifted = (long)at + c.pad - k;

    *out = (size_t)(shifted / c.stride);
    return shifted >= 0 && shifted % c.stride == 0 && *out < side;
}

static __global__ void col2im_kernel(struct window w, size_t n, float *dinp,
                                     const float *patches)
{
    const struct plait_conv &c = w.c;
    size_t taps = (size_t)c.kernel * (size_t)c.kernel;

    GRID_LOOP(i, n)
    {
        size_t ch = i % c.C, x = i / c.C % c.W, y = i / c.C / c.W % c.H;
        size_t image = i / c.C / c.W / c.H, oy, ox;
        float sum = 0;

        for (int k = 0; k < c.kernel * c.kernel; k++) {
            if (!output_side(c, y, k / c.kernel, w.OH, &oy) ||
                !output_side(c, x, k % c.kernel, w.OW, &ox))
                continue;
            sum +=
                patches[(((image * w.OH + oy) * w.OW + ox) * taps + (size_t)k) *
                            c.C +
                        ch];
        }
        dinp[i] = sum;
    }
}

void cuda_col2im(struct plait_queue *q, const struct plait_conv *c, float *dinp,
                 const float *patches)
{
    size_t n = c->N * c->H * c->W * c->C;

    col2im_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(
        window_of(c), n, dinp, patches);
}

/* -- max pooling ----------------------------------------------------------- */

/* One output element: image, pixel and channel. */
struct output {
    size_t image, y, x, ch;
};

/* The maximum for one output element; *row: the input row that has it. A NaN
 * counts as larger than every number. */
static __device__ inline float
find_largest(const struct window &w, const float *x, output o, size_t *row)
{
    const struct plait_conv &c = w.c;
    float best = -CUDART_INF_F;
    size_t iy, ix;

    for (int k = 0; k < c.kernel * c.kernel; k++) {
        size_t at;
        float v;

        if (!input_side(c, o.y, k / c.kernel, c.H, &iy) ||
            !input_side(c, o.x, k % c.kernel, c.W, &ix))
            continue;
        at = (o.image * c.H + iy) * c.W + ix;
        v = x[at * c.C + o.ch];
        if (v > best || (isnan(v) && !isnan(best))) {
            best = v;
            *row = at;
        }
    }
    return best;
}

static __global__ void maxpool_kernel(struct window w, size_t n, float *out,
                                      const float *x)
{
    GRID_LOOP(i, n)
    {
        size_t r = i / w.c.C, row = 0;
        output o = {r / (w.OH * w.OW), r / w.OW % w.OH, r % w.OW, i % w.c.C};

        out[i] = find_largest(w, x, o, &row);
    }
}

static int maxpool_forward(struct plait_queue *q, const struct plait_conv *c,
                           const struct plait_conv_arrays *a)
{
    size_t n = plait_conv_rows(c) * c->C;

    if (cuda_enter(q) != 0)
        return -1;
    maxpool_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(
        window_of(c), n, a->out, a->inp);
    return cuda_leave(q, "maxpool_forward");
}

/* Each input element looks at the windows it is in, so that no two threads add
 * to the same element. */
static __global__ void maxpool_gradient_kernel(struct window w, size_t n,
                                               float *dx, const float *dout,
                                               const float *in)
{
    const struct plait_conv &c = w.c;

    GRID_LOOP(i, n)
    {
        size_t ch = i % c.C, x = i / c.C % c.W, y = i / c.C / c.W % c.H;
        size_t image = i / c.C / c.W / c.H, oy, ox;
        float sum = 0;

        for (int k = 0; k < c.kernel * c.kernel; k++) {
            size_t row = 0;

            if (!output_side(c, y, k / c.kernel, w.OH, &oy) ||
                !output_side(c, x, k % c.kernel, w.OW, &ox))
                continue;
            find_largest(w, in, output{image, oy, ox, ch}, &row);
            if (row == i / c.C)
                sum += dout[((image * w.OH + oy) * w.OW + ox) * c.C + ch];
        }
        dx[i] = sum;
    }
}

static int maxpool_backward(struct plait_queue *q, const struct plait_conv *c,
                            const struct plait_conv_arrays *a)
{
    size_t n = c->N * c->H * c->W * c->C;

    if (cuda_enter(q) != 0)
        return -1;
    maxpool_gradient_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(
        window_of(c), n, a->dinp, a->dout, a->inp);
    return cuda_leave(q, "maxpool_backward");
}

/* -- mean of an image, activation -------------------------------------------
 */

static __global__ void avgpool_kernel(float *out, const float *x, size_t N,
                                      size_t rows, size_t C)
{
    GRID_LOOP(i, N * C)
    {
        float sum = 0;

        for (size_t r = 0; r < rows; r++)
            sum += x[(i / C * rows + r) * C + i % C];
        out[i] = sum / (float)rows;
    }
}

static int avgpool_forward(struct plait_queue *q, const struct plait_avgpool *p,
                           float *out, const float *x)
{
    if (cuda_enter(q) != 0)
        return -1;
    avgpool_kernel<<<grid_for(q, p->N * p->C, threads), threads, 0,
                     q->stream>>>(out, x, p->N, p->rows, p->C);
    return cuda_leave(q, "avgpool_forward");
}

static __global__ void avgpool_gradient_kernel(float *dx, const float *dout,
                                               size_t N, size_t rows, size_t C)
{
    GRID_LOOP(i, N * rows * C)
    dx[i] = dout[i / (rows * C) * C + i % C] / (float)rows;
}

static int avgpool_backward(struct plait_queue *q,
                            const struct plait_avgpool *p, float *dx,
                            const float *dout)
{
    if (cuda_enter(q) != 0)
        return -1;
    avgpool_gradient_kernel<<<grid_for(q, p->N * p->rows * p->C, threads),
                              threads, 0, q->stream>>>(dx, dout, p->N, p->rows,
                                                       p->C);
    return cuda_leave(q, "avgpool_backward");
}

static __global__ void relu_kernel(float *x, const float *out, size_t n)
{
    GRID_LOOP(i, n)
    if (out[i] <= 0)
        x[i] = 0;
}

static int relu_backward(struct plait_queue *q, float *dx, const float *out,
                         size_t n)
{
    if (cuda_enter(q) != 0)
        return -1;
    relu_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(dx, out, n);
    return cuda_leave(q, "relu_backward");
}

static int relu(struct plait_queue *q, float *x, size_t n)
{
    return relu_backward(q, x, x, n);
}

/* -- loss --------------------------------------------------------------------
 */

static __device__ double squared_row(const struct plait_class_loss &l, float *x,
                                     int32_t label)
{
    size_t classes = l.classes;
    double loss = 0;

    for (size_t c = 0; c < classes; c++) {
        float want = classes == 1 ? (float)label : (float)((size_t)label == c);
        float d = x[c] - want;

        loss += (double)d * d / 2;
        x[c] = d * l.scale;
    }
    return loss;
}

static __device__ double softmax_row(const struct plait_class_loss &l, float *x,
                                     int32_t label)
{
    size_t classes = l.classes;
    float all = l.smoothing / (float)classes, max = -CUDART_INF_F;
    double sum = 0, loss = 0, log_sum;

    for (size_t c = 0; c < classes; c++)
        max = fmaxf(max, x[c]);
    for (size_t c = 0; c < classes; c++)
        sum += expf(x[c] - max);
    log_sum = log(sum);
    for (size_t c = 0; c < classes; c++) {
        float want = all + ((size_t)label == c ? 1 - l.smoothing : 0);
        double p = x[c] - max - log_sum;

        loss -= want * p;
        x[c] = (expf((float)p) - want) * l.scale;
    }
    return loss;
}

/* part [2, N] */
static __global__ void class_loss_kernel(struct plait_class_loss l,
                                         double *part)
{
    GRID_LOOP(i, l.N)
    {
        float *x = l.logits + i * l.classes;
        int32_t label = l.labels[i];
        size_t best = 0;

        for (size_t c = 1; c < l.classes; c++)
            if (x[c] > x[best])
                best = c;
        part[l.N + i] = best == (size_t)label;
        part[i] =
            l.squared ? squared_row(l, x, label) : softmax_row(l, x, label);
    }
}

static int class_loss(struct plait_queue *q, const struct plait_class_loss *l)
{
    size_t N = l->N;
    double *part;

    if (cuda_enter(q) != 0)
        return -1;
    part = (double *)cuda_scratch(q, 2 * N * sizeof(*part));
    if (part == NULL)
        return -1;
    class_loss_kernel<<<grid_for(q, N, 32), 32, 0, q->stream>>>(*l, part);
    cuda_sum_doubles(q, l->sums, part, N);
    cuda_sum_doubles(q, l->sums + 1, part + N, N);
    return cuda_leave(q, "class_loss");
}

void cuda_pool_ops(struct plait_image_ops *ops)
{
    ops->maxpool_forward = maxpool_forward;
    ops->maxpool_backward = maxpool_backward;
    ops->avgpool_forward = avgpool_forward;
    ops->avgpool_backward = avgpool_backward;
    ops->relu = relu;
    ops->relu_backward = relu_backward;
    ops->class_loss = class_loss;
}
