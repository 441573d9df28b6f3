/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): a module
 * behind the last layer that predicts the token after the next. Of a row's h,
 * the output of the final norm as in Megatron-LM, and the embedding e of its
 * next token it makes
 *
 *     x = W [norm(e); norm(h)],  y = norm(layer(x))
 *
 * and the head's logits of y. Their loss is divided by as many targets as the
 * main one, as in equation 24 there, and weighted by model.mtp_loss.
 *
 * Like the head's, its backward runs within its forward: nothing of it is kept
 * for each micro-batch in flight, and schedules do not see it. */
#include "runtime/model/hooks.h"
#include "runtime/model/operand.h"
#include "topology/job/mup.h"

/* Half 0 of the columns of scratch->mtp.joined has the tokens, half 1 the
 * stream: to or from rows of C columns. */
static int copy_half(const struct plait_work *w, int half, void *rows,
                     bool to_joined)
{
    size_t C = w->d->hidden;
    struct plait_copy_2d c = {
        .type = w->type,
        .dst = plait_element_at(w, w->scratch->mtp.joined, half * C),
        .dst_stride = 2 * C,
        .src = rows,
        .src_stride = C,
        .rows = w->shape->n,
        .cols = C};

    if (!to_joined)
        c = (struct plait_copy_2d){.type = w->type,
                                   .dst = rows,
                                   .dst_stride = C,
                                   .src = c.dst,
                                   .src_stride = 2 * C,
                                   .rows = c.rows,
                                   .cols = C};
    return w->ops->copy_2d(w->q, &c);
}

/* Never in fp8, as the head's products. */
static int join_product(const struct plait_work *w,
                        const struct plait_linear *join)
{
    double start = plait_begin_part(w);

    return plait_end_part(w, PLAIT_MODEL_PRODUCTS, start,
                          w->ops->linear_forward(w->q, join));
}

static int join_input(const struct plait_work *w,
                      const struct plait_linear_dinp *join)
{
    double start = plait_begin_part(w);

    return plait_end_part(w, PLAIT_MODEL_PRODUCTS, start,
                          w->ops->linear_backward_input(w->q, join));
}

/* The layer's input, from h and the next tokens. */
static int join_forward(const struct plait_work *w, const struct plait_block *b,
                        const void *hidden)
{
    struct plait_mtp *m = &w->scratch->mtp;
    const struct plait_norm_forward token = {.out = m->hn,
                                             .mean = m->token_mean,
                                             .rstd = m->token_rstd,
                                             .inp = m->x};
    const struct plait_norm_forward stream = {.out = m->hn,
                                              .mean = m->hidden_mean,
                                              .rstd = m->hidden_rstd,
                                              .inp = hidden};
    const struct plait_linear join = {.N = w->shape->n,
                                      .inp.x = m->joined,
                                      .w = b->join.handle,
                                      .out = m->layer.x1};

    if (plait_embed_next(w, b, m->x) < 0 ||
        plait_norm_forward(w, b->region, b->token_norm, b->token_norm_bias,
                           &token) < 0 ||
        copy_half(w, 0, m->hn, true) < 0 ||
        plait_norm_forward(w, b->region, b->hidden_norm, b->hidden_norm_bias,
                           &stream) < 0 ||
        copy_half(w, 1, m->hn, true) < 0 || join_product(w, &join) < 0)
        return -1;
    return plait_show(w, "the joined input", m->layer.x1,
                      w->shape->n * w->d->hidden);
}

/* Of dx, the gradient of the layer's input. */
static int join_backward(const struct plait_work *w,
                         const struct plait_block *b, const void *hidden,
                         const void *dx)
{
    struct plait_mtp *m = &w->scratch->mtp;
    const struct plait_linear_dinp join = {
        .N = w->shape->n, .dout.x = dx, .w = b->join.handle, .dinp = m->joined};
    const struct plait_norm_backward token = {.dx = m->hn,
                                              .dout = m->hn,
                                              .x = m->x,
                                              .mean = m->token_mean,
                                              .rstd = m->token_rstd};
    const struct plait_norm_backward stream = {.dx = m->dhidden,
                                               .dout = m->hn,
                                               .x = hidden,
                                               .mean = m->hidden_mean,
                                               .rstd = m->hidden_rstd};

    if (plait_product_weight(w, &b->join, 0, dx, m->joined, w->shape->n) < 0 ||
        join_input(w, &join) < 0 || copy_half(w, 1, m->hn, false) < 0 ||
        plait_norm_backward(w, b->region, b->hidden_norm, b->hidden_norm_bias,
                            &stream) < 0 ||
        copy_half(w, 0, m->hn, false) < 0 ||
        plait_norm_backward(w, b->region, b->token_norm, b->token_norm_bias,
                            &token) < 0)
        return -1;
    return plait_embed_next_backward(w, b, m->hn);
}

/* The head's forward and backward of the module: the norm is its own, the
 * matrix the head's; dx becomes the gradient of the layer's output. */
static int head_of_module(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_block *head,
                          const struct plait_stream *s, double *loss)
{
    const struct plait_mtp *m = &w->scratch->mtp;
    struct plait_scratch scratch = *w->scratch;
    struct plait_slot slot = *w->slot;
    struct plait_block block = *b;
    struct plait_work own = *w;

    scratch.hx = m->hx;
    scratch.hn = m->hn;
    scratch.hmean = m->hmean;
    scratch.hrstd = m->hrstd;
    slot.targets = slot.next_targets;
    slot.loss_scale *= (float)w->model->config->model.mtp_loss;
    slot.dhead = scratch.dx;
    block.vocab = head->vocab;
    own.scratch = &scratch;
    own.slot = &slot;
    return plait_head_forward(&own, &block, s->x, s->delta, loss, true);
}

static int run_module(const struct plait_work *w, const struct plait_block *b,
                      const struct plait_block *head, const void *hidden,
                      double *loss)
{
    struct plait_scratch *s = w->scratch;
    const struct plait_activations *a = &s->mtp.layer;
    struct plait_stream stream = {.x = a->x1};

    if (plait_show_tensors(w, b, false) < 0 || join_forward(w, b, hidden) < 0 ||
        plait_layer_forward(w, b, a, &stream) < 0 ||
        head_of_module(w, b, head, &stream, loss) < 0 ||
        plait_amax_find(w, plait_gradient_amax(w), s->dx,
                        w->shape->n * w->d->hidden) < 0 ||
        plait_layer_backward(w, b, a, &s->now, s->dx, PLAIT_HALF_BOTH) < 0)
        return -1;
    return join_backward(w, b, hidden, s->dx);
}

/* The regions it computes with, in order; the head's own are in use. With ZeRO
 * 3 the head waits for them: none is gathered ahead. */
static int regions_of(const struct plait_block *b,
                      const struct plait_block *head, int regions[3])
{
    int n = 0;

    if (b->table.region != b->region && b->table.region != head->vocab.region)
        regions[n++] = b->table.region;
    regions[n++] = b->region;
    if (b->expert_region >= 0)
        regions[n++] = b->expert_region;
    return n;
}

int plait_mtp_train(const struct plait_work *w, const struct plait_block *head,
                    const void *hidden, double *loss)
{
    const struct plait_block *b = head - 1;
    struct plait_work here = *w;
    int regions[3], n = regions_of(b, head, regions);

    here.layer = w->model->observer.layer = b->layer;
    if (plait_hooks_acquire(w->model, regions, n, true) < 0 ||
        run_module(&here, b, head, hidden, loss + 1) < 0 ||
        plait_hooks_release(w->model, regions, n) < 0)
        return -1;
    w->model->observer.layer = -1;
    return 0;
}
