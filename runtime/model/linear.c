/* SPDX-License-Identifier: Apache-2.0 */
/* The products of a layer in the run's precision: fp8 casts before a
 * product, gradients that are written by the first micro-batch and added to by
 * others, and the time that each part of the model takes. */
#include <math.h>

#include "runtime/model/experts.h"
#include "runtime/model/operand.h"
#include "topology/base/clock.h"

double plait_model_took(const struct plait_model *model,
                        enum plait_model_part part)
{
    return model->mesh->ops->gpu || plait_is_image_model(&model->config->model)
               ? NAN
               : model->state->took[part];
}

double plait_begin_part(const struct plait_work *w)
{
    return w->ops->gpu ? 0 : plait_clock_thread();
}

int plait_end_part(const struct plait_work *w, enum plait_model_part part,
                   double start, int rc)
{
    if (!w->ops->gpu)
        w->model->state->took[part] += plait_clock_thread() - start;
    return rc;
}

static int end_product(const struct plait_work *w, double start, int rc)
{
    return plait_end_part(w, PLAIT_MODEL_PRODUCTS, start, rc);
}

/* Small ops that layers and head share. */

int plait_scale_stream(const struct plait_work *w, void *x, double factor)
{
    if (factor == 1)
        return 0;
    return w->ops->scale(
        w->q, &(struct plait_scale){.type = w->type,
                                    .x = x,
                                    .s = (float)factor,
                                    .n = w->shape->n * w->d->hidden});
}

static enum plait_glu kind_of_gate(const struct plait_work *w)
{
    static const enum plait_glu kinds[] = {[PLAIT_GATE_SILU] = PLAIT_GLU_SILU,
                                           [PLAIT_GATE_GELU] = PLAIT_GLU_GELU,
                                           [PLAIT_GATE_CLAMPED] =
                                               PLAIT_GLU_CLAMPED};

    return kinds[w->model->config->model.gate];
}

int plait_swiglu_forward(const struct plait_work *w,
                         const struct plait_activations *a, size_t rows,
                         uint32_t *amax)
{
    return w->ops->swiglu_forward(
        w->q, &(struct plait_swiglu_forward){.type = w->type,
                                             .out = a->act,
                                             .inp = a->pre,
                                             .N = rows,
                                             .F = a->ffn,
                                             .kind = kind_of_gate(w),
                                             .amax = amax});
}

int plait_swiglu_backward(const struct plait_work *w,
                          const struct plait_activations *a, void *dpre,
                          const void *dact, size_t rows, uint32_t *amax)
{
    return w->ops->swiglu_backward(
        w->q, &(struct plait_swiglu_backward){.type = w->type,
                                              .dinp = dpre,
                                              .dout = dact,
                                              .inp = a->pre,
                                              .N = rows,
                                              .F = a->ffn,
                                              .kind = kind_of_gate(w),
                                              .amax = amax});
}

int plait_linear_forward(const struct plait_work *w,
                         const struct plait_matrix *matrix,
                         const struct plait_linear *l)
{
    double start = plait_begin_part(w);
    struct plait_linear product = *l;

    product.w = matrix->handle;
    return end_product(w, start,
                       w->fp8 ? w->ops->fp8_forward(w->q, &product)
                              : w->ops->linear_forward(w->q, &product));
}

int plait_linear_input(const struct plait_work *w,
                       const struct plait_matrix *matrix,
                       const struct plait_linear_dinp *l)
{
    double start = plait_begin_part(w);
    struct plait_linear_dinp product = *l;

    product.w = matrix->handle;
    return end_product(w, start,
                       w->fp8 ? w->ops->fp8_backward_input(w->q, &product)
                              : w->ops->linear_backward_input(w->q, &product));
}

/* Whether the gradient must be added to. The first product after
 * begin_gradient() gets false. */
