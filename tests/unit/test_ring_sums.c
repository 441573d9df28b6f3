/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu_tables.h"
#include "kernels/attention.h"
#include "kernels/dtype.h"
#include "tap.h"

/* Ring attention in bf16 over 8 ranks, as runtime/model/attention.c adds it up:
 * the error does not grow with the ranks. */

enum {
    RANKS = 8,
    CHUNK = 32,
    T = RANKS * CHUNK,
    HEADS = 4,
    D = 32,
    WIDTH = HEADS * D, /* of q, k and v, each by itself */
};

static const struct plait_ops *ops;
static struct plait_queue *q;

/* Attention of the last chunk's queries; in fp32, and its inputs in bf16. */
static float in32[4][T * WIDTH]; /* Q, K, V, dout */
static uint16_t in16[4][T * WIDTH];
static float lse[HEADS * CHUNK], lse2[HEADS * CHUNK];

static void cast(enum plait_dtype to, void *dst, enum plait_dtype from,
                 const void *src, size_t n)
{
    struct plait_cast c = {
        .to = to, .from = from, .dst = dst, .src = src, .n = n};

    ops->cast(q, &c);
}

static void set_inputs(void)
{
    unsigned seed = 1;

    for (size_t i = 0; i < 4 * T * WIDTH; i++) {
        seed = seed * 1664525u + 1013904223u;
        in32[i / (T * WIDTH)][i % (T * WIDTH)] =
            (float)((seed >> 8) * 0x1p-23 - 1);
    }
    for (int i = 0; i < 4; i++) {
        cast(PLAIT_BF16_T, in16[i], PLAIT_F32, in32[i], T * WIDTH);
        cast(PLAIT_F32, in32[i], PLAIT_BF16_T, in16[i], T * WIDTH);
    }
}

static struct plait_attention describe(int k_len, int k_pos)
{
    struct plait_attention a = {
        .batch = 1,
        .q_len = CHUNK,
        .k_len = k_len,
        .q_pos = T - CHUNK,
        .k_pos = k_pos,
        .q_heads = HEADS,
        .kv_heads = HEADS,
        .head_dim = D,
        .q_stride = WIDTH,
        .kv_stride = WIDTH,
        .scale = 1 / sqrtf(D),
    };

    return a;
}

/* The inputs of a type; queries are the first rows of Q and dout. */
static const void *input(enum plait_dtype type, int which, int row)
{
    return type == PLAIT_F32 ? (const void *)(in32[which] + row * WIDTH)
                             : (const void *)(in16[which] + row * WIDTH);
}

static void forward(enum plait_dtype type, void *out, float *stat, int k_len,
                    int k_pos)
{
    struct plait_attention_forward f = {.type = type,
                                        .a = describe(k_len, k_pos),
                                        .out = out,
                                        .lse = stat,
                                        .Q = input(type, 0, 0),
                                        .K = input(type, 1, k_pos),
                                        .V = input(type, 2, k_pos)};

    ops->attention_forward(q, &f);
}

/* dq of the keys from k_pos on; dk and dv are not looked at. */
static void backward(enum plait_dtype type, void *dq, const void *out,
                     int k_len, int k_pos)
{
    static float dk[T * WIDTH], dv[T * WIDTH];
    struct plait_attention_backward g = {.type = type,
                                         .a = describe(k_len, k_pos),
                                         .dQ = dq,
                                         .dK = dk,
                                         .dV = dv,
                                         .dout = input(type, 3, 0),
                                         .out = out,
                                         .lse = lse,
                                         .Q = input(type, 0, 0),
                                         .K = input(type, 1, k_pos),
                                         .V = input(type, 2, k_pos)};

    g.a.overwrite = 1;
    ops->attention_backward(q, &g);
}

/* |x - y| over |y|, x of bf16 */
static double off(const uint16_t *x16, const float *y)
{
    static float x[CHUNK * WIDTH];
    double sum = 0, all = 0;

    cast(PLAIT_F32, x, PLAIT_BF16_T, x16, CHUNK * WIDTH);
    ops->queue_sync(q);
    for (size_t i = 0; i < CHUNK * WIDTH; i++) {
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)y[i] * y[i];
    }
    return sqrt(sum / all);
}

