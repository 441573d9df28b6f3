/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/linear.h"
#include "kernels/moments.h"
#include "runtime/optim/eigenbasis.h"
#include "runtime/optim/optim_private.h"
#include "runtime/optim/whole.h"

/* SOAP (Vyas et al., "SOAP: improving and stabilizing Shampoo using Adam",
 * arXiv:2409.11321, algorithm 3): Adam in the eigenbasis of Shampoo. For every
 * matrix of a layer, with orthogonal Q (rows) and P (columns),
 *     m += (1 - b1) (g - m),  v += (1 - b2) ((Q^T g P)^2 - v)
 *     D = Q (Q^T m P c / (sqrt(v) + eps)) P^T
 *     L += (1 - b2) (g g^T - L),  R += (1 - b2) (g^T g - R)
 * with Adam's correction c = sqrt(1 - b2^t) / (1 - b1^t), and
 *     w -= lr (D + wd w)
 * Every `frequency` steps Q is recomputed from L Q, made orthonormal by
 * Gram-Schmidt, and P from R P (eigenbasis.h). As in the authors' code, the
 * first gradient only initialises L, R, Q and P: the weights do not change. A
 * side longer than `max_dim` has no basis. Embeddings, the head and vectors are
 * updated by AdamW.
 *
 * Instead of L the code keeps Q^T L Q, the average of x x^T with x = Q^T g P,
 * and instead of R it keeps P^T R P, that of x^T x. In fp32 an element of L has
 * a rounding error of 2^-24 of L's largest eigenvalue, which may exceed a small
 * one, so that bases computed from L would differ between layouts in all those
 * directions. In the other form each element is rounded relative to itself.
 *
 * One rank, the owner (whole.h), has the whole state of a matrix, in fp32; the
 * gradient is sent to it and D back in fp32, too: 4 (S - h) + 4 (H - h) bytes
 * for each matrix and step. The state of a matrix [r,c] has 8 r c + 8 (r^2 +
 * c^2) bytes, distributed over all ranks of a pipeline stage with any ZeRO.
 * Products are computed on the device; bases are made orthonormal in double on
 * the host. */

enum { SIDES = 2 };

/* A matrix that this rank owns; device memory. */
struct owned {
    const struct plait_tensor *tensor;
    size_t side[SIDES]; /* rows, columns */
    float *m, *v;
    float *gram[SIDES], *basis[SIDES]; /* NULL: the side has no basis; gram is
                                        * in the basis */
    float seen;                        /* number of gradients; on the host */
};

struct soap {
    struct plait_optim *optim;
    struct plait_whole *whole;
    int npieces, nowned;
    struct plait_whole_piece *pieces;
    struct owned *owned;
    int next;       /* index of the next owned matrix in a step */
    float *work[2]; /* device: the largest matrix */
    float *square;  /* device: the longest side's square */
    float scale;    /* factor of this step's gradients */
};

static bool takes(const struct plait_tensor *t)
{
    return t->ndim == 2 && t->layer >= 0;
}

static int nstates(const struct plait_tensor *t)
{
    return takes(t) ? 0 : 2;
}

/* -- life ---------------------------------------------------------------- */

static void destroy(struct plait_optim *optim, void *own)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct soap *s = own;

    for (int i = 0; s->owned && i < s->nowned; i++) {
        struct owned *o = &s->owned[i];

        mesh->ops->free(mesh->dev, o->m);
        mesh->ops->free(mesh->dev, o->v);
        for (int k = 0; k < SIDES; k++) {
            mesh->ops->free(mesh->dev, o->gram[k]);
            mesh->ops->free(mesh->dev, o->basis[k]);
        }
    }
    mesh->ops->free(mesh->dev, s->work[0]);
    mesh->ops->free(mesh->dev, s->work[1]);
    mesh->ops->free(mesh->dev, s->square);
    plait_whole_destroy(s->whole);
    free(s->owned);
    free(s->pieces);
    free(s);
}

static int allocate(const struct plait_optim *optim, size_t n, float **x)
{
    struct plait_mesh *mesh = optim->model->mesh;

    *x = mesh->ops->alloc(mesh->dev, n * sizeof(**x));
    return *x ? 0 : -1;
}

static int open_owned(struct plait_optim *optim, struct owned *o)
{
    size_t n = o->side[0] * o->side[1];

    if (allocate(optim, n, &o->m) < 0 || allocate(optim, n, &o->v) < 0)
        return -1;
    for (int k = 0; k < SIDES; k++)
        if (o->side[k] <= (size_t)optim->model->config->optim.max_dim &&
            (allocate(optim, o->side[k] * o->side[k], &o->gram[k]) < 0 ||
             allocate(optim, o->side[k] * o->side[k], &o->basis[k]) < 0))
            return -1;
    return 0;
}

