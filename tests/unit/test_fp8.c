/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/linear.h"
#include "tap.h"

/* The formats against their definition, then products of every bf16 number. */

struct format {
    const char *name;
    enum plait_fp8 format;
    int bits, bias; /* of mantissa and exponent */
    double most;
    int infinity; /* its code, 0: none */
};

static const struct format formats[] = {
    {"e4m3", PLAIT_E4M3, 3, 7, 448, 0},
    {"e5m2", PLAIT_E5M2, 2, 15, 57344, 0x7c},
};

/* The value of code 0 .. 0x7f by the format's definition. */
static double value(const struct format *f, int code)
{
    int exponent = code >> f->bits, mantissa = code & ((1 << f->bits) - 1);
    double one = 1 << f->bits;

    if (code == f->infinity && code > 0)
        return INFINITY;
    if (f->infinity ? code > f->infinity : code == 0x7f)
        return NAN;
    if (exponent == 0)
        return ldexp(mantissa / one, 1 - f->bias);
    return ldexp(1 + mantissa / one, exponent - f->bias);
}

static int top(const struct format *f)
{
    return f->infinity ? f->infinity - 1 : 0x7e;
}

static void check_codes(const struct format *f)
{
    int wrong = 0, back = 0, nans = 0;

    for (int code = 0; code < 256; code++) {
        float x = plait_f32_of_fp8((uint8_t)code, f->format);
        double want = value(f, code & 0x7f);

        if (code & 0x80)
            want = -want;
        if (isnan(want)) {
            uint8_t again = plait_fp8_of_f32(x, f->format);

            nans += !isnan(x) || !isnan(plait_f32_of_fp8(again, f->format));
            continue;
        }
        wrong += !(x == want) || !signbit(x) != !(code & 0x80);
        if (isfinite(want))
            back += plait_fp8_of_f32(x, f->format) != code;
    }
    ok(value(f, top(f)) == f->most, "%s: the largest number is %g", f->name,
       f->most);
    ok(wrong == 0, "%s: all 256 codes mean what they should", f->name);
    ok(back == 0, "%s: every number comes back as its code", f->name);
    ok(nans == 0, "%s: a NaN stays one", f->name);
}

/* Halfway between two neighbours, a number is rounded to the even one. */
static void check_ties(const struct format *f)
{
    int wrong = 0;

    for (int code = 0; code < top(f); code++) {
        float low = (float)value(f, code), high = (float)value(f, code + 1);
        float half = (low + high) / 2;
        int even = code & 1 ? code + 1 : code;

        wrong += plait_fp8_of_f32(half, f->format) != even;
        wrong += plait_fp8_of_f32(-half, f->format) != (even | 0x80);
        wrong += plait_fp8_of_f32(nextafterf(half, 0), f->format) != code;
        wrong +=
            plait_fp8_of_f32(nextafterf(half, high), f->format) != code + 1;
    }
    ok(wrong == 0, "%s: to the nearest, ties to even", f->name);
}

static void check_saturation(const struct format *f)
{
    const float large[] = {(float)f->most * 1.0625f, (float)f->most * 2, 1e38f,
                           INFINITY};
    int wrong = 0;

    for (int i = 0; i < 4; i++)
        wrong += plait_fp8_of_f32(large[i], f->format) != top(f) ||
                 plait_fp8_of_f32(-large[i], f->format) != (top(f) | 0x80);
    ok(wrong == 0, "%s: what is too large becomes the largest", f->name);
}

/* For every bf16 number as amax, the scale is the largest power of two that
 * keeps amax within the format (at most 2^126). */
static void check_scale(const struct format *f)
{
    int wrong = 0;

    for (uint32_t h = 1; h < 0x7f80; h++) {
        double amax = plait_f32_of_bits(h << 16);
        double s = plait_fp8_scale(h << 16, f->format);
        int exponent;

        wrong += frexp(s, &exponent) != 0.5;
        wrong += !(amax * s <= f->most);
        wrong += !(2 * amax * s > f->most) && s != 0x1p126;
    }
    ok(wrong == 0, "%s: the scale fits every magnitude", f->name);
    ok(plait_fp8_scale(0, f->format) == 1 &&
           isnan(plait_fp8_scale(0x7f800000, f->format)) &&
           isnan(plait_fp8_scale(0x7fc00000, f->format)),
       "%s: 0 is scaled by 1, an infinity or NaN by NaN", f->name);
}

/* -- the products ---------------------------------------------------------- */

#define SIDE 16
#define ROWS (0x10000 / SIDE)

/* All bf16 numbers up to `most`, with which the scale is 1, times the
 * identity. */
static void check_product(const struct plait_ops *ops, const struct format *f)
{
    static uint16_t x[ROWS * SIDE], y[ROWS * SIDE], w[SIDE * SIDE];
    struct plait_device *dev = ops->device_create(0, 0);
    struct plait_queue *q = ops->queue_create(dev, 0);
    struct plait_linear e4m3 = {.N = ROWS, .inp.x = x, .out = y};
    struct plait_linear_dinp e5m2 = {.N = ROWS, .dout.x = x, .dinp = y};
    struct plait_weight *one;
    int rc, wrong = 0;

    for (int i = 0; i < SIDE; i++)
        w[i * SIDE + i] = plait_bf16_of_f32(1);
    for (int i = 0; i < ROWS * SIDE; i++)
        if (fabsf(plait_f32_of_bf16((uint16_t)i)) <= (float)f->most)
            x[i] = (uint16_t)i;
    one = ops->weight_create(
        dev, &(struct plait_weight_data){PLAIT_BF16_T, SIDE, SIDE, w});
    e4m3.w = e5m2.w = one;
    if (f->format == PLAIT_E4M3)
        rc = ops->fp8_forward(q, &e4m3);
    else
        rc = ops->fp8_backward_input(q, &e5m2);
    for (int i = 0; i < ROWS * SIDE; i++) {
        float number = plait_f32_of_bf16(x[i]);
        float want =
            plait_f32_of_fp8(plait_fp8_of_f32(number, f->format), f->format);

        if (!(plait_f32_of_bf16(y[i]) == want) && wrong++ < 3)
            diag("%g became %g, not %g", number, plait_f32_of_bf16(y[i]), want);
    }
    ok(rc == 0 && wrong == 0, "%s: %s: every number of bf16 is rounded so",
       ops->name, f->name);
    ops->weight_destroy(one);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

int main(void)
{
    for (int i = 0; i < 2; i++) {
        check_codes(&formats[i]);
        check_ties(&formats[i]);
        check_saturation(&formats[i]);
        check_scale(&formats[i]);
        check_product(plait_ops_ref(), &formats[i]);
        check_product(plait_ops_cpu(), &formats[i]);
    }
    return done_testing();
}
