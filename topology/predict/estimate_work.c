/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/estimate_work.h"

#include <math.h>

#include "topology/plan/cost_layer.h"

/* The three products y = x W', dx = dy W and dW = dy' x: a pass is a third of
 * their time. */
static double pass_seconds(const struct plait_shape *s, struct plait_product p,
                           double rate, double element)
{
    const struct plait_product forward = p,
                               input = {p.rows, p.depth, p.columns, p.count},
                               weight = {p.depth, p.columns, p.rows, p.count};

    return (plait_cost_product(s->gpu, &forward, rate, element, s->element) +
            plait_cost_product(s->gpu, &input, rate, element, s->element) +
            plait_cost_product(s->gpu, &weight, rate, element, s->element)) /
           3;
}

/* Experts on this GPU; and below, the tokens that they get for each token of
 * this GPU's. */
double plait_work_experts(const struct plait_shape *s)
{
    double ranks = s->ep * (s->traits->whole_experts ? (double)s->tp : 1);

    return s->m->experts ? fmax(1, s->m->experts / ranks) : 0;
}

static double routed(const struct plait_shape *s)
{
    return s->m->experts_top_k / (s->traits->whole_experts ? (double)s->tp : 1);
}

static double split_columns(const struct plait_shape *s)
{
    return s->traits->whole_experts ? 1 : s->tp;
}

static double pass_of(const struct plait_shape *s, double rows, double columns,
                      double depth, double count)
{
    const struct plait_product p = {rows, columns, depth, count};
    enum plait_precision precision = s->c->train.precision;
    double element = precision == PLAIT_FP8 ? 1 : s->element;

    return rows > 0 && columns > 0 && depth > 0 && count > 0
               ? pass_seconds(s, p, plait_cost_rate(s->gpu, precision), element)
               : 0;
}

static double attention_products(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double h = m->hidden, head = plait_model_head_dim(m), t = s->tokens;
    double n = (double)m->heads / s->tp, q = n * plait_model_query_width(m);
    double kv = head * fmax(1, (double)m->kv_heads / s->tp);

    if (!m->mla_kv)
        return pass_of(s, t, head * n + 2 * kv, h, 1) +
               pass_of(s, t, h, head * n, 1);
    return pass_of(s, t, m->mla_q + m->mla_kv + m->mla_rope, h, 1) +
           pass_of(s, t, q, m->mla_q ? m->mla_q : h, 1) +
           pass_of(s, t, n * (m->mla_nope + m->mla_value), m->mla_kv, 1) +
           pass_of(s, t, h, n * m->mla_value, 1);
}

double plait_work_latent_up(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double n = (double)m->heads / s->tp;

    if (!m->mla_kv)
        return 0;
    return pass_of(s, s->tokens, n * plait_model_query_width(m),
                   m->mla_q ? m->mla_q : m->hidden, 1) +
           pass_of(s, s->tokens, n * (m->mla_nope + m->mla_value), m->mla_kv,
                   1);
}

static double mlp_products(const struct plait_shape *s, double rows, double ffn,
                           double count)
{
    double ups = s->m->family == PLAIT_GPT2 ? 1 : 2, h = s->m->hidden;

    return pass_of(s, rows, ups * ffn, h, count) +
           pass_of(s, rows, h, ffn, count);
}

double plait_work_latents(const struct plait_model_config *m)
{
    return m->mla_kv ? (double)m->hidden * (m->mla_q + m->mla_kv + m->mla_rope)
                     : 0;
}

/* Seconds of a layer's products, on average over those with experts and those
 * without. */
static double products(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double t = s->tokens, count = plait_work_experts(s), moe, dense;
    double share = plait_model_moe_share(m);

    dense = mlp_products(s, t, (double)plait_model_dense_ffn(m) / s->tp, 1);
    if (!m->experts)
        return attention_products(s) + dense;
    moe = mlp_products(s, t * routed(s) / count, m->ffn / split_columns(s),
                       count) +
          mlp_products(s, t, (double)m->shared_experts * m->ffn / s->tp, 1) +
          pass_of(s, t, m->experts, m->hidden, 1);
    return attention_products(s) + share * moe + (1 - share) * dense;
}

