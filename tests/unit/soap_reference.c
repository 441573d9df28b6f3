/* SPDX-License-Identifier: Apache-2.0 */
#include "soap_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct side {
    size_t n;
    double *gram, *basis; /* [n,n]; each column of basis is a vector */
};

struct soap_reference {
    size_t rows, cols;
    int seen;
    double slack;
    double *w, *g, *m, *v, *x, *y;
    struct side side[2];
};

static double *make(size_t n)
{
    return calloc(n, sizeof(double));
}

struct soap_reference *soap_reference_create(size_t rows, size_t cols,
                                             const float *weights)
{
    struct soap_reference *r = calloc(1, sizeof(*r));
    double **all[] = {&r->w, &r->g, &r->m, &r->v, &r->x, &r->y};
    size_t i;

    r->rows = rows;
    r->cols = cols;
    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        *all[i] = make(rows * cols);
    for (i = 0; i < rows * cols; i++)
        r->w[i] = weights[i];
    for (i = 0; i < 2; i++) {
        r->side[i].n = i ? cols : rows;
        r->side[i].gram = make(r->side[i].n * r->side[i].n);
        r->side[i].basis = make(r->side[i].n * r->side[i].n);
    }
    return r;
}

void soap_reference_destroy(struct soap_reference *r)
{
    double *all[] = {r->w,
                     r->g,
                     r->m,
                     r->v,
                     r->x,
                     r->y,
                     r->side[0].gram,
                     r->side[0].basis,
                     r->side[1].gram,
                     r->side[1].basis};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    free(r);
}

double *soap_reference_gradient(struct soap_reference *r)
{
    return r->g;
}

const double *soap_reference_weights(const struct soap_reference *r)
{
    return r->w;
}

double soap_reference_slack(const struct soap_reference *r)
{
    return r->slack;
}

/* -- bases --------------------------------------------------------------- */

/* Rotates columns p and q so that a[p][q] becomes 0. */
static void rotate(double *a, double *vectors, size_t n, size_t p, size_t q)
{
    double theta, t, c, s;

    if (a[p * n + q] == 0)
        return;
    theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
    t = copysign(1, theta) / (fabs(theta) + sqrt(theta * theta + 1));
    c = 1 / sqrt(t * t + 1);
    s = t * c;
    for (size_t k = 0; k < n; k++) {
        double x = a[k * n + p], y = a[k * n + q];

        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
    }
    for (size_t k = 0; k < n; k++) {
        double x = a[p * n + k], y = a[q * n + k];

        a[p * n + k] = c * x - s * y;
        a[q * n + k] = s * x + c * y;
    }
    for (size_t k = 0; k < n; k++) {
        double x = vectors[k * n + p], y = vectors[k * n + q];

        vectors[k * n + p] = c * x - s * y;
        vectors[k * n + q] = s * x + c * y;
    }
}

static void swap_columns(double *a, size_t rows, size_t cols, size_t p,
                         size_t q)
{
    for (size_t k = 0; k < rows; k++) {
        double was = a[k * cols + p];

        a[k * cols + p] = a[k * cols + q];
        a[k * cols + q] = was;
    }
}

static double left_of(const double *x, size_t n)
{
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += x[k] * x[k];
    return sum;
}

/* Subtracts from x its projections onto columns first .. last - 1. */
static void remove_columns(double *x, const double *basis, size_t n,
                           size_t first, size_t last)
{
    for (size_t j = first; j < last; j++) {
        double dot = 0;

        for (size_t k = 0; k < n; k++)
            dot += x[k] * basis[k * n + j];
        for (size_t k = 0; k < n; k++)
            x[k] -= dot * basis[k * n + j];
    }
}

/* Finds the unit vector that is furthest from the span of the columns before
 * `count`, and subtracts its projection onto them. */
static void nearest_unit(double *best, const double *basis, size_t n,
                         size_t count)
{
    double *x = make(n), most = 0;

    for (size_t i = 0; i < n; i++) {
        memset(x, 0, n * sizeof(*x));
        x[i] = 1;
        remove_columns(x, basis, n, 0, count);
        remove_columns(x, basis, n, 0, count);
        if (left_of(x, n) <= 1.001 * most)
            continue;
        most = left_of(x, n);
        memcpy(best, x, n * sizeof(*x));
    }
    free(x);
}

static void put_column(double *basis, size_t n, size_t j, const double *x)
{
    double norm = sqrt(left_of(x, n));

    for (size_t k = 0; k < n; k++)
        basis[k * n + j] = x[k] / norm;
}

/* The eigenvectors of a Gram matrix of rank `rank`, completed by orthonormal
 * vectors near unit vectors. */
static void first_basis(struct side *s, size_t rank)
{
    size_t n = s->n, i, j, sweep;
    double *a = make(n * n), *x = make(n);

    memcpy(a, s->gram, n * n * sizeof(*a));
    for (i = 0; i < n; i++)
        s->basis[i * n + i] = 1;
    for (sweep = 0; sweep < 30; sweep++)
        for (i = 0; i < n; i++)
            for (j = i + 1; j < n; j++)
                rotate(a, s->basis, n, i, j);
    for (i = 0; i < n; i++)
        for (j = i + 1; j < n; j++)
            if (a[j * n + j] > a[i * n + i]) {
                double was = a[i * n + i];

                a[i * n + i] = a[j * n + j];
                a[j * n + j] = was;
                swap_columns(s->basis, n, n, i, j);
            }
    for (i = rank; i < n; i++) {
        nearest_unit(x, s->basis, n, i);
        put_column(s->basis, n, i, x);
    }
    free(a);
    free(x);
}

/* Orthonormalizes the columns of gram basis, in the order of their eigenvalues,
 * by Gram and Schmidt; v's rows (side 0) or columns are reordered alike. */