static bool is_made(const struct plait_work *w,
                    const struct plait_matrix *matrix)
{
    bool *unmade = &w->model->state->unmade[matrix->product];
    bool made = !*unmade;

    *unmade = false;
    return made;
}

/* The product that makes the matrix's gradient, without operands. */
static struct plait_linear_dw gradient_of(const struct plait_work *w,
                                          const struct plait_matrix *matrix,
                                          size_t rows)
{
    return (struct plait_linear_dw){
        .type = w->type,
        .N = rows,
        .O = matrix->O,
        .C = matrix->C,
        .dw = plait_grad_at(w, matrix->region, matrix->offset)};
}

int plait_product_weight(const struct plait_work *w,
                         const struct plait_matrix *matrix, size_t bias,
                         const void *dout, const void *inp, size_t rows)
{
    struct plait_linear_dw l = gradient_of(w, matrix, rows);

    l.dout.x = dout;
    l.inp.x = inp;
    if (matrix->bias)
        l.dbias = plait_grad_at(w, matrix->region, bias);
    l.accumulate = is_made(w, matrix);
    return w->ops->linear_backward_weight(w->q, &l);
}

static int weight_of_rows(const struct plait_work *w,
                          const struct plait_matrix *matrix, size_t bias,
                          const struct plait_operand *dout,
                          const struct plait_operand *inp, size_t rows)
{
    struct plait_linear_dw l = gradient_of(w, matrix, rows);
    double start = plait_begin_part(w);

    l.dout = *dout;
    l.inp = *inp;
    if (matrix->bias)
        l.dbias = plait_grad_at(w, matrix->region, bias);
    l.accumulate = is_made(w, matrix);
    return end_product(w, start,
                       w->fp8 ? w->ops->fp8_backward_weight(w->q, &l)
                              : w->ops->linear_backward_weight(w->q, &l));
}

/* -- experts --------------------------------------------------------------- */

static const struct plait_matrix *matrix_of(const struct plait_block *b,
                                            bool up, int i)
{
    return up ? &b->experts[i].up : &b->experts[i].down;
}

static size_t bias_of(const struct plait_block *b, bool up, int i)
{
    return up ? b->experts[i].up_bias : b->experts[i].down_bias;
}

static struct plait_groups groups_of(const struct plait_work *w,
                                     const struct plait_block *b,
                                     const struct plait_routed *r, bool up)
{
    struct plait_groups g = {
        .n = w->d->experts / w->d->ep,
        .rows = plait_experts_rows(w, r),
        .count = r->count,
    };

    /* Regions repeat the same tensors for each expert. */
    if (g.n > 1)
        g.stride = matrix_of(b, up, 1)->offset - matrix_of(b, up, 0)->offset;
    return g;
}

/* In fp8 each expert is a separate product. */
struct part {
    const struct plait_matrix *matrix;
    size_t bias, row, rows;
};

/* The next expert from i on that has rows; -1: none. */
static int next_part(const struct plait_work *w, const struct plait_block *b,
                     const struct plait_routed *r, bool up, int i,
                     struct part *p)
{
    if (i == 0)
        p->row = p->rows = 0;
    p->row += p->rows;
    while (i < w->d->experts / w->d->ep && r->here[i] == 0)
        i++;
    if (i == w->d->experts / w->d->ep)
        return -1;
    p->matrix = matrix_of(b, up, i);
    p->bias = bias_of(b, up, i);
    p->rows = r->here[i];
    return i;
}

static void *row_of(const struct plait_work *w, const void *p, size_t row,
                    size_t cols)
{
    return p ? (char *)p + row * cols * plait_dtype_size(w->type) : NULL;
}

static struct plait_operand operand_of(const struct plait_work *w,
                                       const void *p, size_t row, size_t cols)
{
    return (struct plait_operand){.x = row_of(w, p, row, cols)};
}

/* The results of the tp ranks are summed: only one rank adds the bias of
 * `down`. */
