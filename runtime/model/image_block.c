/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear.h"
#include "runtime/model/image.h"

/* The blocks of image models, forward and backward. */

/* -- stem and residual blocks
 * -------------------------------------------------- */

static struct plait_conv pool_of(const struct plait_image_work *w,
                                 const struct plait_image_block *b)
{
    struct plait_conv c = b->pool;

    c.N = w->slot->N;
    return c;
}

/* The chain of units; the last one adds the shortcut. */
static int chain_forward(const struct plait_image_work *w,
                         const struct plait_image_block *b,
                         const struct plait_image_kept *kept)
{
    const float *x = kept->x, *shortcut = NULL;

    if (b->kind == PLAIT_IMAGE_RESIDUAL)
        shortcut = x;
    if (b->projected) {
        if (plait_unit_forward(w, &b->unit[PLAIT_IMAGE_SHORTCUT],
                               &kept->unit[PLAIT_IMAGE_SHORTCUT], x, NULL,
                               false) < 0)
            return -1;
        shortcut = kept->unit[PLAIT_IMAGE_SHORTCUT].post;
    }
    for (int i = 0; i < b->nunits; i++) {
        if (plait_unit_forward(w, &b->unit[i], &kept->unit[i], x,
                               i == b->nunits - 1 ? shortcut : NULL, true) < 0)
            return -1;
        x = kept->unit[i].post;
    }
    return 0;
}

static int stem_forward(const struct plait_image_work *w,
                        const struct plait_image_block *b,
                        const struct plait_image_kept *kept)
{
    struct plait_conv pool = pool_of(w, b);
    struct plait_conv_arrays a = {.inp = kept->unit[0].post, .out = kept->out};

    if (chain_forward(w, b, kept) < 0)
        return -1;
    return b->pooled ? w->ops->image->maxpool_forward(w->q, &pool, &a) : 0;
}

static int stem_backward(const struct plait_image_work *w,
                         const struct plait_image_block *b,
                         const struct plait_image_kept *kept)
{
    struct plait_conv pool = pool_of(w, b);
    const float *dout = w->s->grad;
    struct plait_conv_arrays a = {
        .inp = kept->unit[0].post, .dout = dout, .dinp = w->s->spare};

    if (b->pooled) {
        if (w->ops->image->maxpool_backward(w->q, &pool, &a) < 0)
            return -1;
        dout = w->s->spare;
    }
    return plait_unit_backward(w, &b->unit[0], &kept->unit[0],
                               &(struct plait_unit_backward){
                                   .x = kept->x, .dout = dout, .relu = true});
}

static int residual_backward(const struct plait_image_work *w,
                             const struct plait_image_block *b,
                             const struct plait_image_kept *kept)
{
    float *dx = w->s->grad, *shortcut = w->s->spare;
    struct plait_unit_backward chain = {.dout = dx, .dx = dx, .relu = true};
    struct plait_unit_backward side = {
        .x = kept->x, .dout = shortcut, .dx = shortcut};

    for (int i = b->nunits - 1; i >= 0; i--) {
        chain.x = i > 0 ? kept->unit[i - 1].post : kept->x;
        chain.dresidual = i == b->nunits - 1 ? shortcut : NULL;
        if (plait_unit_backward(w, &b->unit[i], &kept->unit[i], &chain) < 0)
            return -1;
    }
    if (b->projected &&
        plait_unit_backward(w, &b->unit[PLAIT_IMAGE_SHORTCUT],
                            &kept->unit[PLAIT_IMAGE_SHORTCUT], &side) < 0)
        return -1;
    return w->ops->add(w->q, &(struct plait_add){.type = PLAIT_F32,
                                                 .out = dx,
                                                 .a = dx,
                                                 .b = shortcut,
                                                 .n = w->slot->N * b->in});
}

/* -- linear layers
 * --------------------------------------------------------------- */

static int matrix_weight(const struct plait_image_work *w,
                         const struct plait_image_block *b, const float *dout,
                         const float *x)
{
    const struct plait_matrix *m = &b->matrix;
    bool *unmade = &w->model->state->unmade[m->product];
    struct plait_linear_dw l = {.type = PLAIT_F32,
                                .N = w->slot->N,
                                .O = m->O,
                                .C = m->C,
                                .dout.x = dout,
                                .inp.x = x,
                                .dw = plait_image_grad(w, m->offset),
                                .dbias = plait_image_grad(w, b->bias),
                                .accumulate = !*unmade};

    *unmade = false;
    return w->ops->linear_backward_weight(w->q, &l);
}

