/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/moments.h"
#include "runtime/optim/optim_private.h"

/* Adafactor (Shazeer and Stern, 2018, arXiv:1804.04235), as in torch.optim. For
 * a matrix, with b = 1 - t^-0.8 and e = 2^-23,
 *     R = b R + (1-b) (mean of g^2 in each row), C likewise for columns
 *     u = g / sqrt(max(R C^T / max(mean of R, e), e^2))
 * and for a vector u = g / sqrt(max(v, e^2)) with v = b v + (1-b) g^2. The rest
 * is a factor (rule.c). Instead of using e, the paper adds 10^-30 to g^2.
 *
 * Every rank has all factors of the matrices that it has a piece of. It sums
 * the squares of its piece; these sums are all-reduced over the ranks that
 * divide a shard, then over tp: 4 (rows + cols) bytes for each matrix. */

static const float least = 0x1p-23f;

/* Matrices whose pieces are distributed over the same ranks. */
struct group {
    size_t begin, end;        /* range of their numbers in struct adafactor */
    struct plait_comm *parts; /* the ranks that divide a shard; NULL: none */
};

struct adafactor {
    size_t count;          /* of the numbers in sums and in factors */
    float *sums;           /* device: sums of squares, R and C of all
                            * matrices */
    float *factors;        /* device: the same, averaged */
    float *means;          /* [ntensors] device: mean of R */
    size_t *rows;          /* [ntensors] where R begins */
    size_t *cols;          /* [ntensors] where C begins; both 0 for vectors */
    struct group group[2]; /* dense, expert */
};

static bool takes(const struct plait_tensor *t)
{
    (void)t;
    return true;
}

static bool is_matrix(const struct plait_tensor *t)
{
    return t->ndim == 2;
}

static int nstates(const struct plait_tensor *t)
{
    return is_matrix(t) ? 0 : 1;
}

/* Rows of all tp shards, including a vocabulary's padding. */
static size_t padded_rows(const struct plait_optim *optim,
                          const struct plait_tensor *t)
{
    size_t all = t->local_shape[0] * optim->model->mesh->layout.size[PLAIT_TP] /
                 t->tp_replicas;

    return t->tp_axis == 0 && all > t->shape[0] ? all : t->shape[0];
}

static void place_factors(struct plait_optim *optim, struct adafactor *a)
{
    const struct plait_model *model = optim->model;

    for (int expert = 0; expert < 2; expert++) {
        struct group *g = &a->group[expert];

        g->begin = a->count;
        for (int i = 0; i < model->ntensors; i++) {
            const struct plait_tensor *t = &model->tensors[i];
            const struct plait_shard *s = &optim->shards->shard[t->region];

            if (!is_matrix(t) || t->expert != expert)
                continue;
            a->rows[i] = a->count;
            a->cols[i] = a->rows[i] + padded_rows(optim, t);
            a->count = a->cols[i] + t->shape[1];
            g->parts = s->parts > 1 ? s->comm : NULL;
        }
        g->end = a->count;
    }
}

static void destroy(struct plait_optim *optim, void *own)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct adafactor *a = own;

    mesh->ops->free(mesh->dev, a->factors);
    mesh->ops->free(mesh->dev, a->means);
    plait_mesh_free(mesh, a->sums);
    free(a->rows);
    free(a->cols);
    free(a);
}

static int create(struct plait_optim *optim, void **own,
                  struct plait_error *err)
{
    struct plait_mesh *mesh = optim->model->mesh;
    size_t n = (size_t)optim->model->ntensors + 1;
    struct adafactor *a = calloc(1, sizeof(*a));

