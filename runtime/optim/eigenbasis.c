/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/eigenbasis.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/optim/eigen.h"

/* A singular value below this share of the largest is rounding of the
 * gradient, an eigenvalue below that share rounding of its fp32 Gram matrix. */
#define LEAST_SINGULAR 0x1p-17
#define LEAST_EIGENVALUE 0x1p-20

static double *allocate(size_t n)
{
    double *x = calloc(n * n + 1, sizeof(*x));

    if (!x)
        errno = ENOMEM;
    return x;
}

/* Rows to columns. */
static void store_basis(float *to, const double *from, size_t n)
{
    size_t i, k;

    for (i = 0; i < n; i++)
        for (k = 0; k < n; k++)
            to[k * n + i] = (float)from[i * n + k];
}

/* -- the first ----------------------------------------------------------- */

/* An element of g, or of its transpose, of which the columns are the shorter
 * side: `step` apart in a column, `next` in a row. */
struct view {
    const float *g;
    size_t rows, cols, step, next;
};

static double at(const struct view *v, size_t row, size_t col)
{
    return v->g[row * v->step + col * v->next];
}

/* gram [cols,cols] = the view's transpose times itself */
static void make_gram(const struct view *v, double *gram)
{
    size_t n = v->cols, r, i, k;

    for (r = 0; r < v->rows; r++)
        for (i = 0; i < n; i++) {
            double x = at(v, r, i);

            for (k = 0; k <= i; k++)
                gram[i * n + k] += x * at(v, r, k);
        }
    for (i = 0; i < n; i++)
        for (k = i + 1; k < n; k++)
            gram[i * n + k] = gram[k * n + i];
}

/* image [rows,rows]: row k is the view times row k of `vectors` [cols,cols], of
 * the first `count`. */
static void make_images(const struct view *v, const double *vectors,
                        size_t count, double *image)
{
    size_t r, i, k;

    for (k = 0; k < count; k++)
        for (r = 0; r < v->rows; r++) {
            double sum = 0;

            for (i = 0; i < v->cols; i++)
                sum += at(v, r, i) * vectors[k * v->cols + i];
            image[k * v->rows + r] = sum;
        }
}

/* Rows of length 1, from which least is then absolute. */
static int finish_basis(double *rows, size_t n, size_t known, float *to)
{
    size_t i, k;

    for (i = 0; i < n; i++) {
        double squares = 0;

        for (k = 0; k < n; k++)
            squares += rows[i * n + k] * rows[i * n + k];
        for (k = 0; k < n; k++)
            rows[i * n + k] *= i < known ? 1 / sqrt(squares) : 0;
    }
    if (plait_orthonormalize(rows, n, 0.5, NULL) < 0)
        return -1;
    store_basis(to, rows, n);
    return 0;
}

/* How many singular values are more than rounding. */
static size_t count_known(const double *value, size_t n)
{
    const double least = LEAST_SINGULAR * LEAST_SINGULAR;
    size_t known = 0;

    while (known < n && value[known] > least * value[0])
        known++;
    return known;
}

static int make_first(const struct view *v, double *gram, double *image,
                      double *value, float *longer, float *shorter)
{
    size_t known;

    make_gram(v, gram);
    if (plait_eigenvectors(gram, v->cols, value) < 0)
        return -1;
    known = count_known(value, v->cols);
    if (longer) {
        make_images(v, gram, known, image);
        if (finish_basis(image, v->rows, known, longer) < 0)
            return -1;
    }
    return shorter ? finish_basis(gram, v->cols, known, shorter) : 0;
}

int plait_eigenbasis_first(const float *g, size_t rows, size_t cols,
                           float *side[2])
{
    int wide = cols > rows;
    struct view v = {g, wide ? cols : rows, wide ? rows : cols, wide ? 1 : cols,
                     wide ? cols : 1};
    double *gram = allocate(v.cols), *image = NULL;
    double *value = calloc(v.cols + 1, sizeof(*value));
    int rc = -1;

    if (side[wide])
        image = allocate(v.rows);
    errno = ENOMEM;
    if (gram && value && (image || !side[wide]))
        rc = make_first(&v, gram, image, value, side[wide], side[!wide]);
    free(gram);
    free(image);
    free(value);
    return rc;
}

/* -- the following ------------------------------------------------------- */

struct estimate {
    double value;
    size_t at;
};

/* Largest first; as they were where they are equal. */
static int compare_estimates(const void *left, const void *right)
{
    const struct estimate *a = left, *b = right;

    if (a->value != b->value)
        return a->value < b->value ? 1 : -1;
    return (a->at > b->at) - (a->at < b->at);
}

/* q^T gram q of each vector q; returns the length of the longest product. */
static double make_estimates(const float *basis, const float *product, size_t n,
                             struct estimate *list)
{
    double longest = 0;
    size_t i, k;

    for (i = 0; i < n; i++) {
        double squares = 0;

        list[i] = (struct estimate){0, i};
        for (k = 0; k < n; k++) {
            double x = product[i * n + k];

            list[i].value += x * basis[k * n + i];
            squares += x * x;
        }
        longest = squares <= longest ? longest : squares; /* or NaN */
    }
    return sqrt(longest);
}

static int make_next(float *basis, const float *product, size_t n,
                     struct estimate *list, double *rows, double *old)
{
    double least = LEAST_EIGENVALUE * make_estimates(basis, product, n, list);
    size_t i, k;

    if (!isfinite(least)) {
        errno = EDOM;
        return -1;
    }
    for (i = 0; i < n; i++)
        if (list[i].value <= least)
            list[i].value = 0;
    qsort(list, n, sizeof(*list), compare_estimates);
    for (i = 0; i < n; i++)
        for (k = 0; k < n; k++) {
            rows[i * n + k] = product[list[i].at * n + k];
            old[i * n + k] = basis[k * n + list[i].at];
        }
    if (plait_orthonormalize(rows, n, least, old) < 0)
        return -1;
    store_basis(basis, rows, n);
    return 0;
}

int plait_eigenbasis_next(float *basis, const float *product, size_t n,
                          size_t *order)
{
    struct estimate *list = calloc(n + 1, sizeof(*list));
    double *rows = allocate(n), *old = allocate(n);
    int rc = -1;
    size_t i;

    errno = ENOMEM;
    if (list && rows && old)
        rc = make_next(basis, product, n, list, rows, old);
    for (i = 0; rc == 0 && i < n; i++)
        order[i] = list[i].at;
    free(list);
    free(rows);
    free(old);
    return rc;
}
