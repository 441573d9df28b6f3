/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "kernels/xent.h"
#include "ops_cases.h"

/* -- activations: {N, F} ------------------------------------------------ */

static void setup_gelu(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real(t, product(s, 2));
    trial_real(t, KIND_T, product(s, 2), -12, 12);
}

static int call_gelu(struct trial_side *d, const int *s)
{
    size_t n = product(s, 2);

    return d->ops->gelu_forward(
               d->q,
               &(struct plait_gelu_forward){
                   .type = d->type, .out = d->p[0], .inp = d->p[2], .n = n}) |
           d->ops->gelu_backward(d->q,
                                 &(struct plait_gelu_backward){.type = d->type,
                                                               .dinp = d->p[1],
                                                               .dout = d->p[1],
                                                               .inp = d->p[2],
                                                               .n = n});
}

/* Ops on bf16 may be asked for the largest magnitude of what they store: an
 * fp32 number, which the arrays of bf16 hold as 0 and itself. */
static void setup_amax(struct trial *t)
{
    real(t, 2);
    real(t, 2);
}

static uint32_t *amax_of(struct trial_side *d, int at)
{
    return d->type == PLAIT_BF16_T ? d->p[at] : NULL;
}

/* Whether the op found the same magnitude in x [n], to the bit, as fp8_amax. */
static int check_amax(struct trial_side *d, int at, const void *x, size_t n)
{
    uint32_t found = 0, again = 1;
    int rc;

    if (d->type != PLAIT_BF16_T)
        return 0;
    rc = d->ops->fp8_amax(d->q, d->p[at + 1], x, n);
    if (d->recording || rc != 0)
        return rc;
    rc = d->ops->to_host(d->q, &found, d->p[at], sizeof(found)) |
         d->ops->to_host(d->q, &again, d->p[at + 1], sizeof(again)) |
         d->ops->queue_sync(d->q);
    return rc != 0 || found != again ? -1 : 0;
}

static void setup_swiglu(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real(t, 2 * product(s, 2));
    trial_real(t, KIND_T, 2 * product(s, 2), -8, 8);
    real(t, product(s, 2));
    setup_amax(t);
    setup_amax(t);
}

/* As many numbers beyond the limits as within. */
static void setup_clamped(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real(t, 2 * product(s, 2));
    trial_real(t, KIND_T, 2 * product(s, 2), -14, 14);
    real(t, product(s, 2));
    setup_amax(t);
    setup_amax(t);
}

static int call_gated(struct trial_side *d, const int *s, enum plait_glu kind)
{
    size_t N = (size_t)s[0], F = (size_t)s[1];

    return d->ops->swiglu_forward(
               d->q, &(struct plait_swiglu_forward){.type = d->type,
                                                    .out = d->p[0],
                                                    .inp = d->p[2],
                                                    .N = N,
                                                    .F = F,
                                                    .kind = kind,
                                                    .amax = amax_of(d, 4)}) |
           check_amax(d, 4, d->p[0], N * F) |
           d->ops->swiglu_backward(
               d->q, &(struct plait_swiglu_backward){.type = d->type,
                                                     .dinp = d->p[1],
                                                     .dout = d->p[3],
                                                     .inp = d->p[2],
                                                     .N = N,
                                                     .F = F,
                                                     .kind = kind,
                                                     .amax = amax_of(d, 6)}) |
           check_amax(d, 6, d->p[1], 2 * N * F);
}

static int call_swiglu(struct trial_side *d, const int *s)
{
    return call_gated(d, s, PLAIT_GLU_SILU);
}

static int call_geglu(struct trial_side *d, const int *s)
{
    return call_gated(d, s, PLAIT_GLU_GELU);
}

static int call_clamped(struct trial_side *d, const int *s)
{
    return call_gated(d, s, PLAIT_GLU_CLAMPED);
}

/* -- normalisation: {N, C, residual or accumulate} ---------------------- */

static void setup_norm_forward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], C = (size_t)s[1];

    real(t, N * C);
    real32(t, N);
    real32(t, N);
    real(t, N * C);
    trial_real(t, KIND_T, N * C, -1, 3);
    real(t, N * C);
    real(t, C);
    real(t, C);
    setup_amax(t);
}

static int call_layernorm_forward(struct trial_side *d, const int *s)
{
    struct plait_norm_forward n = {.type = d->type,
                                   .out = d->p[0],
                                   .mean = d->p[1],
                                   .rstd = d->p[2],
                                   .sum = s[2] ? d->p[3] : NULL,
                                   .inp = d->p[4],
                                   .residual = s[2] ? d->p[5] : NULL,
                                   .gamma = d->p[6],
                                   .beta = d->p[7],
                                   .eps = 1e-5f,
                                   .N = (size_t)s[0],
                                   .C = (size_t)s[1],
                                   .amax = amax_of(d, 8)};

    return d->ops->norm_forward(d->q, &n) |
           check_amax(d, 8, n.out, product(s, 2));
}