static int open_state(struct plait_optim *optim, struct soap *s)
{
    size_t largest = 0, longest = 0;
    const int *piece;

    s->nowned = plait_whole_owned(s->whole, &piece);
    s->owned = calloc((size_t)s->nowned + 1, sizeof(*s->owned));
    if (!s->owned)
        return -1;
    for (int i = 0; i < s->nowned; i++) {
        struct owned *o = &s->owned[i];

        o->tensor = s->pieces[piece[i]].tensor;
        for (int k = 0; k < SIDES; k++)
            o->side[k] = o->tensor->shape[k];
        if (open_owned(optim, o) < 0)
            return -1;
        if (o->side[0] * o->side[1] > largest)
            largest = o->side[0] * o->side[1];
        for (int k = 0; k < SIDES; k++)
            if (o->basis[k] && o->side[k] > longest)
                longest = o->side[k];
    }
    if (allocate(optim, largest + 1, &s->work[0]) < 0 ||
        allocate(optim, largest + 1, &s->work[1]) < 0)
        return -1;
    return allocate(optim, longest * longest + 1, &s->square);
}

static void list_pieces(struct plait_optim *optim, struct soap *s)
{
    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *of = &optim->slices[i];

        if (takes(of->tensor))
            s->pieces[s->npieces++] = (struct plait_whole_piece){
                of->tensor, of->first, of->count,
                plait_optim_slice_grad(optim, of), 0};
    }
}

static int create(struct plait_optim *optim, void **own,
                  struct plait_error *err)
{
    struct soap *s = calloc(1, sizeof(*s));

    if (!s)
        return plait_errorf(err, "out of memory");
    *own = s;
    s->optim = optim;
    s->pieces = calloc((size_t)optim->nslices + 1, sizeof(*s->pieces));
    if (!s->pieces)
        return plait_errorf(err, "out of memory");
    list_pieces(optim, s);
    return 0;
}

static int open_whole(struct plait_optim *optim, void *own,
                      struct plait_error *err)
{
    struct soap *s = own;

    s->whole = plait_whole_create(optim->model->mesh, PLAIT_F32, s->pieces,
                                  s->npieces, err);
    if (!s->whole)
        return -1;
    if (open_state(optim, s) < 0)
        return plait_errorf(err, "out of memory for SOAP's bases");
    return 0;
}

/* -- products ------------------------------------------------------------ */

/* A product, and its sizes. */
enum product {
    A_B,  /* out[n,o] = a[n,c] b[c,o] */
    A_BT, /* out[n,o] = a[n,c] b[o,c]^T */
    AT_B  /* out[n,o] = a[c,n]^T b[c,o] */
};

struct sizes {
    size_t n, c, o;
};

static int multiply(const struct soap *s, enum product what, float *out,
                    const float *a, const float *b, struct sizes size)
{
    const struct plait_mesh *mesh = s->optim->model->mesh;
    const struct plait_ops *ops = mesh->ops;
    struct plait_linear_dw dw = {
        .type = PLAIT_F32, .N = size.c, .O = size.n, .C = size.o};
    struct plait_linear_dinp by_w = {.N = size.n, .dout.x = a, .dinp = out};
    struct plait_linear by_wt = {.N = size.n, .inp.x = a, .out = out};
    struct plait_weight *w;
    int rc;

    dw.dout.x = a;
    dw.inp.x = b;
    dw.dw = out;
    if (what == AT_B)
        return ops->linear_backward_weight(mesh->q, &dw);
    w = ops->weight_create(
        mesh->dev,
        &(struct plait_weight_data){PLAIT_F32, what == A_B ? size.c : size.o,
                                    what == A_B ? size.o : size.c, b});
    if (!w)
        return -1;
    by_w.w = by_wt.w = w;
    rc = what == A_B ? ops->linear_backward_input(mesh->q, &by_w)
                     : ops->linear_forward(mesh->q, &by_wt);
    ops->weight_destroy(w);
    return rc;
}

static int copy(const struct soap *s, const struct owned *o, float *to,
                const float *from)
{
    const struct plait_mesh *mesh = s->optim->model->mesh;

    return mesh->ops->copy(mesh->q, to, from,
                           o->side[0] * o->side[1] * sizeof(*to));
}

/* work[1] = Q^T x P */
static int project(const struct soap *s, const struct owned *o, const float *x)
{
    size_t rows = o->side[0], cols = o->side[1];
    struct sizes left = {rows, rows, cols}, right = {rows, cols, cols};
    int rc;

    if (o->basis[1])
        rc = multiply(s, A_B, s->work[0], x, o->basis[1], right);
    else
        rc = copy(s, o, s->work[0], x);
    if (rc < 0)
        return -1;
    if (!o->basis[0])
        return copy(s, o, s->work[1], s->work[0]);
    return multiply(s, AT_B, s->work[1], o->basis[0], s->work[0], left);
}

