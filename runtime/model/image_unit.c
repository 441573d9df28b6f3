/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "runtime/model/image.h"

/* A convolution with its batch norm, forward and backward.
 *
 * Running statistics are tensors of the model that no optimizer updates: their
 * "gradient" is what a step adds to them, so that it is summed over the
 * data-parallel ranks and sharded like any other. Each group of images has the
 * weight that it would have if the groups of the whole batch were folded in one
 * after the other, wherever they are computed. */

/* The convolution of the slot's images. */
static struct plait_conv conv_of(const struct plait_image_work *w,
                                 const struct plait_unit *u)
{
    struct plait_conv c = u->conv;

    c.N = w->slot->N;
    return c;
}

static struct plait_batchnorm norm_of(const struct plait_image_work *w,
                                      const struct plait_unit *u)
{
    const struct plait_model_config *c = &w->model->config->model;
    size_t N = w->slot->N, groups = w->train ? plait_image_groups(c, N) : 1;

    return (struct plait_batchnorm){.groups = groups,
                                    .rows =
                                        N / groups * plait_conv_rows(&u->conv),
                                    .C = u->conv.O,
                                    .eps = (float)c->norm_eps};
}

/* The data-parallel group if the norm is taken over all of it, else NULL. */
static struct plait_comm *norm_group(const struct plait_image_work *w)
{
    struct plait_comm *dp = w->model->mesh->group[PLAIT_GROUP_DP_CP];

    return w->model->config->model.norm == PLAIT_NORM_SYNC &&
                   plait_comm_size(dp) > 1
               ? dp
               : NULL;
}

static int make_stats(const struct plait_image_work *w,
                      const struct plait_batchnorm *b, float *stats,
                      const float *x)
{
    struct plait_comm *dp = norm_group(w);

    if (w->ops->image->batchnorm_stats(w->q, b, stats, x) < 0)
        return -1;
    if (!dp)
        return 0;
    if (plait_comm_all_gather(dp, stats, w->s->all, 2 * b->C, PLAIT_F32, w->q,
                              NULL) < 0)
        return -1;
    return w->ops->image->batchnorm_join(w->q, stats, w->s->all,
                                         (size_t)plait_comm_size(dp), b->C);
}

int plait_unit_forward(const struct plait_image_work *w,
                       const struct plait_unit *u,
                       const struct plait_unit_kept *kept, const float *x,
                       const float *residual, bool relu)
{
    const struct plait_image_ops *ops = w->ops->image;
    struct plait_batchnorm b = norm_of(w, u);
    struct plait_conv c = conv_of(w, u);
    const float *beta = plait_image_weight(w, u->beta);
    const float *stats = plait_image_weight(w, u->running);

    if (ops->conv_forward(w->q, &c, kept->pre, x,
                          plait_image_weight(w, u->weight)) < 0)
        return -1;
    if (w->train) {
        if (make_stats(w, &b, kept->stats, kept->pre) < 0)
            return -1;
        stats = kept->stats;
    }
    return ops->batchnorm_forward(w->q, &b, kept->post, kept->pre, stats,
                                  beta + b.C, beta, residual, relu);
}

/* How many folds of the batch come after this micro-batch's last one; -1:
 * another rank adds the same fold. */
static int folds_after(const struct plait_image_work *w, size_t groups)
{
    const struct plait_image_slot *s = w->slot;
    const struct plait_mesh *mesh = w->model->mesh;
    int dp = mesh->layout.size[PLAIT_DP];

    if (w->model->config->model.norm != PLAIT_NORM_SYNC)
        return (s->total - 1 - s->index) * (int)groups;
    if (mesh->coord.at[PLAIT_DP] != 0)
        return -1;
    return (s->total - 1 - s->index) / dp;
}

static int fold_stats(const struct plait_image_work *w,
                      const struct plait_unit *u,
                      const struct plait_batchnorm *b, const float *stats,
                      size_t count)
{
    double keep = 1 - PLAIT_NORM_MOMENTUM;
    int after = folds_after(w, b->groups);

    if (after < 0)
        return 0;
    return w->ops->image->batchnorm_fold(
        w->q, plait_image_grad(w, u->running),
        plait_image_weight(w, u->running), stats, b->groups, b->C,
        (float)(PLAIT_NORM_MOMENTUM * pow(keep, after)), (float)keep,
        count > 1 ? (float)count / (float)(count - 1) : 1);
}

/* The norm's backward; the result goes to `pre` of the state. */
static int norm_backward(const struct plait_image_work *w,
                         const struct plait_unit *u,
                         const struct plait_unit_kept *kept, float *dresidual,
                         const float *dout, bool relu)
{
    const struct plait_image_ops *ops = w->ops->image;
    const float *out = relu ? kept->post : NULL;
    struct plait_comm *dp = norm_group(w);
    struct plait_batchnorm b = norm_of(w, u);
    size_t count = b.rows * (dp ? (size_t)plait_comm_size(dp) : 1);
    float *sums = w->s->sums;

    if (ops->batchnorm_sums(w->q, &b, sums, dout, out, kept->pre, kept->stats) <
            0 ||
        w->ops->bias_backward(w->q, PLAIT_F32, plait_image_grad(w, u->beta),
                              sums, b.groups, 2 * b.C) < 0 ||
        fold_stats(w, u, &b, kept->stats, count) < 0)
        return -1;
    if (dp && plait_comm_all_reduce(dp, sums, sums, 2 * b.C, PLAIT_F32,
                                    PLAIT_SUM, w->q, NULL) < 0)
        return -1;
    return ops->batchnorm_backward(
        w->q, &b, w->s->pre, dresidual, dout, out, kept->pre, kept->stats,
        plait_image_weight(w, u->beta + b.C), sums, count);
}

int plait_unit_backward(const struct plait_image_work *w,
                        const struct plait_unit *u,
                        const struct plait_unit_kept *kept, const float *x,
                        float *dx, float *dresidual, const float *dout,
                        bool relu)
{
    const struct plait_image_ops *ops = w->ops->image;
    bool *unmade = &w->model->state->unmade[u->product];
    struct plait_conv c = conv_of(w, u);

    if (norm_backward(w, u, kept, dresidual, dout, relu) < 0 ||
        ops->conv_backward_weight(w->q, &c, plait_image_grad(w, u->weight),
                                  w->s->pre, x, !*unmade) < 0)
        return -1;
    *unmade = false;
    if (!dx)
        return 0;
    return ops->conv_backward_input(w->q, &c, dx, w->s->pre,
                                    plait_image_weight(w, u->weight));
}
