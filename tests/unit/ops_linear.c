/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/dtype.h"
#include "kernels/linear.h"
#include "ops_cases.h"

/* -- matrix products: {N, O, C, act, bias, pre or accumulate} ---------- */

/* A GPU rounds the product p to T and, where cuBLASLt does not fuse them into
 * it, once more each the sum with the bias b and what GELU makes of it: each
 * of these roundings counts, and ref's own one (see tolerance()).
 *
 * That n + 1 units are enough, with u the relative error of a rounding and
 * y = p + b, |b| <= 1, so that |p| <= |y| + 1:
 *   b alone      u |p| + 2u |y| <= 3u |y| + u
 *   GELU alone   slope(y) u |y| + 2u |g| <= 3u |g| + 0.30u
 *   both         slope(y) (u |p| + u |y|) + 2u |g| <= 4u |g| + 1.72u
 * (the largest excess over |g| = |gelu(y)| is at y = 1.4), which is less than
 * (n + 1) u (rms + |g|) where rms is at least 1/3, 0.10 and 0.43. In a case of
 * smaller rms hardly a |y| is as large as 1.4. */
static void count_roundings(struct trial *t, int bias_apart, int gelu_apart)
{
    if (t->gpu)
        t->roundings = 1 + bias_apart + gelu_apart;
}

static void setup_linear_forward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    if (s[3] && O % 8 != 0) /* GELU is fused into rows of whole 16 bytes */
        count_roundings(t, s[4], 1);
    real(t, N * O);
    real(t, N * O);
    real(t, N * C);
    real(t, O * C);
    real(t, O * C);
    real(t, O);
}

static struct plait_weight *weight_at(struct trial_side *d, const int *s,
                                      int array)
{
    return d->ops->weight_create(
        d->dev, &(struct plait_weight_data){d->type, (size_t)s[1], (size_t)s[2],
                                            d->p[array]});
}

static int end_linear(struct trial_side *d, struct plait_weight *w, int rc)
{
    if (!d->recording)
        rc |= d->ops->queue_sync(d->q);
    d->ops->weight_destroy(w);
    return rc;
}

/* Runs it twice, with the weight changed between, so that a packed copy of the
 * weight must be renewed. */
static int call_linear_forward(struct trial_side *d, const int *s)
{
    struct plait_linear l = {.N = (size_t)s[0],
                             .inp.x = d->p[2],
                             .w = weight_at(d, s, 3),
                             .bias = s[4] ? d->p[5] : NULL,
                             .act = s[3] ? PLAIT_ACT_GELU : PLAIT_ACT_NONE,
                             .pre = s[5] ? d->p[1] : NULL,
                             .out = d->p[0]};
    int rc;

    if (l.w == NULL)
        return -1;
    rc = d->ops->linear_forward(d->q, &l);
    d->ops->weight_changed(l.w, d->p[4]);
    rc |= d->ops->linear_forward(d->q, &l);
    return end_linear(d, l.w, rc);
}

static void setup_linear_input(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    real(t, N * C);
    real(t, N * O);
    real(t, O * C);
    trial_real(t, KIND_T, N * C, -3, 3);
}

static int call_linear_input(struct trial_side *d, const int *s)
{
    struct plait_linear_dinp l = {.N = (size_t)s[0],
                                  .dout.x = d->p[1],
                                  .w = weight_at(d, s, 2),
                                  .act = s[3] ? PLAIT_ACT_GELU : PLAIT_ACT_NONE,
                                  .pre = s[3] ? d->p[3] : NULL,
                                  .dinp = d->p[0],
                                  .accumulate = s[5]};

    if (l.w == NULL)
        return -1;
    return end_linear(d, l.w, d->ops->linear_backward_input(d->q, &l));
}

static void setup_linear_weight(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    real32(t, O * C);
    real32(t, O);
    real(t, N * O);
    real(t, N * C);
}

/* The last s[3] rows are left out; s[5]: adds to the gradient. */
static int call_linear_weight(struct trial_side *d, const int *s)
{
    struct plait_linear_dw l = {.type = d->type,
                                .N = (size_t)(s[0] - s[3]),
                                .O = (size_t)s[1],
                                .C = (size_t)s[2],
                                .dout.x = d->p[2],
                                .inp.x = d->p[3],
                                .dw = d->p[0],
                                .dbias = s[4] ? d->p[1] : NULL,
                                .accumulate = s[5]};

    return d->ops->linear_backward_weight(d->q, &l);
}