/* The sum overwrites the residual, as in a residual stream. */
static int call_rmsnorm_forward(struct trial_side *d, const int *s)
{
    void *stream = s[2] ? d->p[5] : NULL;
    struct plait_norm_forward n = {.type = d->type,
                                   .out = d->p[0],
                                   .rstd = d->p[2],
                                   .sum = stream,
                                   .inp = d->p[4],
                                   .residual = stream,
                                   .gamma = d->p[6],
                                   .eps = 1e-6f,
                                   .plus = (float)(s[1] % 2),
                                   .N = (size_t)s[0],
                                   .C = (size_t)s[1],
                                   .amax = amax_of(d, 8)};

    return d->ops->norm_forward(d->q, &n) |
           check_amax(d, 8, n.out, product(s, 2));
}

static void setup_norm_backward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], C = (size_t)s[1];
    void *x, *gamma;
    float *mean, *rstd;

    real(t, N * C);
    real32(t, C);
    real32(t, C);
    real(t, N * C);
    x = trial_real(t, KIND_T, N * C, -1, 3);
    gamma = real(t, C);
    mean = real32(t, N);
    rstd = trial_real(t, KIND_F32, N, 0.5, 2);
    setup_amax(t);
    if (s[3])
        t->ref->norm_forward(
            t->ref_queue, &(struct plait_norm_forward){.type = t->type,
                                                       .out = t->array[0].host,
                                                       .mean = mean,
                                                       .rstd = rstd,
                                                       .inp = x,
                                                       .gamma = gamma,
                                                       .beta = gamma,
                                                       .eps = 1e-5f,
                                                       .N = N,
                                                       .C = C});
}

/* layer: LayerNorm; else RMSNorm, which has neither beta nor mean */
static int call_norm_backward(struct trial_side *d, const int *s, bool layer)
{
    struct plait_norm_backward n = {.type = d->type,
                                    .dx = d->p[0],
                                    .accumulate = s[2],
                                    .dgamma = d->p[1],
                                    .dbeta = layer ? d->p[2] : NULL,
                                    .dout = d->p[3],
                                    .x = d->p[4],
                                    .gamma = d->p[5],
                                    .mean = layer ? d->p[6] : NULL,
                                    .rstd = d->p[7],
                                    .N = (size_t)s[0],
                                    .C = (size_t)s[1],
                                    .plus = layer ? 0 : (float)(s[1] % 2),
                                    .amax = amax_of(d, 8)};

    return d->ops->norm_backward(d->q, &n) |
           check_amax(d, 8, n.dx, product(s, 2));
}

static int call_layernorm_backward(struct trial_side *d, const int *s)
{
    return call_norm_backward(d, s, true);
}

static int call_rmsnorm_backward(struct trial_side *d, const int *s)
{
    return call_norm_backward(d, s, false);
}

/* {N, C}, as one of three ranks has them */
/* {rows, heads, columns of a head, gap}: forward, and a backward with what it
 * has put out. */
static void setup_head_norm(struct trial *t, const int *s)
{
    size_t wide = (size_t)(s[1] * s[2] + s[3]);

    real(t, (size_t)s[0] * wide);
    real(t, (size_t)s[0] * wide);
    real32(t, product(s, 2));
}

static int call_head_norm(struct trial_side *d, const int *s)
{
    struct plait_head_norm n = {.type = d->type,
                                .x = d->p[0],
                                .stride = (size_t)(s[1] * s[2] + s[3]),
                                .heads = s[1],
                                .head_dim = s[2],
                                .rstd = d->p[2],
                                .eps = 1e-3f,
                                .N = (size_t)s[0]};
    int rc = d->ops->head_norm(d->q, &n);

    n.x = d->p[1];
    n.y = d->p[0];
    return rc | d->ops->head_norm(d->q, &n);
}

static void setup_norm_part(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], C = (size_t)s[1];

    real(t, N * C);
    real32(t, C);
    real(t, N * C);
    trial_real(t, KIND_T, N * C, -1, 3);
    real(t, C);
    trial_real(t, KIND_F32, N, 1, 2);
    real32(t, N);
    real(t, N * C);
    real32(t, N);
}

