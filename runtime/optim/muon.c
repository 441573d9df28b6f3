/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/moments.h"
#include "runtime/optim/optim_private.h"
#include "runtime/optim/orthogonal.h"
#include "runtime/optim/whole.h"
#include "topology/job/model_size.h"

/* Muon (source: orthogonal.h). For every matrix of a layer,
 *     m += (1 - momentum) (g - m)
 *     O = orthogonalized(nesterov ? g + momentum (m - g) : m)
 *     w -= lr (0.2 sqrt(max(rows, cols)) O + wd w)
 * with the factor of Liu et al., "Muon is scalable for LLM training"
 * (arXiv:2502.16982), equation 4, which gives the change the same root mean
 * square as AdamW's, so that one rate fits both. Embeddings, the head and
 * vectors are updated by AdamW.
 *
 * With optim.muon_heads the rows of each head of q, k and v are such a matrix,
 * which of the fused one have singular values of their own (head-wise Muon or
 * MuonSplit: arXiv:2605.08933, which compares it with whole matrices). */

/* In fp16 a matrix is first multiplied by the power of two that brings its norm
 * to just below 2 to this power: no element is above 65504, and few become 0.
 */
#define NORM_EXPONENT 15

struct muon {
    const struct plait_model *model;
    struct plait_whole *whole;
    int npieces;
    struct plait_whole_piece *pieces; /* this rank's pieces of the matrices */
    int *slices;                      /* [npieces] the slices of these pieces */
    struct plait_orthogonal *orthogonal;
    /* Only in fp16; [tensors of the model]: the squares of the pieces of each;
     * those of all ranks of the stage. */
    double *squares; /* device */
    double *sums;
};

static bool takes(const struct plait_tensor *t)
{
    return t->ndim == 2 && t->layer >= 0;
}

static int nstates(const struct plait_tensor *t)
{
    return takes(t) ? 1 : 2;
}

static bool has_heads(const struct plait_tensor *t)
{
    return strstr(t->name, ".attention.q.") ||
           strstr(t->name, ".attention.k.") || strstr(t->name, ".attention.v.");
}

/* Rows of a tensor that are orthogonalized together. */
static size_t rows_of(const struct plait_model *model,
                      const struct plait_tensor *t)
{
    const struct plait_job_config *c = model->config;

    return c->optim.muon_heads && has_heads(t)
               ? (size_t)plait_model_head_dim(&c->model)
               : t->shape[0];
}

static void list_pieces(struct plait_optim *optim, struct muon *muon)
{
    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];

        if (!takes(s->tensor))
            continue;
        muon->slices[muon->npieces] = i;
        muon->pieces[muon->npieces++] = (struct plait_whole_piece){
            s->tensor, s->first, s->count, plait_optim_slice_grad(optim, s),
            rows_of(optim->model, s->tensor)};
    }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Work space for the matrices that this rank owns. */
static struct plait_orthogonal *open_orthogonal(struct plait_optim *optim,
                                                const struct muon *muon)
{
    size_t most = 0, largest = 0, side = 0;
    const int *owned;
    int n = plait_whole_owned(muon->whole, &owned);

    for (int i = 0; i < n; i++) {
        const struct plait_whole_piece *p = &muon->pieces[owned[i]];
        size_t cols = p->tensor->shape[1];

        most = larger(most, p->tensor->shape[0] / p->together);
        largest = larger(largest, p->together * cols);
        side = larger(side, p->together < cols ? p->together : cols);
    }
    return plait_orthogonal_create(
        optim->model->mesh, optim->model->type,
        optim->model->config->optim.muon_coefficients, most, largest, side);
}

static void destroy(struct plait_optim *optim, void *own)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct muon *muon = own;

    mesh->ops->free(mesh->dev, muon->squares);
    plait_orthogonal_destroy(muon->orthogonal);
    plait_whole_destroy(muon->whole);
    free(muon->sums);
    free(muon->pieces);
    free(muon->slices);
    free(muon);
}

static int open_sums(struct plait_optim *optim, struct muon *muon)
{
    struct plait_mesh *mesh = optim->model->mesh;
    size_t n = (size_t)optim->model->ntensors + 1;

    if (optim->model->type != PLAIT_FP16_T)
        return 0;
    muon->squares = mesh->ops->alloc(mesh->dev, n * sizeof(*muon->squares));
    muon->sums = calloc(n, sizeof(*muon->sums));
    return muon->squares && muon->sums ? 0 : -1;
}

static int check_heads(const struct muon *muon, struct plait_error *err)
{
    for (int i = 0; i < muon->npieces; i++) {
        const struct plait_whole_piece *p = &muon->pieces[i];

        if (p->tensor->shape[0] % p->together)
            return plait_errorf(err,
                                "optim.muon_heads: the %zu rows of %s are not "
                                "those of heads of %zu",
                                p->tensor->shape[0], p->tensor->name,
                                p->together);
    }
    return 0;
}

static int create(struct plait_optim *optim, void **own,
                  struct plait_error *err)
{
    struct muon *muon = calloc(1, sizeof(*muon));

    if (!muon)
        return plait_errorf(err, "out of memory");
    *own = muon;
    muon->model = optim->model;
    muon->pieces = calloc((size_t)optim->nslices + 1, sizeof(*muon->pieces));
    muon->slices = calloc((size_t)optim->nslices + 1, sizeof(*muon->slices));
    if (!muon->pieces || !muon->slices || open_sums(optim, muon) < 0)
        return plait_errorf(err, "out of memory");
    list_pieces(optim, muon);
    return check_heads(muon, err);
}