/* -- the same in fp8: {..., what is known of the operands} ---------------- */

/* AMAX: a given amax, much larger than the operand's own, as if that were some
 * rows of a larger operand, so that few codes occur. CODES: with dout's codes
 * made beforehand, if the device can. */
enum { AMAX = 1, CODES = 2 };

static void setup_amax_e4m3(struct trial *t)
{
    trial_real(t, KIND_F32, 1, 0x1p14, 0x1p14);
}

static void setup_amax_e5m2(struct trial *t)
{
    trial_real(t, KIND_F32, 1, 0x1p30, 0x1p30);
}

/* Magnitudes from 1 down to 2^-24: into the subnormals of both formats. */
static void spread(struct trial *t, uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = plait_bf16_of_f32(plait_f32_of_bf16(x[i]) *
                                 (float)exp2(floor(trial_uniform(t, -23, 1))));
}

static void setup_fp8_forward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    setup_linear_forward(t, s);
    /* the bias of a padded product is added separately; GELU always is */
    count_roundings(t, s[4] && (N % 16 != 0 || O % 16 != 0), s[3]);
    spread(t, t->array[2].host, N * C / 2);
    spread(t, t->array[4].host, O * C / 2);
    setup_amax_e4m3(t);
}

static void setup_fp8_input(struct trial *t, const int *s)
{
    setup_linear_input(t, s);
    spread(t, t->array[1].host, (size_t)s[0] * (size_t)s[1] / 2);
    setup_amax_e5m2(t);
}

static void setup_fp8_weight(struct trial *t, const int *s)
{
    /* Hopper sums products of fp8 in some 14 bits before it adds the sums in
     * fp32 (DeepSeek-V3, arXiv:2412.19437, 3.3.2). */
    t->tolerance = 0x1p-10;
    setup_linear_weight(t, s);
    spread(t, t->array[2].host, (size_t)s[0] * (size_t)s[1] / 2);
    setup_amax_e5m2(t);
    setup_amax_e4m3(t);
}

/* If the device can, the first product of a case uses a weight that was rounded
 * to fp8 beforehand. NULL once that is done: later products have the same
 * weight. */
static const struct plait_ops *rounding;

static int round_once(struct plait_queue *q, struct plait_weight *w)
{
    const struct plait_ops *ops = rounding;

    rounding = NULL;
    return ops != NULL && ops->fp8_weight != NULL ? ops->fp8_weight(q, w) : 0;
}

/* The side and the case under test. */
static struct trial_side *side;
static const int *shape;

/* x, with array `amax` as its amax if the case gives one. */
static struct plait_operand operand(const void *x, int amax)
{
    return (struct plait_operand){
        .x = x, .amax = shape[6] & AMAX ? side->p[amax] : NULL};
}

/* Makes the codes of dout [N, shape[1]] if the case wants them; free them with
 * drop_codes(). */
static int make_codes(struct plait_operand *dout, size_t N, void **codes)
{
    size_t O = (size_t)shape[1];
    struct plait_fp8_gradient g = {.N = N, .O = O, .dout = *dout};

    *codes = NULL;
    if (!(shape[6] & CODES) || side->recording ||
        side->ops->fp8_gradient == NULL)
        return 0;
    dout->codes = *codes = side->ops->alloc(side->dev, plait_fp8_bytes(N, O));
    g.codes = *codes;
    return *codes == NULL ? -1 : side->ops->fp8_gradient(side->q, &g);
}

static int drop_codes(void *codes)
{
    int rc = codes != NULL ? side->ops->queue_sync(side->q) : 0;

    if (codes != NULL)
        side->ops->free(side->dev, codes);
    return rc;
}

static int rounded_forward(struct plait_queue *q, const struct plait_linear *l)
{
    struct plait_linear r = *l;

    r.inp = operand(l->inp.x, 6);
    return round_once(q, l->w) | side->ops->fp8_forward(q, &r);
}

static int rounded_input(struct plait_queue *q,
                         const struct plait_linear_dinp *l)
{
    struct plait_linear_dinp r = *l;
    void *codes;

    r.dout = operand(l->dout.x, 4);
    return make_codes(&r.dout, l->N, &codes) | round_once(q, l->w) |
           side->ops->fp8_backward_input(q, &r) | drop_codes(codes);
}