/* plait-train puts off no products of experts, and of latent attention none
 * (runtime/model/deferred.c); other trainers all of them. */
static double deferred_share(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double rows = m->experts ? 1 - plait_model_moe_share(m) : 1, put_off;

    if (s->c->framework != PLAIT_FRAMEWORK_PLAIT || (!m->experts && !m->mla_kv))
        return 1;
    put_off = rows * mlp_products(s, s->tokens,
                                  (double)plait_model_dense_ffn(m) / s->tp, 1);
    if (!m->mla_kv)
        put_off += attention_products(s);
    return put_off / products(s);
}

/* Exponentials per second: 16 a clock and multiprocessor at 1.5 GHz, on all of
 * NVIDIA's since Volta. */
#define EXPONENTIALS (16 * 1.5e9)
/* What Plait's own kernels reach of the peak: 12 to 25 % of a product by heads,
 * of which the middle is taken for all, and an H200 makes a product at 0.8 of
 * its peak (docs/measured-gpu.md). */
#define OWN_RATE (0.8 * (0.12 + 0.25) / 2)

/* Peak times rate of Plait's own kernels: those on tensor cores have heads of
 * 64 and 128 (kernels/cuda/attention_mma.cu), and the others compute in fp32,
 * at what is fitted for that at most. */
static double own_flops(const struct plait_shape *s)
{
    int head = plait_model_head_dim(s->m);
    double cores = s->peak * OWN_RATE;

    return head == 64 || head == 128
               ? cores
               : fmin(cores, s->gpu->flops32 * s->gpu->attention);
}

static bool is_hopper(const struct plait_gpu_type *g)
{
    return g->sm / 10 == 9;
}

/* m4/plait.m4 compiles for these. */
static bool has_kernels(const struct plait_gpu_type *g)
{
    return g->sm >= 80;
}

/* Scores of a window of `w` tokens between two chunks of `n`, the queries' `d`
 * chunks after the keys': none where the window hides all of them. */
static double chunk_scores(double n, double d, double w)
{
    double t = fmin(fmax(w - d * n, -n), n);

    return t > 0 ? n * n - (n - t) * (n - t) / 2 : (n + t) * (n + t) / 2;
}

/* The share of all scores that Plait's own kernels compute: those of layers
 * with model.attention_chunk and, in a ring, those between two of its 2 cp
 * chunks of which a window hides a part (kernels/cuda/cudnn.c: sees_all()). */
static double chunked_share(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double chunks = 2.0 * s->cp, n = m->seq_len / chunks, sum = 0;
    double w = m->sliding_window, all = plait_model_reach(m) * m->layers;
    int windowed = 0;

    for (int i = 0; i < m->layers; i++)
        sum += plait_model_chunked(m, i);
    if (sum > 0) /* none of which cuDNN computes */
        return sum * plait_model_chunk_share(m) / all;
    if (s->cp == 1)
        return 0;
    for (int i = 0; i < m->layers; i++)
        windowed += plait_model_windowed(m, i);
    for (int d = 1; windowed && d < chunks; d++)
        if (w < (d + 1) * n)
            sum += (chunks - d) * chunk_scores(n, d, w);
    return windowed * sum / (all * m->seq_len * m->seq_len / 2);
}

enum plait_attention_by plait_shape_attention_by(const struct plait_shape *s)
{
    if (s->c->framework != PLAIT_FRAMEWORK_PLAIT || !has_kernels(s->gpu) ||
        plait_is_image_model(s->m))
        return PLAIT_BY_FITTED;
    if (plait_model_own_attention(s->c))
        return PLAIT_BY_OWN;
    if (plait_model_head_dim(s->m) >= PLAIT_WIDE_HEAD && !is_hopper(s->gpu))
        return s->c->optim.qk_clip > 0 ? PLAIT_BY_OWN : PLAIT_BY_BOTH;
    if (s->c->optim.qk_clip > 0)
        return PLAIT_BY_PEAKS;
    return chunked_share(s) > 0 ? PLAIT_BY_CHUNKS : PLAIT_BY_CUDNN;
}

