/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/attention.h"
#include "kernels/dtype.h"
#include "kernels/rope.h"
#include "ops_cases.h"

/* Adds the [batch, len] positions at which the document of each token begins,
 * for sequences of `len` tokens from `pos` on. */
static void starts_of(struct trial *t, int batch, int len, int pos)
{
    int32_t *starts = trial_int(t, (size_t)(batch * len), 0, 30);

    for (int i = 0; i < batch * len; i++) {
        int here = pos + i % len;

        if (starts[i] == 0) /* a document begins at one token in 30 */
            starts[i] = here;
        else if (i % len == 0)
            starts[i] = pos * starts[i] / 30;
        else
            starts[i] = starts[i - 1];
    }
}

/* -- rope {B, T, heads, head_dim, gap, pos0} ---------------------------- */

static void setup_rope(struct trial *t, const int *s)
{
    real(t, product(s, 2) * (size_t)(s[2] * s[3] + s[4]));
    real(t, product(s, 2) * (size_t)(s[2] * s[3] + s[4]));
    starts_of(t, s[0], s[1], s[5]);
    real(t, product(s, 2) * (size_t)(s[2] * s[3] + s[4]));
    real(t, product(s, 2) * (size_t)(s[2] * s[3] + s[4]));
}

static int call_rope(struct trial_side *d, const int *s)
{
    struct plait_rope plain = {.type = d->type,
                               .x = d->p[0],
                               .stride = (size_t)(s[2] * s[3] + s[4]),
                               .heads = s[2],
                               .head_dim = s[3],
                               .columns = s[6],
                               .direction = 1,
                               .angles = {.theta = 1e4},
                               .at = {.T = (size_t)s[1], .pos0 = s[5]},
                               .N = product(s, 2)};
    struct plait_rope scaled = plain, yarn, paired;
    double pairs[PLAIT_ROPE_PAIRS];

    scaled.x = d->p[1];
    scaled.direction = -1;
    scaled.angles = (struct plait_rope_angles){5e5, 8, 1, 4, 40, 0, NULL};
    scaled.at.starts = d->p[2];
    yarn = plain;
    yarn.x = d->p[3];
    yarn.angles = (struct plait_rope_angles){1e4, 8, 1, 32, 40, 1.3, NULL};
    plait_rope_yarn(&yarn.angles, s[6] ? s[6] : s[3], s[1] % 2);
    paired = plain;
    paired.x = d->p[4];
    paired.angles = (struct plait_rope_angles){1e4, 8, 0, 0, 40, 1.2, pairs};
    for (int i = 0; i < PLAIT_ROPE_PAIRS; i++)
        pairs[i] = 1 + 0.75 * i;
    return d->ops->rope(d->q, &plain) | d->ops->rope(d->q, &scaled) |
           d->ops->rope(d->q, &yarn) | d->ops->rope(d->q, &paired);
}

/* -- temper {B, T, C, gap, pos0} ---------------------------------------- */

static void setup_temper(struct trial *t, const int *s)
{
    real(t, product(s, 2) * (size_t)(s[2] + s[3]));
    real(t, product(s, 2) * (size_t)(s[2] + s[3]));
    starts_of(t, s[0], s[1], s[4]);
}

static int call_temper(struct trial_side *d, const int *s)
{
    struct plait_temper plain = {.type = d->type,
                                 .x = d->p[0],
                                 .stride = (size_t)(s[2] + s[3]),
                                 .N = product(s, 2),
                                 .C = (size_t)s[2],
                                 .floor = 3,
                                 .scale = 0.7,
                                 .at = {.T = (size_t)s[1], .pos0 = s[4]}};
    struct plait_temper documents = plain;

    documents.x = d->p[1];
    documents.at.starts = d->p[2];
    return d->ops->temper(d->q, &plain) | d->ops->temper(d->q, &documents);
}

/* -- attention {B, q_len, k_len, q_heads, kv_heads, D, q_pos, k_pos} ---- */

static struct plait_attention attention_of(const int *s)
{
    int fused = (s[3] + 2 * s[4]) * s[5];
    struct plait_attention a = {
        .batch = s[0],
        .q_len = s[1],
        .k_len = s[2],
        .q_heads = s[3],
        .kv_heads = s[4],
        .head_dim = s[5],
        .q_stride = (size_t)fused,
        .kv_stride = (size_t)fused,
        .q_pos = s[6],
        .k_pos = s[7],
        .scale = 1 / sqrtf((float)s[5]),
    };