static int rounded_weight(struct plait_queue *q,
                          const struct plait_linear_dw *l)
{
    struct plait_linear_dw r = *l;
    void *codes;

    r.dout = operand(l->dout.x, 4);
    r.inp = operand(l->inp.x, 5);
    return make_codes(&r.dout, l->N, &codes) |
           side->ops->fp8_backward_weight(q, &r) | drop_codes(codes);
}

/* Calls the case with the side's linear ops replaced by those in fp8. */
static int in_fp8(int (*call)(struct trial_side *d, const int *s),
                  struct trial_side *d, const int *s)
{
    struct plait_ops ops = *d->ops;
    struct trial_side as_fp8 = *d;

    side = d;
    shape = s;
    rounding = d->recording ? NULL : d->ops;
    ops.linear_forward = rounded_forward;
    ops.linear_backward_input = rounded_input;
    ops.linear_backward_weight = rounded_weight;
    as_fp8.ops = &ops;
    return call(&as_fp8, s);
}

static int call_fp8_forward(struct trial_side *d, const int *s)
{
    return in_fp8(call_linear_forward, d, s);
}

static int call_fp8_input(struct trial_side *d, const int *s)
{
    return in_fp8(call_linear_input, d, s);
}

static int call_fp8_weight(struct trial_side *d, const int *s)
{
    return in_fp8(call_linear_weight, d, s);
}

const struct trial_case trial_linear[] = {
    {"linear_forward",
     setup_linear_forward,
     call_linear_forward,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 1, 1},
      {33, 70, 45, 1, 1, 0},
      {67, 129, 96, 1, 0, 1},
      {130, 64, 257, 0, 1, 0},
      {133, 230, 402, 1, 1, 1},
      {67, 50, 1602, 1, 1, 1},
      {1030, 30, 40, 0, 1, 0},
      {32, 16, 2048, 0, 1, 0},
      {64, 50, 96, 1, 1, 1}}},
    {"linear_backward_input",
     setup_linear_input,
     call_linear_input,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 0, 1},
      {33, 70, 45, 1, 0, 0},
      {67, 129, 96, 0, 0, 1},
      {130, 64, 257, 0, 0, 0},
      {133, 402, 230, 1, 0, 0},
      {67, 1602, 50, 1, 0, 1},
      {96, 64, 50, 1, 0, 1}}},
    {"linear_backward_weight",
     setup_linear_weight,
     call_linear_weight,
     {{1, 1, 1, 0, 1, 1},
      {5, 7, 3, 0, 0, 1},
      {67, 129, 96, 0, 1, 0},
      {4, 70, 96, 4, 1, 0},
      {1030, 64, 257, 0, 1, 1},
      {2101, 130, 100, 0, 1, 0},
      {520, 32, 40, 0, 1, 1},
      {40, 40, 70, 0, 0, 1}}},
    {NULL, NULL, NULL, {{0}}},
};

const struct trial_case trial_fp8[] = {
    {"fp8_forward",
     setup_fp8_forward,
     call_fp8_forward,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 1, 1},
      {33, 70, 45, 1, 1, 0, AMAX},
      {64, 128, 96, 1, 0, 1},
      {130, 64, 257, 0, 1, 0, AMAX},
      {133, 230, 402, 1, 1, 1}}},
    {"fp8_backward_input",
     setup_fp8_input,
     call_fp8_input,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 0, 1, CODES},
      {33, 70, 45, 1, 0, 0},
      {64, 128, 96, 0, 0, 1, AMAX},
      {64, 96, 128, 1, 0, 0, CODES},
      {133, 402, 230, 1, 0, 1, AMAX | CODES}}},
    {"fp8_backward_weight",
     setup_fp8_weight,
     call_fp8_weight,
     {{1, 1, 1, 0, 1, 1},
      {5, 7, 3, 0, 0, 0},
      {64, 128, 96, 0, 1, 0, AMAX | CODES},
      {130, 64, 257, 0, 1, 1, AMAX},
      {4, 70, 96, 4, 1, 0, CODES},
      {2101, 70, 100, 0, 1, 0, CODES}}},
    {NULL, NULL, NULL, {{0}}},
};
