/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "topology/predict/estimate_work.h"

/* Memory of a rank with other software: what it keeps, not allocation by
 * allocation. Bytes, elements of 16 bits unless said otherwise. */

/* Values of one layer and token on this GPU. */
struct widths {
    double hidden;             /* split over tp with sequence parallelism */
    double q, kv, ffn, routed; /* routed: tokens of experts for each token */
    double out;                /* of attention */
};

static void set_widths(const struct plait_shape *s, struct widths *w)
{
    const struct plait_model_config *m = s->m;
    double head = plait_model_head_dim(m), tp = s->tp;

    w->hidden = m->hidden / (s->sequence ? tp : 1);
    w->q = head * m->heads / tp;
    w->kv = head * fmax(1, m->kv_heads / tp);
    w->out = w->q;
    if (m->mla_kv) {
        double q = plait_model_query_width(m), v = plait_model_value_width(m);

        w->q = q * m->heads / tp + m->mla_q + m->mla_kv + m->mla_rope;
        w->kv = (q + v) / 2 * m->heads / tp;
        w->out = v * m->heads / tp;
    }
    w->routed = m->experts ? m->experts_top_k : 1;
    if (s->worst && m->experts)
        w->routed = fmin(w->routed, plait_work_experts(s)) * s->ep *
                    (s->traits->whole_experts ? (double)s->tp : 1);
    w->ffn = m->ffn / tp;
}

/* Bytes of an operand that backward multiplies again. */
static double operand(const struct plait_shape *s)
{
    return s->c->train.precision == PLAIT_FP8 ? s->traits->code_bytes
                                              : s->element;
}

/* What backward needs of a layer, for each token: inputs of two norms and of
 * the linears, q, k and v, attention's output and its sums, and what the
 * activation works on. */
static double layer_bytes(const struct plait_shape *s)
{
    double e = s->element, c = operand(s);
    struct widths w;
    double ups = s->m->family == PLAIT_GPT2 ? 1 : 2, mlp, sum;

    set_widths(s, &w);
    mlp = (w.routed + s->m->shared_experts) * (ups * e + c) * w.ffn +
          c * w.hidden;
    if (s->m->experts) /* tokens as the experts have them, and their weights */
        mlp += w.routed * (c + e) * s->m->hidden / s->tp + 8 * w.routed;
    mlp += s->traits->score_kept * s->m->heads / s->tp * s->m->seq_len;
    sum = 2 * e * w.hidden + c * w.hidden + e * (w.q + 2 * w.kv) + e * w.out +
          4.0 * s->m->heads / s->tp;
    return sum + mlp;
}

/* The part of layer_bytes() that recompute of single modules saves: the inputs
 * of the first linears, which the norms make from the hidden state; the output
 * of the experts' activation; queries, keys and values, of which the latents
 * are kept. */
static double module_bytes(const struct plait_shape *s)
{
    unsigned modules = s->c->recompute_modules;
    const struct plait_model_config *m = s->m;
    double e = s->element, c = operand(s), sum = 0;
    struct widths w;

    set_widths(s, &w);
    if (modules & PLAIT_MODULE_LAYERNORM)
        sum += 2 * c * w.hidden;
    if (modules & PLAIT_MODULE_MOE_ACT && m->experts)
        sum += c * w.routed * w.ffn;
    if (modules & PLAIT_MODULE_MLA_UP && m->mla_kv)
        sum += e * ((double)plait_model_query_width(m) * m->heads / s->tp +
                    2 * w.kv);
    return sum;
}