    return a;
}

/* q, k and v are in one row of a fused buffer; if the two lengths differ, it
 * has as many rows as the longer one. */
static size_t fused_size(const int *s)
{
    int rows = s[0] * (s[1] > s[2] ? s[1] : s[2]);

    return (size_t)rows * (size_t)((s[3] + 2 * s[4]) * s[5]);
}

static void *column(const struct trial_side *d, void *fused, int elements)
{
    return (char *)fused + (size_t)elements * plait_dtype_size(d->type);
}

/* The operands of the arrays that setup_attention() makes. */
static struct plait_attention_forward forward_of(const struct trial_side *d,
                                                 const int *s)
{
    struct plait_attention_forward f = {
        .type = d->type,
        .a = attention_of(s),
        .out = d->p[0],
        .lse = d->p[1],
        .Q = d->p[2],
        .K = column(d, d->p[2], s[3] * s[5]),
        .V = column(d, d->p[2], (s[3] + s[4]) * s[5])};

    return f;
}

/* Gradients go to dqkv. */
static struct plait_attention_backward backward_of(const struct trial_side *d,
                                                   const int *s, void *dqkv)
{
    int k = s[3] * s[5], v = (s[3] + s[4]) * s[5];
    struct plait_attention_backward g = {.type = d->type,
                                         .a = attention_of(s),
                                         .dQ = dqkv,
                                         .dK = column(d, dqkv, k),
                                         .dV = column(d, dqkv, v),
                                         .dout = d->p[3],
                                         .out = d->p[0],
                                         .lse = d->p[1],
                                         .Q = d->p[2],
                                         .K = column(d, d->p[2], k),
                                         .V = column(d, d->p[2], v)};

    return g;
}

/* Sets out and lse, which the backward reads. */
static void attend(struct trial *t, const int *s, const int32_t *starts)
{
    struct trial_side d = {.type = t->type};
    struct plait_attention_forward f;

    for (int i = 0; i < 3; i++)
        d.p[i] = t->array[i].host;
    f = forward_of(&d, s);
    f.a.starts = starts;
    t->ref->attention_forward(t->ref_queue, &f);
}

static void setup_attention(struct trial *t, const int *s)
{
    size_t dense = (size_t)(s[0] * s[1] * s[3] * s[5]);

    /* A GPU's tensor cores round each weight p to T, with an error of at most u
     * p: a result is off by up to u sum(p |v|), that is u times the mean of
     * |v|, 1, however many keys there are, whereas the result itself is small
     * for many keys. */
    if (t->gpu)
        t->magnitude = 1;
    real(t, dense);
    real32(t, (size_t)(s[0] * s[1] * s[3]));
    trial_real(t, KIND_T, fused_size(s), -2, 2);
    real(t, dense);
    real(t, fused_size(s));
    attend(t, s, NULL);
}

static int call_attention_forward(struct trial_side *d, const int *s)
{
    struct plait_attention_forward f = forward_of(d, s);

    return d->ops->attention_forward(d->q, &f);
}

static int call_attention_backward(struct trial_side *d, const int *s)
{
    struct plait_attention_backward g = backward_of(d, s, d->p[4]);

    return d->ops->attention_backward(d->q, &g);
}

/* Once overwriting arbitrary contents and once added to zeros: the difference
 * must be 0. */
static void setup_overwrite(struct trial *t, const int *s)
{
    setup_attention(t, s);
    real(t, fused_size(s));
}

static int backward_into(struct trial_side *d, const int *s, void *dqkv,
                         int overwrite)
{
    struct plait_attention_backward g = backward_of(d, s, dqkv);

    g.a.overwrite = overwrite;
    return (overwrite
                ? 0
                : d->ops->fill_zero(
                      d->q, dqkv, fused_size(s) * plait_dtype_size(d->type))) |
           d->ops->attention_backward(d->q, &g);
}

static int call_overwrite(struct trial_side *d, const int *s)
{
    size_t n = fused_size(s);

    return backward_into(d, s, d->p[4], 1) | backward_into(d, s, d->p[5], 0) |
           d->ops->scale(d->q,
                         &(struct plait_scale){
                             .type = d->type, .x = d->p[4], .s = -1, .n = n}) |
           d->ops->add(d->q, &(struct plait_add){.type = d->type,
                                                 .out = d->p[4],
                                                 .a = d->p[4],
                                                 .b = d->p[5],
                                                 .n = n}) |
           d->ops->fill_zero(d->q, d->p[5], n * plait_dtype_size(d->type));
}