static int matrix_forward(const struct plait_image_work *w,
                          const struct plait_image_block *b, float *out,
                          const float *x)
{
    struct plait_linear l = {.N = w->slot->N,
                             .inp.x = x,
                             .w = b->matrix.handle,
                             .bias = plait_image_weight(w, b->bias),
                             .out = out};

    return w->ops->linear_forward(w->q, &l);
}

static int matrix_input(const struct plait_image_work *w,
                        const struct plait_image_block *b, float *dx,
                        const float *dout)
{
    struct plait_linear_dinp l = {
        .N = w->slot->N, .dout.x = dout, .w = b->matrix.handle, .dinp = dx};

    return w->ops->linear_backward_input(w->q, &l);
}

static int dense_forward(const struct plait_image_work *w,
                         const struct plait_image_block *b,
                         const struct plait_image_kept *kept)
{
    if (matrix_forward(w, b, kept->out, kept->x) < 0)
        return -1;
    return w->ops->image->relu(w->q, kept->out, w->slot->N * b->out);
}

static int dense_backward(const struct plait_image_work *w,
                          const struct plait_image_block *b,
                          const struct plait_image_kept *kept)
{
    float *dx = w->s->grad;

    if (w->ops->image->relu_backward(w->q, dx, kept->out, w->slot->N * b->out) <
            0 ||
        matrix_weight(w, b, dx, kept->x) < 0)
        return -1;
    if (b->first)
        return 0;
    if (matrix_input(w, b, w->s->spare, dx) < 0)
        return -1;
    w->s->grad = w->s->spare;
    w->s->spare = dx;
    return 0;
}

int plait_image_block_forward(const struct plait_image_work *w,
                              const struct plait_image_block *b,
                              const struct plait_image_kept *kept)
{
    if (b->kind == PLAIT_IMAGE_STEM)
        return stem_forward(w, b, kept);
    if (b->kind == PLAIT_IMAGE_RESIDUAL)
        return chain_forward(w, b, kept);
    return dense_forward(w, b, kept);
}

int plait_image_block_backward(const struct plait_image_work *w,
                               const struct plait_image_block *b,
                               const struct plait_image_kept *kept)
{
    if (b->kind == PLAIT_IMAGE_STEM)
        return stem_backward(w, b, kept);
    if (b->kind == PLAIT_IMAGE_RESIDUAL)
        return residual_backward(w, b, kept);
    return dense_backward(w, b, kept);
}

/* -- head
 * ------------------------------------------------------------------------- */

/* The mean of the head's input over each image. */
static struct plait_avgpool mean_of(const struct plait_image_work *w,
                                    const struct plait_image_block *b)
{
    return (struct plait_avgpool){w->slot->N, b->rows, b->matrix.C};
}

static int head_backward(const struct plait_image_work *w,
                         const struct plait_image_block *b, const float *x)
{
    bool pooled = b->rows > 1;
    struct plait_avgpool pool = mean_of(w, b);

    if (matrix_weight(w, b, w->s->logits, x) < 0)
        return -1;
    if (b->first)
        return 0;
    if (matrix_input(w, b, pooled ? w->s->dpooled : w->slot->dhead,
                     w->s->logits) < 0)
        return -1;
    return pooled ? w->ops->image->avgpool_backward(w->q, &pool, w->slot->dhead,
                                                    w->s->dpooled)
                  : 0;
}

/* The loss of all images; turns logits into their gradient. One image at a time
 * if each has its own scale. */
static int head_loss(const struct plait_image_work *w, double *loss)
{
    const struct plait_model_config *c = &w->model->config->model;
    const struct plait_image_slot *s = w->slot;
    struct plait_class_loss l = {.N = s->weights ? 1 : s->N,
                                 .classes = (size_t)c->classes,
                                 .smoothing = (float)c->label_smoothing,
                                 .squared = c->loss == PLAIT_LOSS_SQUARED,
                                 .sums = loss};

    for (size_t i = 0; i < s->N; i += l.N) {
        l.scale = s->loss_scale * (s->weights ? s->weights[i] : 1);
        l.logits = w->s->logits + i * l.classes;
        l.labels = s->labels + i;
        if (w->ops->image->class_loss(w->q, &l) < 0)
            return -1;
    }
    return 0;
}

int plait_image_head(const struct plait_image_work *w,
                     const struct plait_image_block *b, const float *x,
                     double *loss)
{
    struct plait_avgpool pool = mean_of(w, b);

    if (b->rows > 1) {
        if (w->ops->image->avgpool_forward(w->q, &pool, w->s->pooled, x) < 0)
            return -1;
        x = w->s->pooled;
    }
    if (matrix_forward(w, b, w->s->logits, x) < 0 || head_loss(w, loss) < 0)
        return -1;
    return w->train ? head_backward(w, b, x) : 0;
}