/* x = Q work[1] P^T */
static int project_back(const struct soap *s, const struct owned *o, float *x)
{
    size_t rows = o->side[0], cols = o->side[1];
    struct sizes left = {rows, rows, cols}, right = {rows, cols, cols};
    int rc;

    if (o->basis[1])
        rc = multiply(s, A_BT, s->work[0], s->work[1], o->basis[1], right);
    else
        rc = copy(s, o, s->work[0], s->work[1]);
    if (rc < 0)
        return -1;
    if (!o->basis[0])
        return copy(s, o, x, s->work[0]);
    return multiply(s, A_B, x, o->basis[0], s->work[0], left);
}

/* -- bases --------------------------------------------------------------- */

/* Averages the Gram matrices of x, which is in work[1]. */
static int average_grams(const struct soap *s, const struct owned *o)
{
    const struct plait_mesh *mesh = s->optim->model->mesh;
    float weight = 1 - (float)s->optim->model->config->optim.betas[1];
    const float *x = s->work[1];

    for (int k = 0; k < SIDES; k++) {
        size_t n = o->side[k], across = o->side[!k];
        struct plait_average gram = {.n = n * n,
                                     .scale = 1,
                                     .weight = weight,
                                     .x = s->square,
                                     .y = o->gram[k]};

        if (!o->gram[k])
            continue;
        if (multiply(s, k == 0 ? A_BT : AT_B, s->square, x, x,
                     (struct sizes){n, across, n}) < 0 ||
            mesh->ops->average(mesh->q, &gram) < 0)
            return -1;
    }
    return 0;
}

static int first_bases(const struct soap *s, const struct owned *o,
                       const float *g)
{
    const struct plait_mesh *mesh = s->optim->model->mesh;
    size_t n = o->side[0] * o->side[1];
    float *host = malloc((n + 1) * sizeof(*host)), *side[SIDES] = {NULL};
    int rc = host ? 0 : -1;

    for (int k = 0; k < SIDES && rc == 0; k++) {
        if (o->basis[k])
            side[k] = malloc(o->side[k] * o->side[k] * sizeof(*side[k]));
        rc = o->basis[k] && !side[k] ? -1 : 0;
    }
    if (rc == 0)
        rc = mesh->ops->to_host(mesh->q, host, g, n * sizeof(*host));
    if (rc == 0 && (side[0] || side[1]))
        rc = plait_eigenbasis_first(host, o->side[0], o->side[1], side);
    for (int k = 0; k < SIDES; k++) {
        if (rc == 0 && side[k])
            rc = mesh->ops->to_device(mesh->q, o->basis[k], side[k],
                                      o->side[k] * o->side[k] *
                                          sizeof(*side[k]));
        free(side[k]);
    }
    free(host);
    return rc;
}

/* Permutes the rows or columns of the second moments as the vectors of their
 * basis. */
static int reorder(const struct soap *s, const struct owned *o, int side,
                   const size_t *order)
{
    const struct plait_mesh *mesh = s->optim->model->mesh;
    size_t cols = o->side[1], n = o->side[0] * cols;
    float *from = malloc(2 * n * sizeof(*from)), *to = from ? from + n : NULL;
    int rc;

    if (!from)
        return -1;
    rc = mesh->ops->to_host(mesh->q, from, o->v, n * sizeof(*from));
    for (size_t i = 0; i < n; i++) {
        size_t row = i / cols, col = i % cols;

        to[i] = side == 0 ? from[order[row] * cols + col]
                          : from[row * cols + order[col]];
    }
    if (rc == 0)
        rc = mesh->ops->to_device(mesh->q, o->v, to, n * sizeof(*to));
    free(from);
    return rc;
}

static int next_basis(const struct soap *s, const struct owned *o, int side)
{
    const struct plait_mesh *mesh = s->optim->model->mesh;
    size_t n = o->side[side], bytes = n * n * sizeof(float);
    size_t *order = malloc(n * sizeof(*order));
    float *basis = malloc(bytes), *gram = malloc(bytes);
    int rc = -1;

    if (order && basis && gram &&
        mesh->ops->to_host(mesh->q, gram, o->gram[side], bytes) == 0 &&
        mesh->ops->to_host(mesh->q, basis, o->basis[side], bytes) == 0 &&
        plait_eigenbasis_next(basis, gram, n, order) == 0 &&
        mesh->ops->to_device(mesh->q, o->gram[side], gram, bytes) == 0 &&
        mesh->ops->to_device(mesh->q, o->basis[side], basis, bytes) == 0)
        rc = reorder(s, o, side, order);
    free(order);
    free(basis);
    free(gram);
    return rc;
}