/* The share of attention's time that is own kernels'. */
static double own_share(const struct plait_shape *s)
{
    double share = chunked_share(s);

    switch (plait_shape_attention_by(s)) {
    case PLAIT_BY_OWN:
        return 1;
    case PLAIT_BY_BOTH: /* all of the backward */
        return 1 - (1 - share) * PLAIT_ATTENTION_FORWARD / 3;
    case PLAIT_BY_PEAKS: /* all of the forward */
        return share + (1 - share) * PLAIT_ATTENTION_FORWARD / 3;
    case PLAIT_BY_CHUNKS:
        return share;
    case PLAIT_BY_FITTED:
    case PLAIT_BY_CUDNN:
        break;
    }
    return 0;
}

/* plait-train fills heads of v up to the width of those of q and k. */
static double score_width(const struct plait_shape *s)
{
    return s->c->framework == PLAIT_FRAMEWORK_PLAIT
               ? plait_model_query_width(s->m)
               : plait_model_score_width(s->m);
}

/* Seconds of the scores that a causal mask leaves; blocks of 128 on the
 * diagonal are computed whole. Each takes two products as deep as a head is
 * wide, and an exponential, which does not get cheaper with narrow heads.
 * Forward takes two products, backward five. Unfused, all scores are
 * computed. */
static double attention(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    const struct plait_gpu_type *g = s->gpu;
    double seq = m->seq_len, width = score_width(s), seconds, own;
    double scores = s->tokens * seq * m->heads / s->tp;

    if (s->score_bytes > 0)
        return 4 * width * scores / (s->peak * g->matmul) *
               (1 + PLAIT_PRODUCT_FILL / width);
    scores *= (plait_model_reach(m) + 256 / seq) / 2;
    own = 3.5 / 3 * 4 * width * scores / own_flops(s);
    seconds =
        4 * width * scores / (s->c->fp8_attention ? s->linear_peak : s->peak);
    if (g->units)
        seconds += scores / (g->units * EXPONENTIALS);
    if (g->sm > 80) /* after the A100 */
        seconds /= s->traits->late_attention;
    seconds *= 3.5 / 3 / g->attention;
    if (s->element > 2)
        return seconds;
    return seconds + own_share(s) * fmax(0, own - seconds);
}

/* Bytes that the mlp's activation moves in a layer's forward, all tp ranks', on
 * average over the layers. */
static double activation_bytes(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double share = plait_model_moe_share(m);
    double values = (1 - share) * plait_model_dense_ffn(m) +
                    share * (m->experts_top_k + m->shared_experts) * m->ffn;

    return (m->family == PLAIT_GPT2 ? 4.0 : s->traits->gate_bytes) * values;
}

/* What is left of an expert's biases' traffic where products are fused with
 * them; fitted to the one fitted row of tests/records that has both. */
#define BIAS_LEFT (1.0 / 3)

/* Bytes that the elementwise kernels of a forward pass move in one layer: for
 * norms and residuals on the whole hidden state; for rotary embeddings or
 * transposes and the activation (4 a value of ffn, 6 with a gate) on a tp share
 * (framework.h: 6 a value of ffn with a gate, or 10); for scores that are not
 * fused, the product that writes them (2), softmax (4), dropout with its mask
 * (5) and the product that reads them (2). With experts, tokens are sorted and
 * put back (8 each), and biases are kernels of their own. Unfused, norms take
 * 8, residuals with dropout 14, transposes 12. */
static double elementwise_bytes(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double h = m->hidden, scale = s->element / 2;
    const struct plait_framework_traits *t = s->traits;
    int unfused = s->score_bytes > 0, gpt2 = m->family == PLAIT_GPT2;
    double whole = (unfused ? 22 : t->norm_bytes) * h;
    double split =
        unfused ? 12 * h : (gpt2 ? t->transpose_bytes : t->rotary_bytes) * h;
    double biased = m->mlp_bias ? t->bias_bytes : 0;

    if (s->c->fused_experts)
        biased *= BIAS_LEFT;
    if (s->sequence)
        whole /= s->tp;
    split += activation_bytes(s);
    if (m->experts)
        split += plait_model_moe_share(m) * m->experts_top_k *
                 (16 * h + biased * m->ffn);
    split += s->score_bytes * m->heads * m->seq_len;
    return scale * s->tokens * (whole + split / s->tp);
}

