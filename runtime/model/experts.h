/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_EXPERTS_H
#define PLAIT_RUNTIME_MODEL_EXPERTS_H

#include "kernels/route.h"
#include "runtime/model/internal.h"

/* From all rows of the normalised stream to routed.z; then joins those to out
 * [N,C], this tp rank's part. */
int plait_experts_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, const void *full);
int plait_experts_join(const struct plait_work *w,
                       const struct plait_activations *a, void *out);
/* From all rows of the output's gradient to this tp rank's part of the input's,
 * in scratch->part; leaves the gradient of the logits for the router's
 * weight. */
int plait_experts_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, const void *dout);
/* What the former leaves out where weights multiply the experts' inputs: the
 * gradient of the logits, and in scratch->part that through the router, from
 * all rows of the normalised stream. Nothing else of this layer's may be
 * computed in between but the shared experts. */
int plait_experts_input_backward(const struct plait_work *w,
                                 const struct plait_block *b,
                                 const struct plait_activations *a,
                                 const void *full);
int plait_experts_router_weight(const struct plait_work *w,
                                const struct plait_block *b, const void *full);
/* The experts that every token takes, if the model has them: from all rows of
 * the normalised stream to shared_act; the same of shared_pre again; from there
 * to out, before plait_experts_join() adds to it; from all rows of the output's
 * gradient, added to scratch->part; and last the gradient of shared_up, from
 * the stream. */
int plait_shared_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, const void *full);
int plait_shared_again(const struct plait_work *w,
                       const struct plait_activations *a);
int plait_shared_leave(const struct plait_work *w, const struct plait_block *b,
                       const struct plait_activations *a, void *out);
int plait_shared_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, const void *dout);
int plait_shared_weight(const struct plait_work *w, const struct plait_block *b,
                        const void *full);
/* Before a forward: by what backward multiplies the gradient of the experts'
 * balance. It reads this in device memory, as the factor differs from step to
 * step and a graph does not. */
int plait_experts_set_balance(const struct plait_work *w, float factor);

/* router.c: the routing of all tokens. Row i belongs to sequence i / run %
 * sequences. */
struct plait_route plait_route_of(const struct plait_work *w,
                                  const struct plait_routed *r);
/* From all rows of the normalised stream to prob, expert, gate and load. */
int plait_router_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_routed *r, const void *full);
/* From scratch->dgate to the gradient of the logits, in scratch->route. */
int plait_router_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_routed *r);

/* Whether the host knows the experts' numbers of rows: with ep > 1 they are the
 * lengths of messages, and in fp8 each expert's operands are scaled
 * separately. */
static inline bool plait_experts_counted(const struct plait_work *w)
{
    return w->d->ep > 1 || w->fp8;
}

/* Whether a token's weights of its experts multiply what they read, not what
 * they put out. */
static inline bool plait_experts_scale_input(const struct plait_work *w)
{
    return w->model->config->model.experts_scores == PLAIT_SCORES_INPUT;
}

/* Number of rows that the experts here process, in the order of the experts;
 * includes dropped choices if the host does not know the numbers. */
static inline size_t plait_experts_rows(const struct plait_work *w,
                                        const struct plait_routed *r)
{
    size_t n = 0;

    if (!plait_experts_counted(w))
        return w->shape->N * w->d->top_k;
    for (int i = 0; i < w->d->experts / w->d->ep; i++)
        n += r->here[i];
    return n;
}

/* linear.c: one linear of all experts here: `up` (into the activation, which is
 * GELU unless the model is gated) or down (out of it). Of l its operands and
 * results are used. plait_grouped_input() applies no slope if l->pre is NULL.
 */
int plait_grouped_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_routed *r, bool up,
                          const struct plait_linear *l);
int plait_grouped_input(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_routed *r, bool up,
                        const struct plait_linear_dinp *l);
int plait_grouped_weight(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_routed *r, bool up,
                         const void *dout, const void *inp);

#endif
