/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <time.h>

#include "runtime/model/internal.h"

double plait_model_took(const struct plait_model *model,
                        enum plait_model_part part)
{
    return model->mesh->ops->gpu || plait_is_image_model(&model->config->model)
               ? NAN
               : model->state->took[part];
}

/* The processor's, not the clock's: ranks may share cores. */
static double own_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double plait_begin_part(const struct plait_work *w)
{
    return w->ops->gpu ? 0 : own_time();
}

int plait_end_part(const struct plait_work *w, enum plait_model_part part,
                   double start, int rc)
{
    if (!w->ops->gpu)
        w->model->state->took[part] += own_time() - start;
    return rc;
}

static int end_product(const struct plait_work *w, double start, int rc)
{
    return plait_end_part(w, PLAIT_MODEL_PRODUCTS, start, rc);
}

/* The small pieces that layers and head share. */

int plait_norm_forward(const struct plait_work *w, int region, size_t gamma,
                       size_t beta, void *out, float *mean, float *rstd,
                       void *x, const void *inp, const void *delta)
{
    float eps = w->model->config->model.norm_eps;
    const void *g = plait_weight_at(w, region, gamma);

    /* The sum goes to x: delta is the op's "inp", the stream its residual. */
    if (!delta) {
        delta = inp;
        inp = NULL;
    }
    if (w->d->gated)
        return w->ops->rmsnorm_forward(w->q, w->type, out, rstd, x, delta, inp,
                                       g, eps, w->shape->n, w->d->hidden);
    return w->ops->layernorm_forward(w->q, w->type, out, mean, rstd, x, delta,
                                     inp, g, plait_weight_at(w, region, beta),
                                     eps, w->shape->n, w->d->hidden);
}

int plait_norm_backward(const struct plait_work *w, int region, size_t gamma,
                        size_t beta, void *dx, const void *dout, const void *x,
                        const float *mean, const float *rstd, bool accumulate)
{
    const void *g = plait_weight_at(w, region, gamma);
    float *dgamma = plait_grad_at(w, region, gamma);

    if (w->d->gated)
        return w->ops->rmsnorm_backward(w->q, w->type, dx, dgamma, dout, x, g,
                                        rstd, accumulate, w->shape->n,
                                        w->d->hidden);
    return w->ops->layernorm_backward(
        w->q, w->type, dx, dgamma, plait_grad_at(w, region, beta), dout, x, g,
        mean, rstd, accumulate, w->shape->n, w->d->hidden);
}

int plait_linear_forward(const struct plait_work *w,
                         const struct plait_matrix *matrix, const void *bias,
                         enum plait_activation act, void *out, void *pre,
                         const void *inp, size_t rows)
{
    double start = plait_begin_part(w);

    return end_product(
        w, start,
        w->fp8 ? w->ops->fp8_forward(w->q, out, pre, inp, matrix->handle, bias,
                                     act, rows)
               : w->ops->linear_forward(w->q, out, pre, inp, matrix->handle,
                                        bias, act, rows));
}

int plait_linear_input(const struct plait_work *w,
                       const struct plait_matrix *matrix,
                       enum plait_activation act, const void *pre, void *dinp,
                       const void *dout, size_t rows)
{
    double start = plait_begin_part(w);

    return end_product(
        w, start,
        w->fp8 ? w->ops->fp8_backward_input(w->q, dinp, dout, matrix->handle,
                                            act, pre, 0, rows)
               : w->ops->linear_backward_input(w->q, dinp, dout, matrix->handle,
                                               act, pre, 0, rows));
}

/* Whether there is something to add to; the first product asks once. */
static bool is_made(const struct plait_work *w,
                    const struct plait_matrix *matrix)
{
    bool *unmade = &w->model->state->unmade[matrix->product];
    bool made = !*unmade;

    *unmade = false;
    return made;
}

int plait_product_weight(const struct plait_work *w,
                         const struct plait_matrix *matrix, const void *dout,
                         const void *inp, size_t rows)
{
    float *dw = plait_grad_at(w, matrix->region, matrix->offset);

    return w->ops->linear_backward_weight(w->q, w->type, dw, NULL, dout, inp,
                                          is_made(w, matrix), rows, matrix->O,
                                          matrix->C);
}

int plait_linear_weight_rows(const struct plait_work *w,
                             const struct plait_matrix *matrix, size_t bias,
                             const void *dout, const void *inp, size_t rows)
{
    float *dw = plait_grad_at(w, matrix->region, matrix->offset);
    double start = plait_begin_part(w);
    float *dbias = NULL;

    if (matrix->bias)
        dbias = plait_grad_at(w, matrix->region, bias);
    return end_product(
        w, start,
        w->fp8 ? w->ops->fp8_backward_weight(w->q, w->type, dw, dbias, dout,
                                             inp, is_made(w, matrix), rows,
                                             matrix->O, matrix->C)
               : w->ops->linear_backward_weight(w->q, w->type, dw, dbias, dout,
                                                inp, is_made(w, matrix), rows,
                                                matrix->O, matrix->C));
}

int plait_linear_weight(const struct plait_work *w,
                        const struct plait_matrix *matrix, size_t bias,
                        const void *dout, const void *inp)
{
    return plait_linear_weight_rows(w, matrix, bias, dout, inp, w->shape->N);
}
