/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "topology/predict/estimate_shape.h"

/* The memory of optimizers whose state is not the same for every weight:
 * runtime/optim (muon.c, adafactor.c, soap.c, whole.c, orthogonal.c,
 * codes.c). */

#define WIDE 1048576.0 /* numbers converted to fp32 at a time */

/* Of all matrices of a region. */
struct matrices {
    double weights; /* those of a tp rank, times the tp ranks */
    double sides;   /* rows and columns */
};

/* A module that predicts a token further may have a table, too, which is no
 * matrix to whom other tables are none. */
static bool counts(const struct plait_tensor_row *row,
                   enum plait_region_kind kind)
{
    return plait_tensor_is_matrix(row) &&
           !(kind == PLAIT_KIND_MTP && row->role == PLAIT_ROLE_TABLE);
}

static struct matrices sum_matrices(const struct plait_shape *s,
                                    enum plait_region_kind kind)
{
    const struct plait_tensor_row *row = NULL;
    bool dense = kind == PLAIT_KIND_DENSE;
    const struct plait_sides *z = dense ? &s->dense : &s->sides;
    struct matrices sum = {0};

    if (dense)
        kind = PLAIT_KIND_LAYER;

    while ((row = plait_tensor_next(z, kind, row)))
        if (counts(row, kind)) {
            sum.weights += plait_tensor_weights(z, row) *
                           (plait_tensor_axis(z, row) < 0 ? s->tp : 1);
            sum.sides +=
                (double)z->at[row->rows].whole + z->at[row->cols].whole;
        }
    return sum;
}

/* Layers of a stage; `dense` have no experts in a model that has them, and
 * `mtp` of the others are those of modules that predict a token further. */
struct layers {
    int other, dense, mtp;
};

static double matrix_weights(const struct plait_shape *s, struct layers n)
{
    double layer = sum_matrices(s, PLAIT_KIND_LAYER).weights * n.other;
    double dense = sum_matrices(s, PLAIT_KIND_DENSE).weights * n.dense +
                   sum_matrices(s, PLAIT_KIND_MTP).weights * n.mtp;
    double experts = (double)s->m->experts / s->ep *
                     sum_matrices(s, PLAIT_KIND_EXPERT).weights /
                     fmax(plait_shape_shards(s) / s->ep, 1) * n.other;

    return ((layer + dense) / plait_shape_shards(s) + experts) / s->tp;
}

/* Rows and columns of each matrix of the layers. */
static double layer_sides(const struct plait_shape *s, struct layers n)
{
    int experts = s->m->experts / s->ep;

    return n.other * (sum_matrices(s, PLAIT_KIND_LAYER).sides +
                      experts * sum_matrices(s, PLAIT_KIND_EXPERT).sides) +
           n.dense * sum_matrices(s, PLAIT_KIND_DENSE).sides +
           n.mtp * sum_matrices(s, PLAIT_KIND_MTP).sides;
}

/* The same of the matrices outside of layers. */
static double table_sides(const struct plait_shape *s, int embedding, int head)
{
    bool copy = s->m->mtp_layers && s->sides.has & PLAIT_HAS_TABLE_APART;

    return (embedding ? sum_matrices(s, PLAIT_KIND_EMBEDDING).sides : 0) +
           (head ? sum_matrices(s, PLAIT_KIND_HEAD).sides : 0) +
           (head && copy ? (double)s->m->vocab + s->m->hidden : 0);
}

/* The most weights of a matrix, and the most of the shorter sides. */
struct largest {
    double weights, side;
};

static void widen(const struct plait_shape *s, enum plait_region_kind kind,
                  struct largest *most)
{
    bool dense = kind == PLAIT_KIND_DENSE;
    const struct plait_sides *z = dense ? &s->dense : &s->sides;
    const struct plait_tensor_row *row = NULL;

    if (dense)
        kind = PLAIT_KIND_LAYER;
    while ((row = plait_tensor_next(z, kind, row))) {
        double rows = (double)z->at[row->rows].whole;
        double cols = (double)z->at[row->cols].whole;

        if (!counts(row, kind))
            continue;
        most->weights = fmax(most->weights, rows * cols);
        most->side = fmax(most->side, fmin(rows, cols));
    }
}

