/* SPDX-License-Identifier: Apache-2.0 */
/* How the numbers of a model follow from its width and depth. */
#include "topology/job/mup.h"

#include <math.h>

double plait_mup_width(const struct plait_model_config *m)
{
    return m->mup ? (double)m->hidden / m->mup : 1;
}

double plait_mup_depth(const struct plait_model_config *m)
{
    return m->mup && m->mup_layers ? (double)m->layers / m->mup_layers : 1;
}

/* Scores are sums over a head's columns, of which all grow alike once q and k
 * have learned: 1 / head_dim, times what makes it the usual at the base. */
double plait_mup_attention(const struct plait_model_config *m)
{
    double columns = plait_model_head_dim(m), base = m->mup_head_dim;

    if (!m->mup || !m->mup_head_dim || base == columns)
        return m->attention_multiplier;
    return m->attention_multiplier > 0
               ? m->attention_multiplier * base / columns
               : sqrt(base) / columns;
}

double plait_mup_residual(const struct plait_model_config *m)
{
    return plait_model_factor(m->residual_multiplier) / plait_mup_depth(m);
}

double plait_mup_logits(const struct plait_model_config *m)
{
    return plait_model_factor(m->logits_scaling) * plait_mup_width(m);
}

void plait_mup_resolve(struct plait_model_config *m)
{
    double attention = plait_mup_attention(m);
    double residual = plait_mup_residual(m), logits = plait_mup_logits(m);

    m->attention_multiplier = attention;
    m->residual_multiplier = residual;
    m->logits_scaling = logits;
    m->mup = m->mup_layers = m->mup_head_dim = 0;
}

/* Matrices from hidden columns to hidden columns. A router goes from these to a
 * number of experts that does not grow, as the head does to tokens; its scores
 * are multiplied by way of its weights, whose gradients then are as large as at
 * the base, as those of its biases are. Those of others shrink with the logits'
 * factor; all of a layer's do with the factor of what the layer adds. */
struct plait_mup_scale plait_mup_scale(const struct plait_model_config *m,
                                       const struct plait_tensor_row *row)
{
    double width = plait_mup_width(m), depth = plait_mup_depth(m);
    bool layer =
        row->kind == PLAIT_KIND_LAYER || row->kind == PLAIT_KIND_EXPERT;
    struct plait_mup_scale s = {1, 1, 1 / width};

    if (plait_tensor_is_linear(row)) {
        s.init = 1 / sqrt(width);
        s.rate = 1 / width;
    } else if (row->role == PLAIT_ROLE_ROUTER) {
        s.init = s.rate = 1 / width;
        s.eps = 1;
    } else if (row->role == PLAIT_ROLE_ROUTER_BIAS) {
        s.eps = 1;
    }
    /* Usually smaller with the depth, for which there is a factor now. */
    if (row->role == PLAIT_ROLE_RESIDUAL)
        s.init *= sqrt(depth);
    if (layer)
        s.eps /= depth;
    return s;
}