/* The same with attention limited to documents. */
static void setup_documents(struct trial *t, const int *s)
{
    setup_attention(t, s);
    starts_of(t, s[0], s[1], s[6]);
    attend(t, s, t->array[5].host);
}

static int call_documents(struct trial_side *d, const int *s)
{
    struct plait_attention_backward g = backward_of(d, s, d->p[4]);
    struct plait_attention_forward f = forward_of(d, s);

    f.a.starts = g.a.starts = d->p[5];
    return d->ops->attention_backward(d->q, &g) |
           d->ops->attention_forward(d->q, &f);
}

/* The same with windows, which the op is told of: the last number of a case, or
 * where it is 0 a third. */
static int window_of(const int *s)
{
    return s[8] ? s[8] : 1 + s[1] / 3;
}

static void setup_windows(struct trial *t, const int *s)
{
    int32_t *starts;

    setup_attention(t, s);
    starts = trial_int(t, (size_t)(s[0] * s[1]), 0, 1);
    for (int i = 0; i < s[0] * s[1]; i++) {
        int first = s[6] + i % s[1] + 1 - window_of(s);

        starts[i] = first > 0 ? first : 0;
    }
    attend(t, s, starts);
}

static int call_windows(struct trial_side *d, const int *s)
{
    struct plait_attention_backward g = backward_of(d, s, d->p[4]);
    struct plait_attention_forward f = forward_of(d, s);

    f.a.starts = g.a.starts = d->p[5];
    f.a.window = g.a.window = window_of(s);
    return d->ops->attention_backward(d->q, &g) |
           d->ops->attention_forward(d->q, &f);
}

/* The largest scores, of heads that have none yet and of those whose own may be
 * smaller. The last number of a case: 0, 1 for documents, or a window. */
static void setup_peaks(struct trial *t, const int *s)
{
    float *peaks;

    if (s[8] > 1)
        setup_windows(t, s);
    else
        setup_documents(t, s);
    peaks = trial_real(t, KIND_F32, (size_t)s[3], -6, 6);
    for (int h = 0; h < s[3]; h += 2)
        peaks[h] = -INFINITY;
}

static int call_peaks(struct trial_side *d, const int *s)
{
    struct plait_attention_forward f = forward_of(d, s);

    f.a.starts = s[8] ? d->p[5] : NULL;
    f.a.window = s[8] > 1 ? s[8] : 0;
    f.peak = d->p[6];
    return d->ops->attention_forward(d->q, &f);
}

/* And with capped scores; a text that grows has no documents. */
static const int32_t *starts_for(const int *s, void *starts)
{
    return s[1] > 4 || s[2] == s[1] ? starts : NULL;
}

static void setup_capped(struct trial *t, const int *s)
{
    struct plait_attention_forward f;
    struct trial_side d = {.type = t->type};

    setup_attention(t, s);
    starts_of(t, s[0], s[1], s[6]);
    for (int i = 0; i < 3; i++)
        d.p[i] = t->array[i].host;
    f = forward_of(&d, s);
    f.a.starts = starts_for(s, t->array[5].host);
    f.a.cap = 1.5f;
    t->ref->attention_forward(t->ref_queue, &f);
}

static int call_capped(struct trial_side *d, const int *s)
{
    struct plait_attention_backward g = backward_of(d, s, d->p[4]);
    struct plait_attention_forward f = forward_of(d, s);

    f.a.starts = g.a.starts = starts_for(s, d->p[5]);
    f.a.cap = g.a.cap = 1.5f;
    return d->ops->attention_backward(d->q, &g) |
           d->ops->attention_forward(d->q, &f);
}

/* And with dropout, of capped scores where the last number of a case is 1, and
 * with documents where it is 2. */
static struct plait_drops drop_from(struct plait_attention *a, const int *s,
                                    const void *starts, const void *keys)
{
    a->cap = s[8] == 1 ? 1.5f : 0;
    a->starts = s[8] == 2 ? starts : NULL;
    return (struct plait_drops){
        .keys = keys, .place = (uint64_t)3 << 32 | 11, .rate = 0.25f};
}

