/* SPDX-License-Identifier: Apache-2.0 */
/* Attention sinks: a score of each head, learned, that joins the sum of its
 * softmax and has no value. They change the results of attention over all keys,
 * so that attention itself, whole, by cuDNN or in a ring, knows nothing of
 * them. tp ranks have the sinks of their own heads. */
#include "kernels/attention.h"
#include "runtime/model/internal.h"

static int add_sinks(const struct plait_work *w, const struct plait_block *b,
                     const struct plait_activations *a, size_t row, int batch,
                     int len)
{
    size_t width = (size_t)w->d->heads * w->d->head_dim;

    return w->ops->attention_sink(
        w->q, &(struct plait_attention_sink){
                  .type = w->type,
                  .batch = batch,
                  .q_len = len,
                  .heads = w->d->heads,
                  .head_dim = w->d->head_dim,
                  .sink = plait_weight_at(w, b->region, b->sinks),
                  .out = plait_element_at(w, a->att, row * width),
                  .lse = a->lse + row * w->d->heads});
}

int plait_sinks_forward(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a)
{
    const struct plait_batch_shape *s = w->shape;
    size_t row = 0;

    if (!w->model->config->model.attention_sinks)
        return 0;
    if (!w->added)
        return add_sinks(w, b, a, 0, s->pieces * s->batch, s->piece_len);
    for (int i = 0; i < w->added->n; i++) {
        int count = w->added->add[i].count;

        if (add_sinks(w, b, a, row, 1, count) < 0)
            return -1;
        row += (size_t)count;
    }
    return 0;
}

int plait_sinks_backward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, const void *datt)
{
    const struct plait_batch_shape *s = w->shape;

    if (!w->model->config->model.attention_sinks)
        return 0;
    return w->ops->attention_sink_backward(
        w->q, &(struct plait_attention_sink_gradient){
                  .type = w->type,
                  .batch = s->pieces * s->batch,
                  .q_len = s->piece_len,
                  .heads = w->d->heads,
                  .head_dim = w->d->head_dim,
                  .sink = plait_weight_at(w, b->region, b->sinks),
                  .out = a->att,
                  .dout = datt,
                  .lse = a->lse,
                  .dsink = plait_grad_at(w, b->region, b->sinks)});
}