/* Muon's matrices in transfer, and the products. */
static double work_bytes(const struct plait_shape *s, struct layers n)
{
    struct largest most = {0};
    double matrices =
        1 + (s->tp > 1 ? 2 : plait_shape_shards(s) > 1 || s->element < 4);
    double squares, sum;

    if (n.other)
        widen(s, PLAIT_KIND_LAYER, &most);
    if (n.other && s->m->experts)
        widen(s, PLAIT_KIND_EXPERT, &most);
    if (n.dense)
        widen(s, PLAIT_KIND_DENSE, &most);
    if (n.mtp)
        widen(s, PLAIT_KIND_MTP, &most);
    squares = most.side * most.side;
    sum = s->element * (matrices * most.weights + 2 * squares);
    return sum + (s->element < 4 ? 4 * fmax(WIDE, squares) : 0);
}

/* -- SOAP ---------------------------------------------------------------- */

#define MATRICES (2 * PLAIT_TENSOR_ROWS) /* shapes of them, at most */

struct matrix {
    double rows, cols, count; /* of a stage */
};

/* Add the matrices of a region of which a stage has `times`. */
static int list_region(const struct plait_shape *s, enum plait_region_kind kind,
                       double times, struct matrix *list, int n)
{
    bool dense = kind == PLAIT_KIND_DENSE;
    const struct plait_sides *z = dense ? &s->dense : &s->sides;
    const struct plait_tensor_row *row = NULL;

    if (dense)
        kind = PLAIT_KIND_LAYER;
    while (times > 0 && (row = plait_tensor_next(z, kind, row)))
        if (counts(row, kind))
            list[n++] = (struct matrix){(double)z->at[row->rows].whole,
                                        (double)z->at[row->cols].whole, times};
    return n;
}

/* A stage's matrices by their shapes, those of one expert-parallel rank's
 * experts among them. Returns how many shapes. */
static int list_matrices(const struct plait_shape *s, struct layers layers,
                         struct matrix list[MATRICES])
{
    int n = list_region(s, PLAIT_KIND_LAYER, layers.other, list, 0);

    n = list_region(s, PLAIT_KIND_DENSE, layers.dense, list, n);
    n = list_region(s, PLAIT_KIND_MTP, layers.mtp, list, n);
    return list_region(s, PLAIT_KIND_EXPERT,
                       (double)s->m->experts * layers.other, list, n);
}

static double square_of(const struct plait_shape *s, double side)
{
    return side <= s->c->optim.max_dim ? side * side : 0;
}

/* Numbers that the owner of a matrix keeps. */
static double owned_numbers(const struct plait_shape *s, const struct matrix *m)
{
    return 2 *
           (m->rows * m->cols + square_of(s, m->rows) + square_of(s, m->cols));
}

static int compare_costs(const void *left, const void *right)
{
    const struct matrix *a = left, *b = right;
    double x = plait_optim_matrix_cost(a->rows, a->cols, a->rows);
    double y = plait_optim_matrix_cost(b->rows, b->cols, b->rows);

    return (x < y) - (x > y);
}

/* Consecutive ranks that own as much. */
struct owners {
    int n;
    double load, numbers;
};

static int least_loaded(const struct owners *o, int n)
{
    int at = 0;

    for (int i = 1; i < n; i++)
        if (plait_optim_takes(o[i].load, i, o[at].load, at))
            at = i;
    return at;
}

static double spread(const struct owners *o, int n)
{
    double least = o[0].load, most = least;

    for (int i = 1; i < n; i++) {
        least = fmin(least, o[i].load);
        most = fmax(most, o[i].load);
    }
    return most - least;
}

/* Deal matrices of one shape, each to the rank with the least work so far, of
 * equals to the first. Where all loads differ by less than one matrix costs,
 * one more for each rank changes no difference: whole rounds are counted at
 * once. Returns the new length of `o`, which grows by one at most. */
static int deal(const struct plait_shape *s, const struct matrix *m, int ranks,
                struct owners *o, int n)
{
    double cost = plait_optim_matrix_cost(m->rows, m->cols, m->rows);
    double numbers = owned_numbers(s, m);
    int64_t left = (int64_t)m->count, rounds;