static double kept_bytes(const struct plait_shape *s)
{
    double input = s->element * s->m->hidden / (s->sequence ? s->tp : 1);
    double share = plait_shape_recomputed(s), full = layer_bytes(s), less;
    double scores =
        s->element * plait_model_value_width(s->m) * s->m->heads / s->tp;

    switch (s->c->parallel.recompute) {
    case PLAIT_RECOMPUTE_FULL:
        less = full - input;
        break;
    case PLAIT_RECOMPUTE_SELECTIVE:
        less = scores +
               s->traits->score_kept * s->m->heads / s->tp * s->m->seq_len;
        break;
    default:
        less = 0;
    }
    if (s->c->parallel.recompute != PLAIT_RECOMPUTE_FULL)
        full -= module_bytes(s);
    return full - share * less;
}

/* The share of layers whose activations are offloaded to the host. */
static double away_share(const struct plait_shape *s)
{
    int layers = s->c->parallel.offload_layers;

    if (!(s->c->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS))
        return 0;
    return layers && layers < s->m->layers ? (double)layers / s->m->layers : 1;
}

double plait_shape_foreign_offloaded(const struct plait_shape *s)
{
    return away_share(s) * s->tokens * kept_bytes(s);
}

static double activations(const struct plait_shape *s, int rank,
                          struct plait_memory *memory)
{
    const struct plait_schedule_form form = plait_shape_schedule(s);
    double held = plait_schedule_held(&form, rank);
    double layers = (double)plait_shape_layers(s, rank) / s->v;
    double kept = held * layers * s->tokens * kept_bytes(s);
    double away = held * layers * plait_shape_foreign_offloaded(s), sum;

    memory->host += away;
    sum = kept - away;
    if (s->c->parallel.recompute == PLAIT_RECOMPUTE_FULL || away > 0)
        sum += s->tokens * layer_bytes(s);
    if (rank == s->pp - 1)
        sum += s->tokens * s->m->vocab / s->tp * s->traits->logit_kept;
    return sum;
}

/* Weights that ZeRO 3 has gathered: of the layer at work and the two that come
 * next, its gradients, and of the embedding or the head. */
static double gathered(const struct plait_shape *s, double layer, double ends)
{
    double e = s->c->train.precision == PLAIT_FP8 && s->traits->gathers_codes
                   ? 1
                   : s->element;

    return (3 * e + 2 * s->element) * layer + s->element * ends;
}

void plait_shape_foreign_memory(const struct plait_shape *s, int rank,
                                struct plait_memory *m)
{
    const struct plait_framework_traits *t = s->traits;
    int layers = plait_shape_layers(s, rank), zero = s->c->parallel.zero;
    double moments = 2 * plait_optim_state_size(&s->c->optim);
    double all = plait_shape_rank_weights(s, rank);
    double part = plait_shape_sharded(s, all);
    double layer = plait_shape_weights(s, 1, 0, 0);
    double ends = fmax(0, all - layers * layer), gradient;

    *m = (struct plait_memory){0};
    gradient = s->c->parallel.grad_reduce == PLAIT_GRAD_BF16 ? 2 : 4;
    if (t->master && zero == 3) {
        m->weights = t->master * part;
        m->gradients = t->master * part;
        m->optimizer = moments * part;
    } else {
        m->weights = s->element * (zero == 3 ? part : all);
        m->gradients = gradient * (zero >= 2 ? part : all);
        m->optimizer = (4 + moments) * part;
    }
    m->activations = activations(s, rank, m);
    m->buffers = t->reserve;
    if (zero == 3)
        m->buffers += gathered(s, layer, ends);
    if (s->pp > 1)
        m->buffers += 4 * s->element * s->tokens * s->m->hidden /
                      (s->sequence ? s->tp : 1);
    m->buffers += t->headroom * (m->weights + m->gradients + m->optimizer +
                                 m->activations + m->buffers);
    m->total =
        m->weights + m->gradients + m->optimizer + m->activations + m->buffers;
    m->expected = m->worst = m->total;
    if (s->m->experts && !s->worst) {
        struct plait_shape worst = *s;
        struct plait_memory most;

        worst.worst = true;
        plait_shape_foreign_memory(&worst, rank, &most);
        m->worst = most.total;
    }
}
