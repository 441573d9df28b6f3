/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "runtime/model/image.h"
#include "topology/job/held.h"

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

/* Sets b->stats of b->x. */
static int make_stats(const struct plait_image_work *w,
                      const struct plait_batchnorm *b)
{
    struct plait_comm *dp = norm_group(w);
    struct plait_batchnorm_join all = {
        .C = b->C, .each = w->s->all, .stats = b->stats};

    if (w->ops->image->batchnorm_stats(w->q, b) < 0)
        return -1;
    if (!dp)
        return 0;
    if (plait_comm_all_gather(
            dp,
            &(struct plait_buffers){b->stats, w->s->all, 2 * b->C, PLAIT_F32},
            w->q, NULL) < 0)
        return -1;
    all.n = (size_t)plait_comm_size(dp);
    return w->ops->image->batchnorm_join(w->q, &all);
}

int plait_unit_forward(const struct plait_image_work *w,
                       const struct plait_unit *u,
                       const struct plait_unit_kept *kept, const float *x,
                       const float *residual, bool relu)
{
    const struct plait_image_ops *ops = w->ops->image;
    struct plait_conv c = conv_of(w, u);
    struct plait_conv_arrays a = {
        .inp = x, .w = plait_image_weight(w, u->weight), .out = kept->pre};
    struct plait_batchnorm b = norm_of(w, u);

    b.x = kept->pre;
    b.stats = w->train ? kept->stats : plait_image_weight(w, u->running);
    b.beta = plait_image_weight(w, u->beta);
    b.gamma = b.beta + b.C;
    b.residual = residual;
    b.relu = relu;
    b.out = kept->post;
    if (ops->conv_forward(w->q, &c, &a) < 0 ||
        (w->train && make_stats(w, &b) < 0))
        return -1;
    return ops->batchnorm_forward(w->q, &b);
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
                      const struct plait_batchnorm *b)
{
    double keep = 1 - PLAIT_NORM_MOMENTUM;
    int after = folds_after(w, b->groups);
    struct plait_batchnorm_fold f = {
        .groups = b->groups,
        .C = b->C,
        .weight = (float)(PLAIT_NORM_MOMENTUM * pow(keep, after)),
        .keep = (float)keep,
        .unbias = b->count > 1 ? (float)b->count / (float)(b->count - 1) : 1,
        .stats = b->stats,
        .running = plait_image_weight(w, u->running),
        .delta = plait_image_grad(w, u->running)};

    return after < 0 ? 0 : w->ops->image->batchnorm_fold(w->q, &f);
}

/* The norm's backward; the result goes to `pre` of the state. */
static int norm_backward(const struct plait_image_work *w,
                         const struct plait_unit *u,
                         const struct plait_unit_kept *kept,
                         const struct plait_unit_backward *g)
{
    const struct plait_image_ops *ops = w->ops->image;
    struct plait_comm *dp = norm_group(w);
    struct plait_batchnorm b = norm_of(w, u);

    b.x = kept->pre;
    b.stats = kept->stats;
    b.gamma = plait_image_weight(w, u->beta + b.C);
    b.out = g->relu ? kept->post : NULL;
    b.dout = g->dout;
    b.sums = w->s->sums;
    b.count = b.rows * (dp ? (size_t)plait_comm_size(dp) : 1);
    b.dx = w->s->pre;
    b.dresidual = g->dresidual;
    if (ops->batchnorm_sums(w->q, &b) < 0 ||
        w->ops->bias_backward(
            w->q,
            &(struct plait_bias_backward){.type = PLAIT_F32,
                                          .dbias = plait_image_grad(w, u->beta),
                                          .dout = b.sums,
                                          .N = b.groups,
                                          .O = 2 * b.C}) < 0 ||
        fold_stats(w, u, &b) < 0)
        return -1;
    if (dp &&
        plait_comm_all_reduce(
            dp, &(struct plait_buffers){b.sums, b.sums, 2 * b.C, PLAIT_F32},
            PLAIT_SUM, w->q, NULL) < 0)
        return -1;
    return ops->batchnorm_backward(w->q, &b);
}

int plait_unit_backward(const struct plait_image_work *w,
                        const struct plait_unit *u,
                        const struct plait_unit_kept *kept,
                        const struct plait_unit_backward *g)
{
    const struct plait_image_ops *ops = w->ops->image;
    bool *unmade = &w->model->state->unmade[u->product];
    struct plait_conv c = conv_of(w, u);
    struct plait_conv_arrays a = {.inp = g->x,
                                  .w = plait_image_weight(w, u->weight),
                                  .dout = w->s->pre,
                                  .dinp = g->dx,
                                  .dw = plait_image_grad(w, u->weight),
                                  .accumulate = !*unmade};

    if (norm_backward(w, u, kept, g) < 0 ||
        ops->conv_backward_weight(w->q, &c, &a) < 0)
        return -1;
    *unmade = false;
    return g->dx ? ops->conv_backward_input(w->q, &c, &a) : 0;
}