static const void *forward_bias(const struct plait_work *w,
                                const struct plait_block *b, bool up, int i)
{
    if (!matrix_of(b, up, i)->bias || (!up && w->d->tp_rank > 0))
        return NULL;
    return plait_weight_at(w, b->expert_region, bias_of(b, up, i));
}

int plait_grouped_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_routed *r, bool up,
                          const struct plait_linear *l)
{
    struct plait_groups g = groups_of(w, b, r, up);
    struct plait_linear one = *l;
    struct part p;

    one.act = up && !w->d->gated ? PLAIT_ACT_GELU : PLAIT_ACT_NONE;
    if (!w->fp8) {
        double start = plait_begin_part(w);

        one.w = matrix_of(b, up, 0)->handle;
        one.bias = forward_bias(w, b, up, 0);
        return end_product(w, start, w->ops->grouped_forward(w->q, &g, &one));
    }
    for (int i = 0; (i = next_part(w, b, r, up, i, &p)) >= 0; i++) {
        one.N = p.rows;
        one.inp = operand_of(w, l->inp.x, p.row, p.matrix->C);
        one.bias = forward_bias(w, b, up, i);
        one.pre = row_of(w, l->pre, p.row, p.matrix->O);
        one.out = row_of(w, l->out, p.row, p.matrix->O);
        if (plait_linear_forward(w, p.matrix, &one) < 0)
            return -1;
    }
    return 0;
}

int plait_grouped_input(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_routed *r, bool up,
                        const struct plait_linear_dinp *l)
{
    struct plait_groups g = groups_of(w, b, r, up);
    struct plait_linear_dinp one = *l;
    struct part p;

    one.act = l->pre ? PLAIT_ACT_GELU : PLAIT_ACT_NONE;
    if (!w->fp8) {
        double start = plait_begin_part(w);

        one.w = matrix_of(b, up, 0)->handle;
        return end_product(w, start,
                           w->ops->grouped_backward_input(w->q, &g, &one));
    }
    for (int i = 0; (i = next_part(w, b, r, up, i, &p)) >= 0; i++) {
        one.N = p.rows;
        one.dout = operand_of(w, l->dout.x, p.row, p.matrix->O);
        one.pre = row_of(w, l->pre, p.row, p.matrix->C);
        one.dinp = row_of(w, l->dinp, p.row, p.matrix->C);
        if (plait_linear_input(w, p.matrix, &one) < 0)
            return -1;
    }
    return 0;
}

int plait_grouped_weight(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_routed *r, bool up,
                         const void *dout, const void *inp)
{
    const struct plait_matrix *first = matrix_of(b, up, 0);
    struct plait_groups g = groups_of(w, b, r, up);
    struct plait_linear_dw all = gradient_of(w, first, g.rows);
    double start = plait_begin_part(w);
    bool made = true;
    struct part p;

    for (int i = 0; w->fp8 && (i = next_part(w, b, r, up, i, &p)) >= 0; i++) {
        struct plait_operand dy = operand_of(w, dout, p.row, p.matrix->O);
        struct plait_operand x = operand_of(w, inp, p.row, p.matrix->C);

        if (weight_of_rows(w, p.matrix, p.bias, &dy, &x, p.rows) < 0)
            return -1;
    }
    if (w->fp8)
        return 0;
    for (int i = 0; i < g.n; i++) /* the product writes those of all experts */
        made = is_made(w, matrix_of(b, up, i)) && made;
    all.dout.x = dout;
    all.inp.x = inp;
    all.accumulate = made;
    if (first->bias)
        all.dbias = plait_grad_at(w, first->region, bias_of(b, up, 0));
    return end_product(w, start,
                       w->ops->grouped_backward_weight(w->q, &g, &all));
}

int plait_linear_weight(const struct plait_work *w,
                        const struct plait_matrix *matrix, size_t bias,
                        const struct plait_operand *dout,
                        const struct plait_operand *inp)
{
    return weight_of_rows(w, matrix, bias, dout, inp, w->shape->N);
}