/* Of the norms and the activation, to compute them again. */
static double cheap_bytes(const struct plait_shape *s)
{
    double norms = s->traits->renorm_bytes * s->m->hidden;

    if (s->sequence)
        norms /= s->tp;
    return s->element / 2 * s->tokens * (norms + activation_bytes(s) / s->tp);
}

/* Weights of a layer's linears on this GPU, all of its experts' included, on
 * average over the layers. Each tp rank has whole matrices that make the
 * latents. */
static double linear_weights(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double share = plait_model_moe_share(m),
           experts = (double)m->experts / s->ep;
    double mlps =
        (1 - share) * plait_model_mlp(m, plait_model_dense_ffn(m)) +
        share * (experts + m->shared_experts) * plait_model_mlp(m, m->ffn);
    double whole = plait_work_latents(m);

    return whole + (plait_model_attention(m) - whole + mlps) / s->tp;
}

/* Values that the linears of attention read and write, and whose gradients they
 * read. */
static double attention_values(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double q = plait_model_query_width(m), v = plait_model_value_width(m);

    if (m->mla_kv)
        return 2.0 * (m->mla_q + m->mla_kv) +
               m->heads * (q + m->mla_nope + 2 * v) / s->tp;
    return 2 * q * (m->heads + m->kv_heads) / s->tp;
}

/* Values that the linears of an mlp of `ffn` columns read and write for a
 * token. */
static double mlp_values(const struct plait_model_config *m, double ffn)
{
    double ups = m->family == PLAIT_GPT2 ? 1 : 2;

    return 2.0 * m->hidden + (ups + 1) * ffn;
}

/* Bytes of rounding the operands of a layer's linears to fp8, two for each of
 * the products of three passes: x and w forward, dy and w, x and dy backward.
 * Inputs of column-parallel linears and outputs of row-parallel ones are whole
 * on each tp rank. Weights that stay are rounded by the update instead. On
 * average over the layers. */
static double rounding_bytes(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double share = plait_model_moe_share(m), values, weights, moe = 0;

    if (s->c->train.precision != PLAIT_FP8)
        return 0;
    if (m->experts && !s->c->fused_experts)
        moe = routed(s) * mlp_values(m, m->ffn / split_columns(s));
    moe += m->shared_experts * mlp_values(m, (double)m->ffn / s->tp);
    values =
        2.0 * m->hidden + attention_values(s) + share * moe +
        (1 - share) * mlp_values(m, (double)plait_model_dense_ffn(m) / s->tp);
    weights = plait_shape_keeps_codes(s) ? 0 : linear_weights(s);
    return 2.0 / 3 *
           (s->traits->round_bytes * s->tokens * values +
            (s->traits->round_bytes + s->traits->scan_bytes) * weights);
}

static double head_seconds(const struct plait_shape *s)
{
    const struct plait_product p = {s->tokens, (double)s->m->vocab / s->tp,
                                    s->m->hidden, 1};
    double bytes = s->score_bytes > 0 ? 52 : s->traits->logit_bytes;

    double rate = s->c->fp8_head
                      ? plait_cost_rate(s->gpu, s->c->train.precision)
                      : s->peak * s->gpu->matmul;

    return 3 * pass_seconds(s, p, rate, s->element) +
           s->tokens * s->m->vocab / s->tp * bytes * s->element / 2 /
               (s->gpu->memory_bw * s->gpu->stream);
}

double plait_work_fullest_weights(const struct plait_shape *s)
{
    const int ranks[] = {0, s->longest, s->pp - 1};
    double most = 0;

    if (plait_is_image_model(s->m))
        return fmax(plait_shape_rank_weights(s, 0),
                    plait_shape_rank_weights(s, s->pp - 1));
    for (int i = 0; i < 3; i++)
        most = fmax(most,
                    plait_shape_weights(s, plait_shape_layers(s, ranks[i]),
                                        ranks[i] == 0, ranks[i] == s->pp - 1));
    return most;
}

