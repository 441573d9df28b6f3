/* SPDX-License-Identifier: Apache-2.0 */
/* The norms of a layer: before attention and mlp, as most models have them;
 * after them, of what they add to the stream, as in OLMo 2; or both, as in
 * Gemma 2. */
#include "runtime/model/hooks.h"
#include "runtime/model/operand.h"
#include "topology/job/mup.h"

/* The stream is kept divided by the factor of what each half of a layer adds to
 * it, so that it is added as it is: the embedding is scaled once, and a norm's
 * output is the same if the constant under its root is divided by the square.
 */
static double eps_of(const struct plait_model_config *m)
{
    double factor = plait_mup_residual(m);

    return m->norm_eps / (factor * factor);
}

int plait_norm_forward(const struct plait_work *w, int region, size_t gamma,
                       size_t beta, const struct plait_norm_forward *norm)
{
    struct plait_norm_forward n = *norm;

    n.type = w->type;
    n.gamma = plait_weight_at(w, region, gamma);
    if (w->d->gated)
        n.mean = NULL;
    else
        n.beta = plait_weight_at(w, region, beta);
    if (!(n.eps > 0))
        n.eps = (float)eps_of(&w->model->config->model);
    n.plus = w->model->config->model.norm_plus_one;
    n.N = w->shape->n;
    n.C = w->d->hidden;
    return w->ops->norm_forward(w->q, &n);
}

/* -- without norms before: attention and mlp read the stream itself -------- */

static int add_streams(const struct plait_work *w, void *out, const void *a,
                       const void *b)
{
    return w->ops->add(w->q,
                       &(struct plait_add){.type = w->type,
                                           .out = out,
                                           .a = a,
                                           .b = b,
                                           .n = w->shape->n * w->d->hidden});
}

static int take_sum(const struct plait_work *w, void *sum, const void *x,
                    const void *delta, uint32_t *amax)
{
    if (delta && add_streams(w, sum, x, delta) < 0)
        return -1;
    return plait_amax_find(w, amax, sum, w->shape->n * w->d->hidden);
}

static int add_gradient(const struct plait_work *w, void *dx, const void *dout)
{
    if (add_streams(w, dx, dx, dout) < 0)
        return -1;
    return plait_amax_find(w, plait_gradient_amax(w), dx,
                           w->shape->n * w->d->hidden);
}

/* -- norms before --------------------------------------------------------- */

int plait_first_norm(const struct plait_work *w, const struct plait_block *b,
                     const struct plait_activations *a, const void *x,
                     const void *delta, uint32_t *amax)
{
    if (!w->d->norms_before)
        return take_sum(w, a->x1, x, delta, amax);
    return plait_norm_forward(w, b->region, b->norm1, b->norm1_bias,
                              &(struct plait_norm_forward){.out = a->n1,
                                                           .mean = a->mean1,
                                                           .rstd = a->rstd1,
                                                           .sum = a->x1,
                                                           .inp = x,
                                                           .residual = delta,
                                                           .amax = amax});
}

int plait_second_norm(const struct plait_work *w, const struct plait_block *b,
                      const struct plait_activations *a, const void *x,
                      const void *delta, uint32_t *amax)
{
    if (!w->d->norms_before)
        return take_sum(w, a->x2, x, delta, amax);
    return plait_norm_forward(w, b->region, b->norm2, b->norm2_bias,
                              &(struct plait_norm_forward){.out = a->n2,
                                                           .mean = a->mean2,
                                                           .rstd = a->rstd2,
                                                           .sum = a->x2,
                                                           .inp = x,
                                                           .residual = delta,
                                                           .amax = amax});
}

int plait_norm_backward(const struct plait_work *w, int region, size_t gamma,
                        size_t beta, const struct plait_norm_backward *norm)
{
    struct plait_norm_backward n = *norm;

    n.type = w->type;
    n.gamma = plait_weight_at(w, region, gamma);
    n.dgamma = plait_grad_at(w, region, gamma);
    if (w->d->gated)
        n.mean = NULL;
    else
        n.dbeta = plait_grad_at(w, region, beta);
    n.plus = w->model->config->model.norm_plus_one;
    n.N = w->shape->n;
    n.C = w->d->hidden;
    return w->ops->norm_backward(w->q, &n);
}

int plait_before_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, int half, void *dx,
                          const void *dout)
{
    struct plait_norm_backward n = {.dx = dx,
                                    .accumulate = 1,
                                    .dout = dout,
                                    .x = half == 1 ? a->x1 : a->x2,
                                    .mean = half == 1 ? a->mean1 : a->mean2,
                                    .rstd = half == 1 ? a->rstd1 : a->rstd2,
                                    .amax = plait_gradient_amax(w)};

    if (!w->d->norms_before)
        return add_gradient(w, dx, dout);
    return plait_norm_backward(w, b->region, half == 1 ? b->norm1 : b->norm2,
                               half == 1 ? b->norm1_bias : b->norm2_bias, &n);
}

/* -- norms after ---------------------------------------------------------- */

int plait_after_forward(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a, int half,
                        const void **out)
{
    size_t bytes = w->shape->n * w->d->hidden * plait_dtype_size(w->type);
    struct plait_norm_forward n = {
        .out =
            plait_tp_reduce_output(&w->tp, w->scratch->part, w->scratch->local),
        .rstd = half == 1 ? a->o1_rstd : a->o2_rstd,
        .inp = half == 1 ? a->o1 : a->o2,
        .eps = (float)w->model->config->model.norm_eps};

    if (!w->d->norms_after)
        return 0;
    if (w->ops->copy(w->q, half == 1 ? a->o1 : a->o2, *out, bytes) < 0 ||
        plait_norm_forward(w, b->region,
                           half == 1 ? b->norm1_after : b->norm2_after, 0,
                           &n) < 0)
        return -1;
    *out = n.out;
    return plait_show(
        w, half == 1 ? "the norm after attention" : "the norm after the mlp",
        n.out, w->shape->n * w->d->hidden);
}

int plait_after_backward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, int half,
                         const void *dx, const void **dout)
{
    struct plait_norm_backward n = {.dx = w->scratch->dout,
                                    .dout = dx,
                                    .x = half == 1 ? a->o1 : a->o2,
                                    .rstd = half == 1 ? a->o1_rstd : a->o2_rstd,
                                    .amax = plait_gradient_amax(w)};

    *dout = w->d->norms_after ? n.dx : dx;
    return w->d->norms_after
               ? plait_norm_backward(
                     w, b->region, half == 1 ? b->norm1_after : b->norm2_after,
                     0, &n)
               : 0;
}