static int call_norm_part(struct trial_side *d, const int *s)
{
    struct plait_norm_part p = {.type = d->type,
                                .out = d->p[0],
                                .x = d->p[3],
                                .gamma = d->p[4],
                                .sums = d->p[5],
                                .mean = 1 / (3.0f * (float)s[1]),
                                .eps = 1e-5f,
                                .rstd = d->p[6],
                                .N = (size_t)s[0],
                                .C = (size_t)s[1]};
    int rc =
        d->ops->norm_part_sums(d->q, &p) | d->ops->norm_part_forward(d->q, &p);

    p.out = d->p[7];
    p.dgamma = d->p[1];
    p.dout = d->p[2];
    p.sums = d->p[8];
    return rc | d->ops->norm_part_sums(d->q, &p) |
           d->ops->norm_part_backward(d->q, &p);
}

/* -- embedding {B, T, C, vocabulary, first, count, pos0} ---------------- */

static void setup_embedding(struct trial *t, const int *s)
{
    size_t N = product(s, 2), C = (size_t)s[2];
    int32_t *starts;

    real(t, N * C);
    trial_int(t, N, 0, s[3]);
    real(t, (size_t)s[5] * C);
    real(t, (size_t)(s[6] + s[1]) * C);
    real32(t, (size_t)s[5] * C);
    real32(t, (size_t)(s[6] + s[1]) * C);
    starts = trial_int(t, N, 0, 5); /* a document every five tokens */
    for (size_t i = 0; i < N; i++) {
        if (starts[i] == 0)
            starts[i] = s[6] + (int32_t)(i % (size_t)s[1]);
        else
            starts[i] = i % (size_t)s[1] ? starts[i - 1] : 0;
    }
}

static int call_embedding(struct trial_side *d, const int *s)
{
    struct plait_positions at = {.T = (size_t)s[1], .pos0 = s[6]};
    struct plait_embedding_forward forward = {.type = d->type,
                                              .out = d->p[0],
                                              .tokens = d->p[1],
                                              .wte = d->p[2],
                                              .wpe = d->p[3],
                                              .first = s[4],
                                              .count = s[5],
                                              .N = product(s, 2),
                                              .C = (size_t)s[2]};
    struct plait_embedding_backward backward = {.type = d->type,
                                                .dwte = d->p[4],
                                                .dwpe = d->p[5],
                                                .tokens = d->p[1],
                                                .dout = d->p[0],
                                                .first = s[4],
                                                .count = s[5],
                                                .at = at,
                                                .N = product(s, 2),
                                                .C = (size_t)s[2]};
    int rc = d->ops->embedding_backward(d->q, &backward);

    at.starts = d->p[6];
    forward.at = at;
    backward.at = at;
    return rc | d->ops->embedding_forward(d->q, &forward) |
           d->ops->embedding_backward(d->q, &backward);
}

/* -- loss {N, stride, first, count, vocabulary} ------------------------- */

static struct plait_xent xent_of(enum plait_dtype type, void *const *p,
                                 const int *s)
{
    return (struct plait_xent){.type = type,
                               .N = (size_t)s[0],
                               .stride = (size_t)s[1],
                               .first = s[2],
                               .count = s[3],
                               .logits = p[0],
                               .targets = p[1],
                               .max = p[2],
                               .sum = p[3],
                               .target = p[4],
                               .scale = 0.125f,
                               .loss = p[6]};
}

static void setup_xent(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], stride = (size_t)s[1];
    struct plait_xent x;
    int32_t *targets;
    void *p[7] = {NULL};

    p[0] = trial_real(t, KIND_T, N * stride, -6, 6);
    p[1] = targets = trial_int(t, N, 0, s[4]);
    p[2] = real32(t, N);
    p[3] = real32(t, N);
    p[4] = real32(t, N);
    trial_real(t, KIND_F32, N, 4, 7);
    trial_real(t, KIND_F64, 1, 0, 1);
    targets[N / 2] = -1;
    x = xent_of(t->type, p, s);
    t->ref->xent_stats(t->ref_queue, &x);
}

static int call_xent_stats(struct trial_side *d, const int *s)
{
    struct plait_xent x = xent_of(d->type, d->p, s);

    return d->ops->xent_stats(d->q, &x) |
           d->ops->xent_rescale(d->q, &x, d->p[5]);
}

static int call_xent_backward(struct trial_side *d, const int *s)
{
    struct plait_xent x = xent_of(d->type, d->p, s);

    return d->ops->xent_backward(d->q, &x);
}

/* Of logits that have been capped. */
static int call_xent_capped(struct trial_side *d, const int *s)
{
    struct plait_xent x = xent_of(d->type, d->p, s);

    x.cap = 6.5f;
    return d->ops->xent_backward(d->q, &x);
}

/* Loss and gradient of a whole vocabulary; by two ops if the device has no op
 * for both. */