/* -- the step ------------------------------------------------------------ */

/* Replaces g by D; t counts from 1. */
static int make_step(const struct soap *s, const struct owned *o, float *g,
                     double t)
{
    const struct plait_optim_config *c = &s->optim->model->config->optim;
    const struct plait_ops *ops = s->optim->model->mesh->ops;
    struct plait_queue *q = s->optim->model->mesh->q;
    float beta1 = (float)c->betas[0], beta2 = (float)c->betas[1];
    double correct = sqrt(1 - pow(beta2, t)) / (1 - pow(beta1, t));
    size_t n = o->side[0] * o->side[1];
    struct plait_average mean = {
        .n = n, .scale = 1, .weight = 1 - beta1, .x = g, .y = o->m};
    struct plait_average squares = {
        .n = n, .scale = 1, .weight = 1 - beta2, .x = s->work[1], .y = o->v};
    struct plait_divide_root root = {.n = n,
                                     .scale = (float)correct,
                                     .eps = (float)c->eps,
                                     .v = o->v,
                                     .x = s->work[1]};

    if (ops->average(q, &mean) < 0 || project(s, o, g) < 0 ||
        ops->average_squares(q, &squares) < 0 || average_grams(s, o) < 0 ||
        project(s, o, o->m) < 0 || ops->divide_root(q, &root) < 0)
        return -1;
    return project_back(s, o, g);
}

static int step_matrix(void *arg, int piece, void *matrix)
{
    struct soap *s = arg;
    const struct plait_mesh *mesh = s->optim->model->mesh;
    const struct plait_optim_config *c = &s->optim->model->config->optim;
    struct owned *o = &s->owned[s->next++];
    size_t n = o->side[0] * o->side[1];
    struct plait_scale scaled = {
        .type = PLAIT_F32, .x = matrix, .s = s->scale, .n = n};
    double t = o->seen;

    (void)piece;
    o->seen++;
    if (mesh->ops->scale(mesh->q, &scaled) < 0)
        return -1;
    if (t == 0)
        return first_bases(s, o, matrix) < 0 || project(s, o, matrix) < 0 ||
                       average_grams(s, o) < 0
                   ? -1
                   : mesh->ops->fill_zero(mesh->q, matrix, n * sizeof(float));
    if (make_step(s, o, matrix, t) < 0)
        return -1;
    for (int k = 0; k < SIDES && fmod(t, c->frequency) == 0; k++)
        if (o->basis[k] && next_basis(s, o, k) < 0)
            return -1;
    return 0;
}

static int make(struct plait_optim *optim, void *own, float scale, int64_t step)
{
    struct soap *s = own;

    (void)optim;
    (void)step;
    s->next = 0;
    s->scale = scale;
    return plait_whole_run(s->whole, step_matrix, s);
}

/* -- checkpoints --------------------------------------------------------- */

/* Appends a piece to *to (unless NULL) and counts it in *n; does nothing if
 * data is NULL. */
static void add_piece(struct plait_optim_piece *to, int *n,
                      const struct owned *o, const char *state,
                      const size_t shape[2], float *data)
{
    if (!data)
        return;
    if (to)
        to[*n] = (struct plait_optim_piece){.tensor = o->tensor,
                                            .state = state,
                                            .home = PLAIT_PIECE_WEIGHTS,
                                            .shape = {shape[0], shape[1]},
                                            .count = shape[0] * shape[1],
                                            .data = data};
    ++*n;
}

static int pieces(const struct plait_optim *optim, const void *own,
                  struct plait_optim_piece *to)
{
    static const char *const gram[SIDES] = {"left_square", "right_square"};
    static const char *const basis[SIDES] = {"left_basis", "right_basis"};
    const struct soap *s = own;
    int n = 0;

    (void)optim;
    for (int i = 0; i < s->nowned; i++) {
        struct owned *o = &s->owned[i];

        add_piece(to, &n, o, "m", o->side, o->m);
        add_piece(to, &n, o, "v", o->side, o->v);
        for (int k = 0; k < SIDES; k++) {
            size_t square[2] = {o->side[k], o->side[k]};

            add_piece(to, &n, o, gram[k], square, o->gram[k]);
            add_piece(to, &n, o, basis[k], square, o->basis[k]);
        }
        add_piece(to, &n, o, "gradients", (size_t[]){1, 1}, &o->seen);
        if (to)
            to[n - 1].home = PLAIT_PIECE_HOST;
    }
    return n;
}

const struct plait_direction plait_soap = {takes,   nstates, create, open_whole,
                                           destroy, make,    pieces, true};