static int open_whole(struct plait_optim *optim, void *own,
                      struct plait_error *err)
{
    struct muon *muon = own;

    muon->whole = plait_whole_create(optim->model->mesh, optim->model->type,
                                     muon->pieces, muon->npieces, err);
    if (!muon->whole)
        return -1;
    muon->orthogonal = open_orthogonal(optim, muon);
    if (!muon->orthogonal)
        return plait_errorf(err, "out of memory for Muon's products");
    return 0;
}

/* Replaces the gradient by the matrix that is to be orthogonalized. */
static int step_momentum(struct plait_optim *optim,
                         const struct plait_whole_piece *p, float *m,
                         float scale)
{
    const struct plait_optim_config *c = &optim->model->config->optim;
    const struct plait_ops *ops = optim->model->mesh->ops;
    struct plait_queue *q = optim->model->mesh->q;
    float momentum = (float)c->momentum;
    struct plait_average of_grad = {.n = p->count,
                                    .scale = scale,
                                    .weight = 1 - momentum,
                                    .x = p->data,
                                    .y = m};
    struct plait_average ahead = {
        .n = p->count, .scale = 1, .weight = momentum, .x = m, .y = p->data};

    if (ops->average(q, &of_grad) < 0)
        return -1;
    if (!c->nesterov)
        return ops->copy(q, p->data, m, p->count * sizeof(*m));
    if (ops->scale(q, &(struct plait_scale){.type = PLAIT_F32,
                                            .x = p->data,
                                            .s = scale,
                                            .n = p->count}) < 0)
        return -1;
    return ops->average(q, &ahead);
}

/* The number of a piece's tensor: the same on all ranks with pieces of it. */
static size_t number_of(const struct muon *muon, int piece)
{
    return muon->pieces[piece].tensor - muon->model->tensors;
}

/* The factor of a piece, the same on all ranks with pieces of its matrix.
 * Replicas count several times, which changes the power of two a little. */
static float factor_of(const struct muon *muon, int piece)
{
    double norm;
    int exponent;

    if (!muon->sums)
        return 1;
    norm = sqrt(muon->sums[number_of(muon, piece)]);
    if (norm == 0 || !isfinite(norm))
        return 1;
    frexp(norm, &exponent);
    exponent = NORM_EXPONENT - exponent;
    return ldexpf(1, exponent > 100 ? 100 : exponent);
}

/* Prepares the pieces for fp16. Collective over the stage. */
static int scale_pieces(struct muon *muon)
{
    struct plait_mesh *mesh = muon->model->mesh;
    const struct plait_ops *ops = mesh->ops;
    size_t n = (size_t)muon->model->ntensors;

    if (!muon->sums)
        return 0;
    if (ops->fill_zero(mesh->q, muon->squares, n * sizeof(*muon->squares)) < 0)
        return -1;
    for (int i = 0; i < muon->npieces; i++) {
        const struct plait_whole_piece *p = &muon->pieces[i];
        const struct plait_floats list = {p->data, p->count};

        if (ops->sum_squares(mesh->q, muon->squares + number_of(muon, i), &list,
                             1) < 0)
            return -1;
    }
    if (ops->to_host(mesh->q, muon->sums, muon->squares,
                     n * sizeof(*muon->sums)) < 0 ||
        plait_comm_host_all_reduce(mesh->stage, muon->sums, n, PLAIT_SUM) < 0)
        return -1;
    for (int i = 0; i < muon->npieces; i++)
        if (ops->scale(mesh->q,
                       &(struct plait_scale){.type = PLAIT_F32,
                                             .x = muon->pieces[i].data,
                                             .s = factor_of(muon, i),
                                             .n = muon->pieces[i].count}) < 0)
            return -1;
    return 0;
}

static int orthogonalize(void *arg, int piece, void *matrix)
{
    struct muon *muon = arg;
    const struct plait_whole_piece *p = &muon->pieces[piece];
    const size_t *shape = p->tensor->shape;

    return plait_orthogonalize(muon->orthogonal, matrix, factor_of(muon, piece),
                               shape[0] / p->together, p->together, shape[1]);
}

static int make(struct plait_optim *optim, void *own, float scale, int64_t step)
{
    const struct plait_ops *ops = optim->model->mesh->ops;
    struct muon *muon = own;

    (void)step;
    for (int i = 0; i < muon->npieces; i++)
        if (step_momentum(optim, &muon->pieces[i],
                          optim->slices[muon->slices[i]].state[0], scale) < 0)
            return -1;
    if (scale_pieces(muon) < 0 ||
        plait_whole_run(muon->whole, orthogonalize, muon) < 0)
        return -1;
    for (int i = 0; i < muon->npieces; i++) {
        const struct plait_whole_piece *p = &muon->pieces[i];
        size_t longest = larger(p->together, p->tensor->shape[1]);

        if (ops->scale(
                optim->model->mesh->q,
                &(struct plait_scale){.type = PLAIT_F32,
                                      .x = p->data,
                                      .s = (float)(0.2 * sqrt((double)longest)),
                                      .n = p->count}) < 0)
            return -1;
    }
    return 0;
}

static int pieces(const struct plait_optim *optim, const void *own,
                  struct plait_optim_piece *to)
{
    (void)optim;
    (void)own;
    (void)to;
    return 0; /* there is nothing besides the slices' states */
}

const struct plait_direction plait_muon = {takes,   nstates, create, open_whole,
                                           destroy, make,    pieces, false};
