/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "topology/predict/estimate_shape.h"

/* What an optimizer holds that does not keep the same of every weight:
 * runtime/optim (muon.c, adafactor.c, whole.c, orthogonal.c). */

#define WIDE 1048576.0 /* numbers made fp32 at a time */

static double gated(const struct plait_shape *s)
{
    return s->m->family == PLAIT_LLAMA ? 2 : 1;
}

static double q_width(const struct plait_shape *s)
{
    return (double)plait_model_head_dim(s->m) * s->m->heads;
}

static double kv_width(const struct plait_shape *s)
{
    return (double)plait_model_head_dim(s->m) * s->m->kv_heads;
}

/* Weights of a layer's matrices: outside of experts, and one expert's. */
static double dense_weights(const struct plait_shape *s)
{
    double h = s->m->hidden, mlp = (gated(s) + 1) * s->m->ffn * h;

    return 2 * (q_width(s) + kv_width(s)) * h +
           (s->m->experts ? s->m->experts * h * s->tp : mlp);
}

static double expert_weights(const struct plait_shape *s)
{
    return s->m->experts ? (gated(s) + 1) * s->m->ffn * (double)s->m->hidden
                         : 0;
}

/* Ranks that share a dense weight's state, besides tp's. */
static double sharing(const struct plait_shape *s)
{
    return s->c->parallel.zero ? (double)s->dp * s->cp : 1;
}

static double matrix_weights(const struct plait_shape *s)
{
    double experts = (double)s->m->experts / s->ep * expert_weights(s) /
                     fmax(sharing(s) / s->ep, 1);

    return (dense_weights(s) / sharing(s) + experts) / s->tp;
}

/* Rows and columns, of each matrix of a layer, and of those around. */
static double layer_sides(const struct plait_shape *s)
{
    double h = s->m->hidden, experts = s->m->experts / s->ep;
    double mlp = (gated(s) + 1) * (s->m->ffn + h);

    return 2 * (q_width(s) + h) + 2 * (kv_width(s) + h) +
           (s->m->experts ? s->m->experts + h + experts * mlp : mlp);
}

static double table_sides(const struct plait_shape *s, int embedding, int head)
{
    double h = s->m->hidden, table = s->m->vocab + h, sum = 0;

    if (embedding)
        sum += table + (s->m->family == PLAIT_GPT2 ? s->m->seq_len + h : 0);
    if (head && !(s->m->tie_embeddings && s->pp == 1))
        sum += table;
    return sum;
}

/* Muon's matrices on their way, and the products. */
static double work_bytes(const struct plait_shape *s)
{
    double h = s->m->hidden, side = fmin(h, s->m->ffn);
    double largest = h * fmax(q_width(s), s->m->ffn);
    double matrices = 1 + (s->tp > 1 ? 2 : sharing(s) > 1 || s->element < 4);
    double sum = s->element * (matrices * largest + 2 * side * side);

    return sum + (s->element < 4 ? 4 * fmax(WIDE, side * side) : 0);
}

double plait_shape_uneven_bytes(const struct plait_shape *s, int layers,
                                int embedding, int head)
{
    const struct plait_optim_config *c = &s->c->optim;
    const struct plait_optimizer *o = &plait_optimizers[c->kind];

    if (!o->uneven)
        return 0;
    if (c->kind == PLAIT_OPTIM_ADAFACTOR)
        return 8 * (layers * layer_sides(s) + table_sides(s, embedding, head));
    return (o->matrix - o->bytes) * layers * matrix_weights(s) + work_bytes(s);
}