/* sum = a step's part, or += it. */
static void widen(float *sum, const uint16_t *part, int accumulate)
{
    struct plait_cast_2d c = {.to = PLAIT_F32,
                              .from = PLAIT_BF16_T,
                              .dst = sum,
                              .dst_stride = WIDTH,
                              .src = part,
                              .src_stride = WIDTH,
                              .rows = CHUNK,
                              .cols = WIDTH,
                              .accumulate = accumulate};

    ops->cast_2d(q, &c);
}

/* Outputs over all steps; rounded: after each of them, too. */
static void ring_forward(uint16_t *out, int rounded)
{
    static float sum[CHUNK * WIDTH];
    static uint16_t part[CHUNK * WIDTH];
    struct plait_attention_merge m = {.type = PLAIT_BF16_T,
                                      .a = describe(CHUNK, 0),
                                      .out = sum,
                                      .lse = lse,
                                      .out2 = part,
                                      .lse2 = lse2};

    for (int i = RANKS - 1; i >= 0; i--) {
        int first = i == RANKS - 1;

        forward(PLAIT_BF16_T, part, first ? lse : lse2, CHUNK, i * CHUNK);
        if (first)
            widen(sum, part, 0);
        else
            ops->attention_merge(q, &m);
        cast(PLAIT_BF16_T, out, PLAIT_F32, sum, CHUNK * WIDTH);
        if (rounded)
            widen(sum, out, 0);
    }
}

static void ring_backward(uint16_t *dq, const void *out, int rounded)
{
    static float sum[CHUNK * WIDTH];
    static uint16_t part[CHUNK * WIDTH];

    for (int i = RANKS - 1; i >= 0; i--) {
        backward(PLAIT_BF16_T, part, out, CHUNK, i * CHUNK);
        widen(sum, part, i != RANKS - 1);
        cast(PLAIT_BF16_T, dq, PLAIT_F32, sum, CHUNK * WIDTH);
        if (rounded)
            widen(sum, dq, 0);
    }
}

/* Each step's part is rounded once, and so is the sum: by sqrt(2) as much as on
 * one rank, where the roundings are independent. What roundings of the sum
 * after each step would do shows that they would be seen. */
static void compare(const char *what, double one, double ring, double rounded)
{
    ok(ring < 1.45 * one, "%s: %s is off by %.2e over 8 ranks, by %.2e on one",
       ops->name, what, ring, one);
    ok(rounded > 1.4 * ring, "%s: %s would be off by %.2e with roundings",
       ops->name, what, rounded);
}

static void test_ops(const struct plait_ops *table)
{
    static float exact[CHUNK * WIDTH], exact_dq[CHUNK * WIDTH];
    static uint16_t out[CHUNK * WIDTH], dq[CHUNK * WIDTH];
    struct plait_device *dev;
    double one[2], ring[2], rounded[2];

    ops = table;
    dev = ops->device_create(0, 1);
    q = ops->queue_create(dev, 0);
    set_inputs();
    forward(PLAIT_F32, exact, lse, T, 0);
    backward(PLAIT_F32, exact_dq, exact, T, 0);

    forward(PLAIT_BF16_T, out, lse, T, 0);
    backward(PLAIT_BF16_T, dq, out, T, 0);
    one[0] = off(out, exact);
    one[1] = off(dq, exact_dq);

    ring_forward(out, 1);
    rounded[0] = off(out, exact);
    ring_forward(out, 0);
    ring[0] = off(out, exact);
    ring_backward(dq, out, 1);
    rounded[1] = off(dq, exact_dq);
    ring_backward(dq, out, 0);
    ring[1] = off(dq, exact_dq);
    compare("out", one[0], ring[0], rounded[0]);
    compare("dq", one[1], ring[1], rounded[1]);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

int main(void)
{
    const struct plait_ops *cpu[CPU_TABLES + 1];

    test_ops(plait_ops_ref());
    list_cpu_tables(cpu);
    for (int i = 0; cpu[i]; i++)
        test_ops(cpu[i]);
    return done_testing();
}