static void setup_dropout(struct trial *t, const int *s)
{
    struct plait_attention_forward f;
    struct trial_side d = {.type = t->type};

    setup_attention(t, s);
    starts_of(t, s[0], s[1], s[6]);
    trial_int(t, 2 * (size_t)s[0], INT32_MIN, INT32_MAX);
    for (int i = 0; i < 3; i++)
        d.p[i] = t->array[i].host;
    f = forward_of(&d, s);
    f.drops = drop_from(&f.a, s, t->array[5].host, t->array[6].host);
    t->ref->attention_forward(t->ref_queue, &f);
}

static int call_dropout(struct trial_side *d, const int *s)
{
    struct plait_attention_backward g = backward_of(d, s, d->p[4]);
    struct plait_attention_forward f = forward_of(d, s);

    g.drops = drop_from(&g.a, s, d->p[5], d->p[6]);
    f.drops = drop_from(&f.a, s, d->p[5], d->p[6]);
    return d->ops->attention_backward(d->q, &g) |
           d->ops->attention_forward(d->q, &f);
}

static void setup_merge(struct trial *t, const int *s)
{
    size_t rows = (size_t)(s[0] * s[1] * s[3]);
    float *lse[2];

    real32(t, rows * (size_t)s[5]);
    lse[0] = trial_real(t, KIND_F32, rows, -4, 4);
    real(t, rows * (size_t)s[5]);
    lse[1] = trial_real(t, KIND_F32, rows, -4, 4);
    lse[0][0] = lse[1][rows - 1] = -INFINITY; /* saw no key in one chunk */
}

static int call_merge(struct trial_side *d, const int *s)
{
    struct plait_attention_merge m = {.type = d->type,
                                      .a = attention_of(s),
                                      .out = d->p[0],
                                      .lse = d->p[1],
                                      .out2 = d->p[2],
                                      .lse2 = d->p[3]};

    return d->ops->attention_merge(d->q, &m);
}

/* -- sinks {B, T, heads, D} ---------------------------------------------- */

static void setup_sink(struct trial *t, const int *s)
{
    float *lse;

    real(t, product(s, 4));
    lse = trial_real(t, KIND_F32, (size_t)(s[0] * s[1] * s[2]), -4, 4);
    trial_real(t, KIND_T, (size_t)s[2], -4, 4);
    real(t, product(s, 4));
    real32(t, (size_t)s[2]);
    real(t, product(s, 4));
    lse[0] = -INFINITY; /* saw no key */
    for (size_t i = 0; i < (size_t)(s[0] * s[1] * s[2]); i++)
        if (i > 3 && i % 7 == 0) /* as from many keys: the sink is nothing */
            lse[i] += 90;
}

/* The gradient has an output of its own: that of the forward is rounded, and
 * where two implementations round one number apart, their sums differ. */
static int call_sink(struct trial_side *d, const int *s)
{
    struct plait_attention_sink f = {.type = d->type,
                                     .batch = s[0],
                                     .q_len = s[1],
                                     .heads = s[2],
                                     .head_dim = s[3],
                                     .out = d->p[0],
                                     .lse = d->p[1],
                                     .sink = d->p[2]};
    struct plait_attention_sink_gradient g = {.type = d->type,
                                              .batch = s[0],
                                              .q_len = s[1],
                                              .heads = s[2],
                                              .head_dim = s[3],
                                              .sink = d->p[2],
                                              .out = d->p[5],
                                              .dout = d->p[3],
                                              .lse = d->p[1],
                                              .dsink = d->p[4]};

    return d->ops->attention_sink(d->q, &f) |
           d->ops->attention_sink_backward(d->q, &g);
}