    if (!a)
        return plait_errorf(err, "out of memory");
    *own = a;
    a->rows = calloc(n, sizeof(*a->rows));
    a->cols = calloc(n, sizeof(*a->cols));
    if (!a->rows || !a->cols)
        return plait_errorf(err, "out of memory");
    place_factors(optim, a);
    a->sums = plait_mesh_alloc(mesh, (a->count + 1) * sizeof(*a->sums));
    a->factors =
        mesh->ops->alloc(mesh->dev, (a->count + 1) * sizeof(*a->factors));
    a->means = mesh->ops->alloc(mesh->dev, n * sizeof(*a->means));
    if (!a->sums || !a->factors || !a->means)
        return plait_errorf(err, "out of memory for Adafactor's factors");
    return 0;
}

/* Where the factors of the shard's first row and column begin. */
static size_t first_row(const struct adafactor *a, int tensor,
                        const struct plait_tensor *t)
{
    return a->rows[tensor] + (t->tp_axis == 0 ? t->local_first : 0);
}

static size_t first_col(const struct adafactor *a, int tensor,
                        const struct plait_tensor *t)
{
    return a->cols[tensor] + (t->tp_axis == 1 ? t->local_first : 0);
}

/* Whether this rank's piece enters the sums: of equal shards on several tp
 * ranks only one does. */
static bool counts(const struct plait_optim *optim,
                   const struct plait_tensor *t)
{
    return optim->model->mesh->coord.at[PLAIT_TP] % t->tp_replicas == 0;
}

/* The slice's elements and gradient, and the rows and columns of its matrix in
 * `all`, which is a->sums or a->factors. */
static struct plait_factors factors_of(struct plait_optim *optim,
                                       const struct adafactor *a,
                                       const struct plait_optim_slice *s,
                                       float *all)
{
    const struct plait_tensor *t = s->tensor;
    int tensor = (int)(t - optim->model->tensors);

    return (struct plait_factors){.first = s->first,
                                  .n = s->count,
                                  .C = t->local_shape[1],
                                  .mean = a->means + tensor,
                                  .rows = all + first_row(a, tensor, t),
                                  .cols = all + first_col(a, tensor, t),
                                  .x = plait_optim_slice_grad(optim, s)};
}

static int sum_pieces(struct plait_optim *optim, struct adafactor *a)
{
    const struct plait_model *model = optim->model;
    struct plait_mesh *mesh = model->mesh;

    if (mesh->ops->fill_zero(mesh->q, a->sums, a->count * sizeof(*a->sums)) < 0)
        return -1;
    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];
        const struct plait_tensor *t = s->tensor;
        struct plait_factors f;

        if (!is_matrix(t) || !counts(optim, t))
            continue;
        f = factors_of(optim, a, s, a->sums);
        if (mesh->ops->factor_sums(mesh->q, &f) < 0)
            return -1;
    }
    return 0;
}

static int reduce_sums(struct plait_optim *optim, struct adafactor *a)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct plait_comm *tp = mesh->group[PLAIT_GROUP_TP];

    for (int k = 0; k < 2; k++) {
        const struct group *g = &a->group[k];
        float *sums = a->sums + g->begin;

        if (g->parts && g->end > g->begin &&
            plait_comm_all_reduce(g->parts,
                                  &(struct plait_buffers){
                                      sums, sums, g->end - g->begin, PLAIT_F32},
                                  PLAIT_SUM, mesh->q, NULL) < 0)
            return -1;
    }
    if (plait_comm_size(tp) == 1 || a->count == 0)
        return 0;
    return plait_comm_all_reduce(
        tp, &(struct plait_buffers){a->sums, a->sums, a->count, PLAIT_F32},
        PLAIT_SUM, mesh->q, NULL);
}

/* n numbers from `at` on. */
static struct plait_average average_of(const struct adafactor *a, size_t at,
                                       size_t n, float scale, float weight)
{
    return (struct plait_average){.n = n,
                                  .scale = scale,
                                  .weight = weight,
                                  .x = a->sums + at,
                                  .y = a->factors + at};
}

