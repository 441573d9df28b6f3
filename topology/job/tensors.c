/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/tensors.h"

#include <string.h>

#include "topology/job/model_size.h"

#define ROW(kind, member, name, rows, cols, role, when)       \
    {PLAIT_KIND_##kind, #member,           name,              \
     PLAIT_SIDE_##rows, PLAIT_SIDE_##cols, PLAIT_ROLE_##role, \
     PLAIT_HAS_##when},

const struct plait_tensor_row plait_tensor_table[] = {PLAIT_TENSOR_TABLE(ROW)};

/* -- sides ----------------------------------------------------------------- */

static unsigned features(const struct plait_model_config *c, bool one_stage)
{
    unsigned has = PLAIT_HAS_ALWAYS;

    if (!c->mla_kv)
        has |= PLAIT_HAS_HEADS;
    else
        has |= PLAIT_HAS_LATENT |
               (c->mla_q ? PLAIT_HAS_Q_LATENT : PLAIT_HAS_Q_DIRECT);
    if (c->family == PLAIT_GPT2)
        has |= PLAIT_HAS_BIASES | PLAIT_HAS_MLP_BIASES | PLAIT_HAS_QKV_BIAS |
               PLAIT_HAS_OUT_BIAS | PLAIT_HAS_POSITIONS;
    else
        has |= PLAIT_HAS_GATE;
    if (c->attention_bias != PLAIT_BIAS_NONE)
        has |= PLAIT_HAS_QKV_BIAS;
    if (c->attention_bias == PLAIT_BIAS_ALL)
        has |= PLAIT_HAS_OUT_BIAS;
    if (c->qk_norm)
        has |= c->qk_norm_whole ? PLAIT_HAS_QK_WHOLE : PLAIT_HAS_QK_NORM;
    if (c->mlp_bias)
        has |= PLAIT_HAS_MLP_BIASES | PLAIT_HAS_GATE_BIAS |
               (c->experts ? PLAIT_HAS_ROUTER_OFFSET : 0);
    if (c->attention_sinks)
        has |= PLAIT_HAS_SINKS;
    if (c->norm_place != PLAIT_NORMS_AFTER)
        has |= PLAIT_HAS_NORMS_BEFORE;
    if (c->norm_place != PLAIT_NORMS_BEFORE)
        has |= PLAIT_HAS_NORMS_AFTER;
    if (c->experts)
        has |= PLAIT_HAS_EXPERTS;
    if (c->experts && c->experts_scores == PLAIT_SCORES_SIGMOID)
        has |= PLAIT_HAS_BALANCE;
    if (plait_model_counts_loads(c))
        has |= PLAIT_HAS_LOAD;
    if (c->experts && c->shared_experts)
        has |= PLAIT_HAS_SHARED |
               (c->family == PLAIT_LLAMA ? PLAIT_HAS_SHARED_GATE : 0);
    if (!c->tie_embeddings && !one_stage)
        has |= PLAIT_HAS_TABLE_APART;
    if (c->tie_embeddings && one_stage)
        return has | PLAIT_HAS_TIED_HERE;
    return has | PLAIT_HAS_OWN_HEAD |
           (c->tie_embeddings ? PLAIT_HAS_TIED_APART : PLAIT_HAS_UNTIED);
}

/* What latent attention has beside the other sides, where h heads are here. */
static void set_latent(struct plait_sides *z,
                       const struct plait_model_config *c, size_t h, size_t r)
{
    size_t all = (size_t)c->heads, rotary = (size_t)c->mla_rope;
    size_t k = (size_t)c->mla_nope, v = (size_t)c->mla_value;
    size_t q_latent = (size_t)c->mla_q, kv_latent = (size_t)c->mla_kv;

    z->at[PLAIT_SIDE_Q_LATENT] =
        (struct plait_side_length){q_latent, q_latent, 0, 0};
    z->at[PLAIT_SIDE_KV_LATENT] =
        (struct plait_side_length){kv_latent, kv_latent, 0, 0};
    z->at[PLAIT_SIDE_ROTARY] = (struct plait_side_length){rotary, rotary, 0, 0};
    z->at[PLAIT_SIDE_UNTURNED] =
        (struct plait_side_length){all * k, h * k, r * h * k, 1};
    z->at[PLAIT_SIDE_VALUES] =
        (struct plait_side_length){all * v, h * v, r * h * v, 1};
}

void plait_sides_set(struct plait_sides *z, const struct plait_model_config *c,
                     int tp, int tp_rank, bool one_stage)
{
    size_t r = (size_t)tp_rank, D = (size_t)plait_model_head_dim(c);
    size_t h = (size_t)(c->heads / tp), q = h * D, f = (size_t)(c->ffn / tp);
    int copies = c->kv_heads < tp ? tp / c->kv_heads : 1;
    size_t k = (size_t)(copies > 1 ? 1 : c->kv_heads / tp) * D;
    /* in equal parts, of which the last ones may be padding */
    size_t v =
        plait_region_align(((size_t)c->vocab + (size_t)tp - 1) / (size_t)tp);
    size_t C = (size_t)c->hidden, E = (size_t)c->experts;
    size_t T = (size_t)c->seq_len, s = f * (size_t)c->shared_experts;

    *z = (struct plait_sides){
        .has = features(c, one_stage),
        .at = {[PLAIT_SIDE_ONE] = {1, 1, 0, 0},
               [PLAIT_SIDE_HIDDEN] = {C, C, 0, 0},
               [PLAIT_SIDE_JOINED] = {2 * C, 2 * C, 0, 0},
               [PLAIT_SIDE_HEAD] = {D, D, 0, 0},
               [PLAIT_SIDE_QUERIES] = {(size_t)c->heads * D, q, r * q, 1},
               [PLAIT_SIDE_KEYS] = {(size_t)c->kv_heads * D, k,
                                    r / (size_t)copies * k, copies},
               [PLAIT_SIDE_HEADS] = {(size_t)c->heads, h, r * h, 1},
               [PLAIT_SIDE_FFN] = {(size_t)c->ffn, f, r * f, 1},
               [PLAIT_SIDE_SHARED] = {s * (size_t)tp, s, r * s, 1},
               [PLAIT_SIDE_EXPERTS] = {E, E, 0, 0},
               [PLAIT_SIDE_VOCAB] = {(size_t)c->vocab, v, r * v, 1},
               [PLAIT_SIDE_POSITIONS] = {T, T, 0, 0}}};
    set_latent(z, c, h, r);
}

void plait_sides_dense(struct plait_sides *z,
                       const struct plait_model_config *c, int tp, int tp_rank)
{
    size_t F = (size_t)plait_model_dense_ffn(c), f = F / (size_t)tp;

    z->has &= ~(unsigned)(PLAIT_HAS_EXPERTS | PLAIT_HAS_SHARED |
                          PLAIT_HAS_SHARED_GATE | PLAIT_HAS_BALANCE |
                          PLAIT_HAS_LOAD | PLAIT_HAS_ROUTER_OFFSET);
    z->at[PLAIT_SIDE_FFN] =
        (struct plait_side_length){F, f, (size_t)tp_rank * f, 1};
}

/* -- rows ------------------------------------------------------------------ */

const struct plait_tensor_row *
plait_tensor_next(const struct plait_sides *z, enum plait_region_kind kind,
                  const struct plait_tensor_row *before)
{
    const struct plait_tensor_row *row =
        before ? before + 1 : plait_tensor_table;
    bool dense = kind == PLAIT_KIND_LAYER && !(z->has & PLAIT_HAS_EXPERTS);

    for (; row < plait_tensor_table + PLAIT_TENSOR_ROWS; row++)
        if ((row->kind == kind || (dense && row->kind == PLAIT_KIND_EXPERT)) &&
            (row->when & z->has))
            return row;
    return NULL;
}

bool plait_tensor_joins(const struct plait_tensor_row *row,
                        const struct plait_tensor_row *before)
{
    return before && before->kind == row->kind &&
           strcmp(before->member, row->member) == 0;
}

int plait_tensor_axis(const struct plait_sides *z,
                      const struct plait_tensor_row *row)
{
    if (z->at[row->rows].copies)
        return 0;
    return z->at[row->cols].copies ? 1 : -1;
}

/* -- sums ------------------------------------------------------------------ */

double plait_tensors_elements(const struct plait_sides *z,
                              enum plait_region_kind kind)
{
    const struct plait_tensor_row *row = NULL, *before = NULL;
    size_t at = 0;

    for (; (row = plait_tensor_next(z, kind, before)); before = row) {
        if (!plait_tensor_joins(row, before))
            at = plait_region_align(at);
        at += z->at[row->rows].here * z->at[row->cols].here;
    }
    return (double)plait_region_align(at);
}

double plait_tensors_weights(const struct plait_sides *z,
                             enum plait_region_kind kind)
{
    const struct plait_tensor_row *row = NULL;
    double sum = 0;

    while ((row = plait_tensor_next(z, kind, row)))
        sum += plait_tensor_weights(z, row);
    return sum;
}