double plait_work_moved(const struct plait_shape *s)
{
    const struct plait_optim_config *c = &s->c->optim;

    if (s->c->framework != PLAIT_FRAMEWORK_PLAIT ||
        plait_optimizers[c->kind].uneven)
        return 28;
    return 4 + 2 * plait_optim_state_bytes(c) +
           (c->masters == PLAIT_MASTERS_FP32 ? 8 : 2);
}

/* Seconds of the optimizer, by the bytes it moves per weight: gradient to fp32
 * (6), unscale (8), norm (4), clip (8), plait_work_moved(), the weight from its
 * master (6; 2 where it has none); where fp8 codes are kept, it is read twice
 * and both orders of them are written (6). On CPUs the
 * gradient is fp32 and is scaled in passing: norm, Adam, and the weight where
 * it is not its own master. A CPU's memory_bw is the rate of just this work,
 * which no cache holds; `stream` is the share that other work reaches. */
static double update_seconds(const struct plait_shape *s)
{
    double weights = plait_shape_sharded(s, plait_work_fullest_weights(s));
    double moved = plait_work_moved(s);
    bool mastered = s->c->optim.masters == PLAIT_MASTERS_FP32;
    double bytes = weights * (26 + moved + (mastered ? 6 : 2));
    bool apart = s->element < 4 || plait_optim_is_averaged(&s->c->optim);

    if (s->gpu->cores > 0)
        return weights * (4 + moved + (apart ? s->element : 0)) /
               s->gpu->memory_bw;

    if (plait_shape_keeps_codes(s))
        bytes += 6 * linear_weights(s) * plait_shape_layers(s, s->longest);
    return bytes / (s->gpu->memory_bw * s->gpu->stream);
}

/* For an image model, whose blocks differ: on average. */
static void set_image(const struct plait_shape *s, struct plait_work_times *t)
{
    struct plait_image_cost layer, head;
    double rate = s->peak * s->gpu->matmul;

    plait_shape_image_work(s, &layer, &head);
    t->products = s->tokens * layer.flops / s->tp / rate;
    t->elementwise = s->tokens * layer.bytes / 3 / s->gpu->memory_bw;
    t->head = s->tokens * 3 * head.flops / s->tp / rate +
              s->tokens * head.bytes / s->gpu->memory_bw + 3 * t->launch;
}

/* All three passes of what predicts a token further: a layer as those of the
 * model are on average, what joins its inputs, and the head once more. */
static double mtp_seconds(const struct plait_shape *s,
                          const struct plait_work_times *t)
{
    double h = s->m->hidden;
    /* of a tp rank's own rows, and as the head never in fp8 */
    const struct plait_product join = {
        s->tokens / (s->sequence ? (double)s->tp : 1), h, 2 * h, 1};

    if (!s->m->mtp_layers)
        return 0;
    return 3 * (t->products + t->attention + t->elementwise + t->launch +
                pass_seconds(s, join, s->peak * s->gpu->matmul, s->element)) +
           head_seconds(s);
}

void plait_work_set(const struct plait_shape *s, struct plait_work_times *t)
{
    *t = (struct plait_work_times){.launch = s->gpu->layer_s};
    if (s->gpu->cores > 0 && s->gpu->threads < 2)
        t->launch = 0; /* no threads to start and to wait for */
    t->update = update_seconds(s);
    if (plait_is_image_model(s->m)) {
        set_image(s, t);
        return;
    }
    t->products = products(s);
    t->deferred = deferred_share(s);
    t->attention = attention(s);
    t->elementwise = (elementwise_bytes(s) + rounding_bytes(s)) /
                     (s->gpu->memory_bw * s->gpu->stream);
    t->cheap = cheap_bytes(s) / (s->gpu->memory_bw * s->gpu->stream);
    t->head = head_seconds(s) + mtp_seconds(s, t);
}