/* Averages the sums of squares into the factors. */
static int average_factors(struct plait_optim *optim, struct adafactor *a,
                           float scale, float weight)
{
    const struct plait_model *model = optim->model;
    const struct plait_ops *ops = model->mesh->ops;
    struct plait_queue *q = model->mesh->q;

    if (ops->fill_zero(q, a->means, model->ntensors * sizeof(*a->means)) < 0)
        return -1;
    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];
        size_t r = a->rows[i], c = a->cols[i], rows = t->shape[0];
        struct plait_average of_rows, of_cols;
        float squared = scale * scale;

        if (!is_matrix(t))
            continue;
        of_rows = average_of(a, r, c - r, squared / (float)t->shape[1], weight);
        of_cols = average_of(a, c, t->shape[1], squared / (float)rows, weight);
        if (ops->average(q, &of_rows) < 0 || ops->average(q, &of_cols) < 0 ||
            ops->bias_backward(
                q, &(struct plait_bias_backward){.type = PLAIT_F32,
                                                 .dbias = a->means + i,
                                                 .dout = a->factors + r,
                                                 .N = rows,
                                                 .O = 1}) < 0 ||
            ops->scale(q, &(struct plait_scale){.type = PLAIT_F32,
                                                .x = a->means + i,
                                                .s = 1 / (float)rows,
                                                .n = 1}) < 0)
            return -1;
    }
    return 0;
}

static int make_direction(struct plait_optim *optim, struct adafactor *a,
                          const struct plait_optim_slice *s, float scale,
                          float weight)
{
    const struct plait_ops *ops = optim->model->mesh->ops;
    struct plait_queue *q = optim->model->mesh->q;
    float *grad = plait_optim_slice_grad(optim, s);
    struct plait_average squares = {.n = s->count,
                                    .scale = scale,
                                    .weight = weight,
                                    .x = grad,
                                    .y = s->state[0]};
    struct plait_divide_root root = {.n = s->count,
                                     .scale = scale,
                                     .least = least * least,
                                     .v = s->state[0],
                                     .x = grad};
    struct plait_factors f;

    if (is_matrix(s->tensor)) {
        f = factors_of(optim, a, s, a->factors);
        f.scale = scale;
        f.eps = least;
        return ops->factor_divide(q, &f);
    }
    if (ops->average_squares(q, &squares) < 0)
        return -1;
    return ops->divide_root(q, &root);
}

static int make(struct plait_optim *optim, void *own, float scale, int64_t step)
{
    struct adafactor *a = own;
    float weight = (float)pow((double)step, -0.8);

    if (sum_pieces(optim, a) < 0 || reduce_sums(optim, a) < 0 ||
        average_factors(optim, a, scale, weight) < 0)
        return -1;
    for (int i = 0; i < optim->nslices; i++)
        if (make_direction(optim, a, &optim->slices[i], scale, weight) < 0)
            return -1;
    return 0;
}

static struct plait_optim_piece factor_piece(const struct plait_tensor *t,
                                             const char *state, size_t rows,
                                             size_t cols, float *data)
{
    return (struct plait_optim_piece){.tensor = t,
                                      .state = state,
                                      .home = PLAIT_PIECE_WEIGHTS,
                                      .shape = {rows, cols},
                                      .count = rows * cols,
                                      .data = data};
}

static int pieces(const struct plait_optim *optim, const void *own,
                  struct plait_optim_piece *to)
{
    const struct plait_model *model = optim->model;
    const struct adafactor *a = own;
    int n = 0;

    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_tensor *t = optim->slices[i].tensor;
        int tensor = (int)(t - model->tensors);

        if (!is_matrix(t))
            continue;
        if (to) {
            to[n] = factor_piece(t, "rows", t->shape[0], 1,
                                 a->factors + a->rows[tensor]);
            to[n + 1] = factor_piece(t, "cols", 1, t->shape[1],
                                     a->factors + a->cols[tensor]);
        }
        n += 2;
    }
    return n;
}

const struct plait_direction plait_adafactor = {
    takes, nstates, create, NULL, destroy, make, pieces, false};