static void next_basis(struct soap_reference *r, int side)
{
    struct side *s = &r->side[side];
    size_t n = s->n, i, j, k;
    double *z = make(n * n), *value = make(n), *x = make(n);

    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++)
            for (k = 0; k < n; k++)
                z[i * n + j] += s->gram[i * n + k] * s->basis[k * n + j];
    for (j = 0; j < n; j++)
        for (k = 0; k < n; k++)
            value[j] += s->basis[k * n + j] * z[k * n + j];
    for (i = 0; i < n; i++)
        for (j = i + 1; j < n; j++)
            if (value[j] > value[i]) {
                swap_columns(value, 1, n, i, j);
                swap_columns(z, n, n, i, j);
                if (side == 1)
                    swap_columns(r->v, r->rows, n, i, j);
                for (k = 0; k < r->cols && side == 0; k++)
                    swap_columns(r->v + k, 1, r->rows * r->cols, i * r->cols,
                                 j * r->cols);
            }
    for (j = 0; j < n; j++) {
        for (k = 0; k < n; k++)
            x[k] = z[k * n + j];
        remove_columns(x, s->basis, n, 0, j);
        remove_columns(x, s->basis, n, 0, j);
        put_column(s->basis, n, j, x);
    }
    free(z);
    free(value);
    free(x);
}

/* -- the step ------------------------------------------------------------ */

/* to [rows,cols] = left x right, where either factor is that side's basis, its
 * transpose, or the identity. */
static void rotate_sides(const struct soap_reference *r, double *to,
                         const double *x, int back, const int *has)
{
    size_t rows = r->rows, cols = r->cols, i, j, k;
    double *half = make(rows * cols);

    for (i = 0; i < rows; i++)
        for (j = 0; j < cols; j++)
            for (k = 0; k < cols; k++)
                half[i * cols + j] +=
                    x[i * cols + k] *
                    (!has[1] ? k == j
                             : r->side[1]
                                   .basis[back ? j * cols + k : k * cols + j]);
    memset(to, 0, rows * cols * sizeof(*to));
    for (i = 0; i < rows; i++)
        for (k = 0; k < rows; k++)
            for (j = 0; j < cols; j++)
                to[i * cols + j] +=
                    half[k * cols + j] *
                    (!has[0] ? k == i
                             : r->side[0]
                                   .basis[back ? i * rows + k : k * rows + i]);
    free(half);
}

static void average_grams(struct soap_reference *r, double beta)
{
    size_t rows = r->rows, cols = r->cols, i, j, k;

    for (i = 0; i < rows * rows; i++)
        r->side[0].gram[i] *= beta;
    for (i = 0; i < cols * cols; i++)
        r->side[1].gram[i] *= beta;
    for (i = 0; i < rows; i++)
        for (j = 0; j < rows; j++)
            for (k = 0; k < cols; k++)
                r->side[0].gram[i * rows + j] +=
                    (1 - beta) * r->g[i * cols + k] * r->g[j * cols + k];
    for (i = 0; i < cols; i++)
        for (j = 0; j < cols; j++)
            for (k = 0; k < rows; k++)
                r->side[1].gram[i * cols + j] +=
                    (1 - beta) * r->g[k * cols + i] * r->g[k * cols + j];
}

/* r->y = the direction; t from 1 */
static void make_direction(struct soap_reference *r,
                           const struct plait_optim_config *c, const int *has)
{
    const double *b = c->betas;
    double t = r->seen;
    size_t n = r->rows * r->cols, i;

    rotate_sides(r, r->x, r->g, 0, has);
    for (i = 0; i < n; i++) {
        r->m[i] = b[0] * r->m[i] + (1 - b[0]) * r->g[i];
        r->v[i] = b[1] * r->v[i] + (1 - b[1]) * r->x[i] * r->x[i];
    }
    rotate_sides(r, r->x, r->m, 0, has);
    for (i = 0; i < n; i++)
        r->x[i] *= sqrt(1 - pow(b[1], t)) / (1 - pow(b[0], t)) /
                   (sqrt(r->v[i]) + c->eps);
    rotate_sides(r, r->y, r->x, 1, has);
}

/* The largest error of the direction if elements of the projected gradient have
 * errors of 2^-22 of their mean, which are divided by sqrt(v). */
static double direction_slack(const struct soap_reference *r,
                              const struct plait_optim_config *c)
{
    size_t n = r->rows * r->cols, i;
    double rounding = 0x1p-22 * sqrt(left_of(r->g, n) / (double)n), sum = 0;

    for (i = 0; i < n; i++) {
        double off = rounding / (sqrt(r->v[i]) + c->eps);

        sum += off < 2 ? off * off : 4;
    }
    return sqrt(sum);
}

void soap_reference_step(struct soap_reference *r,
                         const struct plait_optim_config *c, double lr)
{
    size_t n = r->rows * r->cols, i;
    size_t rank = r->rows < r->cols ? r->rows : r->cols;
    int has[2] = {r->rows <= (size_t)c->max_dim, r->cols <= (size_t)c->max_dim};

    memset(r->y, 0, n * sizeof(*r->y));
    if (r->seen > 0) {
        make_direction(r, c, has);
        r->slack += lr * direction_slack(r, c);
    }
    for (i = 0; i < n; i++)
        r->w[i] -= lr * (r->y[i] + c->weight_decay * r->w[i]);
    average_grams(r, c->betas[1]);
    for (int k = 0; k < 2; k++) {
        if (has[k] && r->seen == 0)
            first_basis(&r->side[k], rank);
        else if (has[k] && r->seen % c->frequency == 0)
            next_basis(r, k);
    }
    r->seen++;
}