const struct trial_case trial_attention[] = {
    {"rope",
     setup_rope,
     call_rope,
     {{1, 1, 1, 2, 0, 0},
      {2, 17, 3, 16, 0, 0},
      {3, 9, 2, 64, 40, 9},
      {2, 7, 3, 10, 0, 0, 6},
      {2, 5, 2, 32, 3, 0, 16}}},
    {"temper",
     setup_temper,
     call_temper,
     {{1, 1, 1, 0, 0},
      {2, 17, 48, 0, 0},
      {3, 9, 37, 5, 9},
      {2, 8, 64, 8, 0},
      {2, 3, 301, 0, 7},
      {1, 3, 1064, 8, 5}}},
    {"attention_forward",
     setup_attention,
     call_attention_forward,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 150, 150, 2, 2, 64, 0, 0},
      {2, 20, 33, 4, 2, 24, 40, 20},
      {1, 65, 65, 6, 1, 40, 0, 30},
      {1, 67, 66, 2, 1, 7, 3, 0},
      {1, 70, 200, 2, 1, 128, 130, 0}}},
    {"attention_forward, a text that grows",
     setup_attention,
     call_attention_forward,
     {{1, 1, 300, 4, 2, 64, 299, 0},
      {1, 1, 77, 6, 6, 24, 76, 0},
      {2, 3, 190, 6, 2, 40, 187, 0},
      {1, 4, 20, 2, 1, 7, 2, 5}}},
    {"attention_forward, peaks",
     setup_peaks,
     call_peaks,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 300, 300, 4, 2, 64, 0, 0},
      {2, 70, 200, 4, 1, 128, 130, 0},
      {1, 65, 65, 6, 1, 40, 0, 30},
      {2, 3, 190, 6, 2, 40, 187, 0},
      {1, 3, 20, 2, 1, 64, 0, 5}}}, /* sees no key */
    {"attention_forward, peaks of documents",
     setup_peaks,
     call_peaks,
     {{2, 37, 37, 3, 3, 16, 0, 0, 1},
      {1, 150, 150, 4, 2, 64, 0, 0, 1},
      {2, 130, 130, 2, 1, 128, 130, 130, 1},
      {2, 37, 37, 3, 3, 16, 0, 0, 9},
      {1, 150, 150, 4, 2, 64, 0, 0, 40},
      {1, 70, 70, 2, 1, 128, 0, 0, 33}}},
    {"attention_backward",
     setup_attention,
     call_attention_backward,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 150, 150, 2, 2, 64, 0, 0},
      {2, 20, 33, 4, 2, 24, 40, 20},
      {1, 65, 65, 6, 1, 40, 0, 30},
      {1, 67, 66, 2, 1, 7, 3, 0},
      {1, 70, 200, 2, 1, 128, 130, 0}}},
    {"attention_backward, overwrite",
     setup_overwrite,
     call_overwrite,
     {{2, 37, 37, 3, 3, 16, 0, 0},
      {1, 150, 150, 2, 2, 64, 0, 0},
      {1, 128, 128, 2, 1, 128, 0, 0}}},
    {"attention, documents",
     setup_documents,
     call_documents,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 300, 300, 2, 2, 64, 0, 0},
      {2, 20, 33, 4, 2, 24, 40, 20},
      {1, 65, 65, 6, 1, 40, 0, 30},
      {2, 130, 130, 2, 1, 128, 130, 130},
      {1, 200, 200, 2, 1, 64, 200, 0}}},
    {"attention, windows",
     setup_windows,
     call_windows,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 300, 300, 2, 2, 64, 0, 0},
      {2, 128, 128, 4, 2, 128, 0, 0},
      {2, 130, 130, 2, 1, 128, 130, 130},
      {1, 48, 48, 2, 1, 64, 48, 0},
      {1, 48, 48, 2, 1, 64, 48, 0, 96},
      {1, 48, 48, 2, 1, 64, 48, 0, 95},
      {1, 64, 64, 2, 2, 64, 64, 0, 128},
      {2, 48, 48, 2, 1, 64, 48, 48, 48}}},
    {"attention, capped",
     setup_capped,
     call_capped,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 150, 150, 2, 2, 64, 0, 0},
      {2, 20, 33, 4, 2, 24, 40, 20},
      {1, 70, 200, 2, 1, 128, 130, 0},
      {2, 130, 130, 2, 1, 128, 130, 130},
      {2, 3, 190, 6, 2, 40, 187, 0}}},
    {"attention, dropout",
     setup_dropout,
     call_dropout,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 150, 150, 2, 2, 64, 0, 0},
      {2, 20, 33, 4, 2, 24, 40, 20, 1},
      {1, 70, 200, 2, 1, 128, 130, 0},
      {2, 130, 130, 2, 1, 128, 130, 130, 1},
      {1, 200, 200, 2, 1, 64, 200, 0, 2},
      {2, 3, 190, 6, 2, 40, 187, 0}}},
    {"attention_sink",
     setup_sink,
     call_sink,
     {{1, 1, 1, 8}, {2, 19, 3, 24}, {1, 300, 5, 64}, {3, 70, 2, 7}}},
    {"attention_merge", setup_merge, call_merge, {{2, 19, 19, 3, 3, 24, 0, 0}}},
    {NULL, NULL, NULL, {{0}}},
};
