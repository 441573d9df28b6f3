/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/dropout.h"
#include "kernels/dtype.h"
#include "ops_cases.h"

/* -- moving and arithmetic: shape {n} or {rows, cols} ------------------ */

static void setup_cast(struct trial *t, const int *s)
{
    trial_real(t, KIND_T, product(s, 1), -4, 4);
    trial_real(t, KIND_F32, product(s, 1), -4, 4);
    real32(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_cast(struct trial_side *d, const int *s)
{
    size_t n = product(s, 1);

    return d->ops->cast(d->q, &(struct plait_cast){.to = PLAIT_F32,
                                                   .from = d->type,
                                                   .dst = d->p[2],
                                                   .src = d->p[0],
                                                   .n = n}) |
           d->ops->cast(d->q, &(struct plait_cast){.to = d->type,
                                                   .from = PLAIT_F32,
                                                   .dst = d->p[3],
                                                   .src = d->p[1],
                                                   .n = n});
}

/* Some are too large for a code, some are subnormal or too small. */
static void setup_e5m2(struct trial *t, const int *s)
{
    float *x = trial_real(t, KIND_F32, product(s, 1), -20, 20);

    for (size_t i = 0; i < product(s, 1); i++)
        x[i] *= i % 3 == 0 ? 1 : i % 3 == 1 ? 1e-3f : 1e-9f;
    trial_int(t, product(s, 1) / 4 + 1, 0, 1);
    real32(t, product(s, 1));
    real32(t, product(s, 1));
}

static int call_e5m2(struct trial_side *d, const int *s)
{
    struct plait_e5m2 to = {
        .codes = d->p[1], .x = d->p[0], .s = 0x1p12f, .n = product(s, 1)};
    struct plait_e5m2 back = to, more;

    back.x = d->p[2];
    more = back;
    more.x = d->p[3];
    more.accumulate = 1;
    return d->ops->e5m2_encode(d->q, &to) | d->ops->e5m2_decode(d->q, &back) |
           d->ops->e5m2_decode(d->q, &more);
}

static void setup_elementwise(struct trial *t, const int *s)
{
    real(t, product(s, 1));
    real(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_add(struct trial_side *d, const int *s)
{
    struct plait_add sum = {.type = d->type,
                            .out = d->p[2],
                            .a = d->p[0],
                            .b = d->p[1],
                            .s = 1.7f,
                            .n = product(s, 1)};
    struct plait_add in_place = sum;
    struct plait_scale scaled = {
        .type = d->type, .x = d->p[1], .s = 0.37f, .n = product(s, 1)};

    in_place.out = d->p[0];
    in_place.s = -0.3f;
    return d->ops->add(d->q, &sum) | d->ops->add(d->q, &in_place) |
           d->ops->add_scaled(d->q, &in_place) |
           d->ops->add_scaled(d->q, &sum) | d->ops->scale(d->q, &scaled);
}

static void setup_softcap(struct trial *t, const int *s)
{
    trial_real(t, KIND_T, product(s, 1), -9, 9);
    trial_real(t, KIND_T, product(s, 1), -0.1, 0.1);
}

static int call_softcap(struct trial_side *d, const int *s)
{
    struct plait_scale large = {
        .type = d->type, .x = d->p[0], .s = 3, .n = product(s, 1)};
    struct plait_scale small = large;

    small.x = d->p[1];
    return d->ops->softcap(d->q, &large) | d->ops->softcap(d->q, &small);
}

/* {N, C, T, first}; out of place and in place */
static void setup_dropout(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real(t, product(s, 2));
    trial_int(t, 2 * (size_t)((s[0] + s[3]) / s[2] + 1), INT32_MIN, INT32_MAX);
}

static int call_dropout(struct trial_side *d, const int *s)
{
    struct plait_dropout out = {.type = d->type,
                                .drops = {.keys = d->p[2],
                                          .place = (uint64_t)5 << 32 | 7,
                                          .rate = 0.3f},
                                .out = d->p[1],
                                .inp = d->p[0],
                                .N = (size_t)s[0],
                                .C = (size_t)s[1],
                                .first = (size_t)s[3],
                                .T = (size_t)s[2],
                                .pos0 = 40};
    struct plait_dropout in_place = out;

    in_place.out = d->p[0];
    in_place.drops.rate = 0.9f;
    return d->ops->dropout(d->q, &out) | d->ops->dropout(d->q, &in_place);
}

static void setup_bias_backward(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real32(t, (size_t)s[1]);
}

static int call_bias_backward(struct trial_side *d, const int *s)
{
    return d->ops->bias_backward(
        d->q, &(struct plait_bias_backward){.type = d->type,
                                            .dbias = d->p[1],
                                            .dout = d->p[0],
                                            .N = (size_t)s[0],
                                            .O = (size_t)s[1]});
}

static void setup_copy_2d(struct trial *t, const int *s)
{
    real(t, (size_t)s[0] * (size_t)(s[1] + 5));
    real(t, (size_t)s[0] * (size_t)(s[1] + 2));
    real(t, (size_t)s[0]);
    real(t, (size_t)s[0]);
}

static int call_copy_2d(struct trial_side *d, const int *s)
{
    size_t rows = (size_t)s[0], cols = (size_t)s[1];
    size_t bytes = rows * plait_dtype_size(d->type);

    return d->ops->copy_2d(d->q, &(struct plait_copy_2d){.type = d->type,
                                                         .dst = d->p[1],
                                                         .dst_stride = cols + 2,
                                                         .src = d->p[0],
                                                         .src_stride = cols + 5,
                                                         .rows = rows,
                                                         .cols = cols}) |
           d->ops->copy(d->q, d->p[2], d->p[0], bytes) |
           d->ops->fill_zero(d->q, d->p[3], bytes);
}

/* [rows, heads, columns]: columns of heads to wider heads, zeros behind them,
 * the same columns to all heads, and the sum of them. */
static void setup_heads(struct trial *t, const int *s)
{
    size_t rows = (size_t)s[0], heads = (size_t)s[1], cols = (size_t)s[2];

    real(t, rows * (heads * cols + 3));
    real(t, rows * (heads * (cols + 5) + 2));
    real(t, rows * (heads * (cols + 5) + 2));
    real(t, rows * cols);
}

static int call_heads(struct trial_side *d, const int *s)
{
    size_t heads = (size_t)s[1], cols = (size_t)s[2], head = cols + 5;
    struct plait_copy_heads copy = {.type = d->type,
                                    .dst = d->p[1],
                                    .dst_stride = heads * head + 2,
                                    .dst_head = head,
                                    .src = d->p[0],
                                    .src_stride = heads * cols + 3,
                                    .src_head = cols,
                                    .rows = (size_t)s[0],
                                    .heads = heads,
                                    .cols = cols};
    struct plait_copy_heads zeros = copy, same = copy;

    zeros.dst = (char *)d->p[1] + cols * plait_dtype_size(d->type);
    zeros.src = NULL;
    zeros.cols = 5;
    same.dst = d->p[2];
    same.src_head = 0;
    return d->ops->copy_heads(d->q, &copy) | d->ops->copy_heads(d->q, &zeros) |
           d->ops->copy_heads(d->q, &same) |
           d->ops->sum_heads(
               d->q, &(struct plait_sum_heads){.type = d->type,
                                               .dst = d->p[3],
                                               .src = d->p[1],
                                               .src_stride = copy.dst_stride,
                                               .src_head = head,
                                               .rows = copy.rows,
                                               .heads = heads,
                                               .cols = cols});
}

/* Rows of each type to fp32, more of them added, and the sums back, all with
 * strides of their own. */
static void setup_cast_2d(struct trial *t, const int *s)
{
    real(t, (size_t)s[0] * (size_t)(s[1] + 5));
    real32(t, (size_t)s[0] * (size_t)s[1]);
    real(t, (size_t)s[0] * (size_t)(s[1] + 2));
}

static int call_cast_2d(struct trial_side *d, const int *s)
{
    size_t rows = (size_t)s[0], cols = (size_t)s[1];
    struct plait_cast_2d first = {.to = PLAIT_F32,
                                  .from = d->type,
                                  .dst = d->p[1],
                                  .dst_stride = cols,
                                  .src = d->p[0],
                                  .src_stride = cols + 5,
                                  .rows = rows,
                                  .cols = cols};
    struct plait_cast_2d more = first;
    struct plait_cast_2d back = {.to = d->type,
                                 .from = PLAIT_F32,
                                 .dst = d->p[2],
                                 .dst_stride = cols + 2,
                                 .src = d->p[1],
                                 .src_stride = cols,
                                 .rows = rows,
                                 .cols = cols};

    first.rows = rows / 2;
    more.accumulate = 1;
    return d->ops->cast_2d(d->q, &first) | d->ops->cast_2d(d->q, &more) |
           d->ops->cast_2d(d->q, &back);
}

/* Copies array 0 to pinned memory and back to array 1, on a queue beside that
 * of the other ops. */
static void setup_pinned(struct trial *t, const int *s)
{
    real(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_pinned(struct trial_side *d, const int *s)
{
    size_t bytes = product(s, 1) * plait_dtype_size(d->type), now = 0;
    void *pinned = d->ops->pinned_alloc(d->dev, bytes);
    struct plait_queue *q = d->ops->queue_create(d->dev, 0);
    struct plait_event *ev = d->ops->event_create(d->dev, 0);
    int rc = -1;

    d->ops->pinned_memory(d->dev, &now, NULL);
    if (pinned != NULL && q != NULL && ev != NULL && now == bytes)
        rc = d->ops->scale(d->q, &(struct plait_scale){.type = d->type,
                                                       .x = d->p[0],
                                                       .s = 3,
                                                       .n = product(s, 1)}) |
             d->ops->event_record(ev, d->q) | d->ops->event_wait(ev, q) |
             d->ops->copy_out(q, pinned, d->p[0], bytes) |
             d->ops->copy_in(q, d->p[1], pinned, bytes) | d->ops->queue_sync(q);
    d->ops->event_destroy(ev);
    d->ops->queue_destroy(q);
    d->ops->pinned_free(d->dev, pinned);
    d->ops->pinned_memory(d->dev, &now, NULL);
    return now == 0 ? rc : -1;
}

const struct trial_case trial_moving[] = {
    {"cast", setup_cast, call_cast, {{1}, {1000}, {70001}}},
    {"e5m2_encode, e5m2_decode", setup_e5m2, call_e5m2, {{1}, {1003}, {70001}}},
    {"add, scale", setup_elementwise, call_add, {{1}, {1003}, {66000}}},
    {"softcap", setup_softcap, call_softcap, {{1}, {1003}, {66000}}},
    {"dropout",
     setup_dropout,
     call_dropout,
     {{1, 1, 1, 0}, {7, 21, 3, 2}, {64, 64, 16, 24}, {90, 736, 45, 0}}},
    {"bias_backward",
     setup_bias_backward,
     call_bias_backward,
     {{7, 5}, {130, 257}}},
    {"copy_2d, copy, fill_zero", setup_copy_2d, call_copy_2d, {{33, 17}}},
    {"copy_heads, sum_heads",
     setup_heads,
     call_heads,
     {{1, 1, 1}, {7, 3, 17}, {40, 16, 64}}},
    {"cast_2d", setup_cast_2d, call_cast_2d, {{1, 1}, {33, 17}, {70, 300}}},
    {"copy_out, copy_in", setup_pinned, call_pinned, {{1}, {70001}}},
    {NULL, NULL, NULL, {{0}}},
};

int trial_waits(const struct trial_case *c)
{
    return c->call == call_pinned;
}