    while (left > 0) {
        int to = least_loaded(o, n);

        rounds = spread(o, n) < cost ? left / ranks : 0;
        if (rounds == 0 && o[to].n > left) {
            memmove(&o[to + 1], &o[to], (size_t)(n++ - to) * sizeof(*o));
            o[to].n = (int)left;
            o[to + 1].n -= (int)left;
        }
        for (int i = 0; i < n; i++)
            if (rounds || i == to) {
                double times = rounds ? (double)rounds : 1;

                o[i].load += times * cost;
                o[i].numbers += times * numbers;
            }
        left -= rounds ? rounds * ranks : o[to].n;
    }
    return n;
}

/* Numbers that the fullest of `ranks` owns: the expensive matrices are dealt
 * first. */
static double fullest_owner(const struct plait_shape *s, struct matrix *list,
                            int shapes, int ranks)
{
    struct owners o[MATRICES + 1] = {{ranks, 0, 0}};
    double most = 0;
    int n = 1;

    qsort(list, shapes, sizeof(*list), compare_costs);
    for (int i = 0; i < shapes; i++)
        n = deal(s, &list[i], ranks, o, n);
    for (int i = 0; i < n; i++)
        most = fmax(most, o[i].numbers);
    return most;
}

static double soap_bytes(const struct plait_shape *s, struct layers layers)
{
    struct matrix list[MATRICES];
    int ranks = s->tp * s->dp * s->cp;
    int shapes = list_matrices(s, layers, list);
    double largest = 0, square = 0;
    double matrices = 2 + (s->tp > 1 ? 2 : plait_shape_shards(s) > 1);

    for (int k = 0; k < shapes; k++) {
        largest = fmax(largest, list[k].rows * list[k].cols);
        square = fmax(square, square_of(s, list[k].rows));
        square = fmax(square, square_of(s, list[k].cols));
    }
    return 4 * (fullest_owner(s, list, shapes, ranks) + matrices * largest +
                square);
}

/* An embedding that both ends of the pipeline have is kept as two fp32 numbers
 * for each weight instead of codes. ZeRO cuts it together with GPT-2's
 * positions, or with the module that predicts a token further. */
static double tied_bytes(const struct plait_shape *s, int embedding, int head)
{
    double table = (double)s->m->vocab * s->m->hidden / s->tp, region = table;

    if (!plait_model_shares_table(s->m) || s->pp == 1 || (!embedding && !head))
        return 0;
    if (embedding && s->m->family == PLAIT_GPT2)
        region += (double)s->m->seq_len * s->m->hidden;
    if (head && !s->m->tie_embeddings)
        region = plait_tensors_elements(&s->sides, PLAIT_KIND_LAYER) +
                 plait_tensors_elements(&s->sides, PLAIT_KIND_MTP);
    return (8 - plait_optim_state_bytes(&s->c->optim)) *
           fmin(table, region / plait_shape_shards(s));
}

double plait_shape_uneven_bytes(const struct plait_shape *s, int rank)
{
    const struct plait_optim_config *c = &s->c->optim;
    const struct plait_optimizer *o = &plait_optimizers[c->kind];
    bool embedding = rank == 0, head = rank == s->pp - 1;
    struct layers n = {.dense = plait_shape_dense(s, rank),
                       .mtp = head ? s->m->mtp_layers : 0};

    n.other = plait_shape_layers(s, rank) - n.dense + n.mtp;
    if (o->codes)
        return tied_bytes(s, embedding, head);
    if (!o->uneven)
        return 0;
    if (c->kind != PLAIT_OPTIM_ADAFACTOR && !n.other && !n.dense)
        return 0;
    if (c->kind == PLAIT_OPTIM_ADAFACTOR)
        return 8 * (layer_sides(s, n) + table_sides(s, embedding, head));
    return (o->matrix - o->bytes) * matrix_weights(s, n) +
           (c->kind == PLAIT_OPTIM_SOAP ? soap_bytes(s, n) : work_bytes(s, n));
}