static void setup_whole(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0];
    int32_t *targets;

    trial_real(t, KIND_T, N * (size_t)s[1], -6, 6);
    targets = trial_int(t, N, 0, s[4]);
    trial_real(t, KIND_F64, 1, 0, 1);
    targets[N / 2] = -1;
}

static int call_whole_capped(struct trial_side *d, const int *s, float cap)
{
    size_t N = (size_t)s[0];
    struct plait_xent x = {.type = d->type,
                           .N = N,
                           .stride = (size_t)s[1],
                           .count = s[3],
                           .logits = d->p[0],
                           .targets = d->p[1],
                           .scale = 0.125f,
                           .cap = cap,
                           .loss = d->p[2]};
    int rc;

    if (d->ops->xent != NULL)
        return d->ops->xent(d->q, &x);
    x.max = d->ops->alloc(d->dev, 3 * N * sizeof(*x.max));
    x.sum = x.max + N;
    x.target = x.sum + N;
    rc = x.max == NULL || d->ops->xent_stats(d->q, &x) ||
         d->ops->xent_backward(d->q, &x);
    d->ops->free(d->dev, x.max);
    return rc;
}

static int call_whole(struct trial_side *d, const int *s)
{
    return call_whole_capped(d, s, 0);
}

static int call_capped(struct trial_side *d, const int *s)
{
    return call_whole_capped(d, s, 6.5f);
}

const struct trial_case trial_layers[] = {
    {"norm of columns on several ranks",
     setup_norm_part,
     call_norm_part,
     {{1, 2}, {13, 47}, {33, 768}, {3, 8200}}},
    {"norm of heads",
     setup_head_norm,
     call_head_norm,
     {{1, 1, 2, 0}, {7, 3, 10, 3}, {33, 6, 64, 0}, {5, 2, 128, 40}}},
    {"gelu", setup_gelu, call_gelu, {{40, 1}, {37, 53}}},
    {"swiglu", setup_swiglu, call_swiglu, {{1, 1}, {37, 53}}},
    {"geglu", setup_swiglu, call_geglu, {{1, 1}, {37, 53}}},
    {"clamped swiglu", setup_clamped, call_clamped, {{1, 1}, {37, 53}}},
    {"layernorm_forward",
     setup_norm_forward,
     call_layernorm_forward,
     {{1, 2, 0},
      {13, 47, 1},
      {33, 768, 0},
      {9, 257, 1},
      {5, 1600, 1},
      {3, 8200, 1}}},
    {"layernorm_backward",
     setup_norm_backward,
     call_layernorm_backward,
     {{1, 5, 0, 1},
      {13, 47, 1, 1},
      {65, 768, 0, 1},
      {70, 257, 1, 1},
      {5, 1600, 1, 1},
      {3, 8200, 1, 1}}},
    {"rmsnorm_forward",
     setup_norm_forward,
     call_rmsnorm_forward,
     {{1, 2, 0},
      {13, 47, 1},
      {33, 768, 0},
      {9, 257, 1},
      {5, 1600, 1},
      {3, 8200, 1}}},
    {"rmsnorm_backward",
     setup_norm_backward,
     call_rmsnorm_backward,
     {{1, 2, 0, 0},
      {13, 47, 1, 0},
      {65, 768, 0, 0},
      {70, 257, 1, 0},
      {5, 1600, 1, 0},
      {3, 8200, 1, 0}}},
    {"embedding",
     setup_embedding,
     call_embedding,
     {{1, 1, 1, 3, 0, 3, 0},
      {3, 17, 45, 40, 0, 40, 0},
      {2, 33, 64, 100, 50, 25, 33},
      {2, 9, 16, 40, 40, 0, 0},
      {20, 37, 9, 300, 0, 250, 0}}},
    {"xent_stats",
     setup_xent,
     call_xent_stats,
     {{1, 2, 0, 2, 2}, {9, 300, 0, 257, 257}, {33, 1024, 500, 999, 1499}}},
    {"xent_backward",
     setup_xent,
     call_xent_backward,
     {{1, 2, 0, 2, 2}, {9, 300, 0, 257, 257}, {33, 1024, 0, 1000, 1000}}},
    {"xent_backward, capped",
     setup_xent,
     call_xent_capped,
     {{1, 2, 0, 2, 2}, {9, 300, 0, 257, 257}, {33, 1024, 500, 999, 1499}}},
    {"xent",
     setup_whole,
     call_whole,
     {{1, 2, 0, 2, 2}, {9, 300, 0, 257, 257}, {5, 9216, 0, 9000, 9000}}},
    {"xent, capped",
     setup_whole,
     call_capped,
     {{1, 2, 0, 2, 2}, {9, 300, 0, 257, 257}, {5, 9216, 0, 9000, 9000}}},
    {NULL, NULL, NULL, {{0}}},
};
