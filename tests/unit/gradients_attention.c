/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, and the positions that it sees. */
#include <string.h>

#include "gradients.h"
#include "kernels/attention.h"

static float *out2, *lse2; /* of a second chunk */

/* Rotates p [N,heads,D]. */
static void rotate(float *p, int direction)
{
    ops->rope(q, &(struct plait_rope){.x = p,
                                      .stride = (size_t)(s[2] * s[3]),
                                      .heads = s[2],
                                      .head_dim = s[3],
                                      .columns = s[5],
                                      .direction = direction,
                                      .angles = {100, 4, 1, 4, 20, 1.3},
                                      .at = {.T = (size_t)s[1], .pos0 = s[4]},
                                      .N = (size_t)s[0]});
}

/* {N, T, heads, D, pos0, columns} */
static void rope_forward(float *out)
{
    size_t n = (size_t)(s[0] * s[2] * s[3]);

    memcpy(out, x[0], n * sizeof(float));
    rotate(out, 1);
}

static void rope_backward(void)
{
    size_t n = (size_t)(s[0] * s[2] * s[3]);

    memcpy(dx[0], r, n * sizeof(float));
    rotate(dx[0], -1);
}

/* {B, T, heads, kv heads, D, cap, dropout}; inputs q, k, v */
static struct plait_attention attention_of(int k_len, int k_pos)
{
    struct plait_attention a = {
        .batch = s[0],
        .q_len = s[1],
        .k_len = k_len,
        .q_heads = s[2],
        .kv_heads = s[3],
        .head_dim = s[4],
        .q_stride = (size_t)(s[2] * s[4]),
        .kv_stride = (size_t)(s[3] * s[4]),
        .k_pos = k_pos,
        .scale = 0.7f,
        .cap = (float)s[5],
    };

    return a;
}

static struct plait_drops drops_of(void)
{
    return (struct plait_drops){
        .keys = s[6] ? keys : NULL, .place = 9, .rate = 0.3f};
}

/* Attention to the k_len keys from k_pos on, which is 0 with several
 * sequences. */
static void attend(float *out, float *lse, int k_len, int k_pos)
{
    struct plait_attention a = attention_of(k_len, k_pos);
    size_t first = (size_t)k_pos * a.kv_stride;

    ops->attention_forward(
        q, &(struct plait_attention_forward){.type = PLAIT_F32,
                                             .a = a,
                                             .drops = drops_of(),
                                             .out = out,
                                             .lse = lse,
                                             .Q = x[0],
                                             .K = x[1] + first,
                                             .V = x[2] + first});
}

static void attend_backward(int k_len, int k_pos)
{
    struct plait_attention a = attention_of(k_len, k_pos);
    size_t first = (size_t)k_pos * a.kv_stride;

    ops->attention_backward(
        q, &(struct plait_attention_backward){.type = PLAIT_F32,
                                              .a = a,
                                              .drops = drops_of(),
                                              .dQ = dx[0],
                                              .dK = dx[1] + first,
                                              .dV = dx[2] + first,
                                              .dout = r,
                                              .out = y,
                                              .lse = stat[0],
                                              .Q = x[0],
                                              .K = x[1] + first,
                                              .V = x[2] + first});
}

static void attention_forward(float *out)
{
    attend(out, stat[0], s[1], 0);
}

static void attention_backward(void)
{
    attend_backward(s[1], 0);
}

/* The same with the sinks x[3], which follow it. */
static void sink_forward(float *out)
{
    attend(out, stat[0], s[1], 0);
    ops->attention_sink(q, &(struct plait_attention_sink){.type = PLAIT_F32,
                                                          .batch = s[0],
                                                          .q_len = s[1],
                                                          .heads = s[2],
                                                          .head_dim = s[4],
                                                          .sink = x[3],
                                                          .out = out,
                                                          .lse = stat[0]});
}

static void sink_backward(void)
{
    ops->attention_sink_backward(
        q, &(struct plait_attention_sink_gradient){.type = PLAIT_F32,
                                                   .batch = s[0],
                                                   .q_len = s[1],
                                                   .heads = s[2],
                                                   .head_dim = s[4],
                                                   .sink = x[3],
                                                   .out = y,
                                                   .dout = r,
                                                   .lse = stat[0],
                                                   .dsink = dx[3]});
    attend_backward(s[1], 0);
}

/* One batch whose keys come in two chunks, as in ring attention. */
static void ring_forward(float *out)
{
    int half = s[1] / 2;

    attend(out, stat[0], half, 0);
    attend(out2, lse2, half, half);
    ops->attention_merge(
        q, &(struct plait_attention_merge){.type = PLAIT_F32,
                                           .a = attention_of(half, half),
                                           .out = out,
                                           .lse = stat[0],
                                           .out2 = out2,
                                           .lse2 = lse2});
}

static void ring_backward(void)
{
    int half = s[1] / 2;

    attend_backward(half, 0);
    attend_backward(half, half);
}

static const struct check checks[] = {
    {"rope", {96}, 96, rope_forward, rope_backward, {6, 3, 2, 8, 5}},
    {"rope", {96}, 96, rope_forward, rope_backward, {6, 3, 2, 8, 5, 6}},
    {"attention",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4},
     2 * 5 * 4 * 4,
     attention_forward,
     attention_backward,
     {2, 5, 4, 2, 4, 0}},
    {"attention, capped",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4},
     2 * 5 * 4 * 4,
     attention_forward,
     attention_backward,
     {2, 5, 4, 2, 4, 1}},
    {"attention, dropout",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4},
     2 * 5 * 4 * 4,
     attention_forward,
     attention_backward,
     {2, 5, 4, 2, 4, 1, 1}},
    {"attention with sinks",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4, 4},
     2 * 5 * 4 * 4,
     sink_forward,
     sink_backward,
     {2, 5, 4, 2, 4, 0}},
    {"attention in two chunks",
     {6 * 2 * 4, 6 * 1 * 4, 6 * 1 * 4},
     6 * 2 * 4,
     ring_forward,
     ring_backward,
     {1, 6, 2, 1, 4, 0}},
    {"attention in two chunks, capped",
     {6 * 2 * 4, 6 * 1 * 4, 6 * 1 * 4},
     6 * 2 * 4,
     ring_forward,
     ring_backward,
     {1, 6, 2, 1, 4, 1}},
    {"attention in two chunks, dropout",
     {6 * 2 * 4, 6 * 1 * 4, 6 * 1 * 4},
     6 * 2 * 4,
     ring_forward,
     ring_backward,
     {1, 6, 2, 1, 4, 0, 1}},
};

void check_attention(void)
{
    out2 = reserve(sizeof(*stat));
    lse2 = reserve(sizeof(*stat));
    run_checks(checks, sizeof(checks) / sizeof(*checks));
}
