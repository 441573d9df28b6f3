/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/eigenbasis.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/eigen.h"
#include "runtime/optim/gram_schmidt.h"

/* A singular value is either known, or only the gradient's rounding. The limit
 * is placed in the widest gap between these fractions of the largest one: a
 * value near a fixed limit would be known in one layout and not in another.
 * Below UPPER a vector has an error of 2^-12 or more if the gradient is rounded
 * to fp32. */
#define UPPER 0x1p-12
#define LOWER 0x1p-15

/* Added to every eigenvalue, as a fraction of the largest. */
#define SHIFT 0x1p-24

static double *allocate(size_t n)
{
    double *x = calloc(n * n + 1, sizeof(*x));

    if (!x)
        errno = ENOMEM;
    return x;
}

/* Transposes: rows become columns. */
static void store_basis(float *to, const double *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            to[k * n + i] = (float)from[i * n + k];
}

/* -- the first basis ----------------------------------------------------- */

/* The matrix g or its transpose, such that its columns are the shorter side.
 * Strides: `step` from row to row, `next` from column to column. */
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
    size_t n = v->cols;

    for (size_t r = 0; r < v->rows; r++)
        for (size_t i = 0; i < n; i++) {
            double x = at(v, r, i);

            for (size_t k = 0; k <= i; k++)
                gram[i * n + k] += x * at(v, r, k);
        }
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            gram[i * n + k] = gram[k * n + i];
}

/* image [rows,rows]: row k = the view times row k of `vectors` [cols,cols], for
 * the first `count` rows. */
static void make_images(const struct view *v, const double *vectors,
                        size_t count, double *image)
{
    for (size_t k = 0; k < count; k++)
        for (size_t r = 0; r < v->rows; r++) {
            double sum = 0;

            for (size_t i = 0; i < v->cols; i++)
                sum += at(v, r, i) * vectors[k * v->cols + i];
            image[k * v->rows + r] = sum;
        }
}

/* Scales the rows to length 1, because plait_orthonormalize()'s `least` is
 * absolute, and completes the basis. */
static int finish_basis(double *rows, size_t n, size_t known, float *to)
{
    for (size_t i = 0; i < n; i++) {
        double squares = 0;

        for (size_t k = 0; k < n; k++)
            squares += rows[i * n + k] * rows[i * n + k];
        for (size_t k = 0; k < n; k++)
            rows[i * n + k] *= i < known ? 1 / sqrt(squares) : 0;
    }
    if (plait_orthonormalize(rows, n, 0.5, NULL) < 0)
        return -1;
    store_basis(to, rows, n);
    return 0;
}

/* How many eigenvalues, largest first, are squares of known singular values. */
static size_t count_known(const double *value, size_t n)
{
    const double upper = UPPER * UPPER * value[0];
    const double lower = LOWER * LOWER * value[0];
    double widest = 0;
    size_t known = 0;

    for (size_t k = 1; k <= n && value[k - 1] > lower; k++) {
        double next = k < n ? fmax(value[k], lower) : lower;
        double gap = fmin(value[k - 1], upper) / next;

        if (gap > widest) {
            widest = gap;
            known = k;
        }
    }
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

/* -- the following bases ------------------------------------------------- */

struct estimate {
    double value;
    size_t at;
};

/* Largest first; equal ones keep their order. */
static int compare_estimates(const void *left, const void *right)
{
    const struct estimate *a = left, *b = right;

    if (a->value != b->value)
        return a->value < b->value ? 1 : -1;
    return (a->at > b->at) - (a->at < b->at);
}

/* The update of one basis; in double, one vector per row. */
struct next {
    size_t n;
    struct estimate *list;
    double *turn; /* row i: the new vector i in the old basis */
    double *gram, *half, *rows;
};

/* out [n,n] = a b^T */
static void multiply_rows(double *out, const double *a, const double *b,
                          size_t n)
{
    size_t j;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            double sum[4] = {0};

            for (j = 0; j + 4 <= n; j += 4) {
                sum[0] += a[i * n + j] * b[k * n + j];
                sum[1] += a[i * n + j + 1] * b[k * n + j + 1];
                sum[2] += a[i * n + j + 2] * b[k * n + j + 2];
                sum[3] += a[i * n + j + 3] * b[k * n + j + 3];
            }
            for (; j < n; j++)
                sum[0] += a[i * n + j] * b[k * n + j];
            out[i * n + k] = sum[0] + sum[1] + sum[2] + sum[3];
        }
}

/* Sorts the vectors by estimated eigenvalue. -1 if gram is not finite. */
static int order_vectors(const struct next *x)
{
    size_t n = x->n;

    for (size_t i = 0; i < n * n; i++)
        if (!isfinite(x->gram[i])) {
            errno = EDOM;
            return -1;
        }
    for (size_t i = 0; i < n; i++)
        x->list[i] = (struct estimate){x->gram[i * n + i], i};
    qsort(x->list, n, sizeof(*x->list), compare_estimates);
    return 0;
}

/* Gram-Schmidt; here no row is 0 or depends on the others. */
static int make_turn(const struct next *x)
{
    size_t n = x->n;
    double shift = SHIFT * x->list[0].value;

    for (size_t i = 0; i < n; i++) {
        size_t from = x->list[i].at;

        for (size_t k = 0; k < n; k++)
            x->turn[i * n + k] =
                x->gram[from * n + k] + (k == from ? shift : 0);
    }
    return plait_orthonormalize(x->turn, n, 0, NULL);
}

static int make_next(const struct next *x, float *basis, float *gram)
{
    size_t n = x->n;

    if (order_vectors(x) < 0)
        return -1;
    if (x->list[0].value <= 0) /* all gradients were 0; the order stays */
        return 0;
    if (make_turn(x) < 0)
        return -1;
    multiply_rows(x->half, x->turn, x->gram, n);
    multiply_rows(x->gram, x->half, x->turn, n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            gram[i * n + k] =
                (float)((x->gram[i * n + k] + x->gram[k * n + i]) / 2);
            x->half[i * n + k] = basis[i * n + k];
        }
    multiply_rows(x->rows, x->turn, x->half, n);
    /* otherwise the rounding errors of all bases would add up */
    if (plait_orthonormalize(x->rows, n, 0, NULL) < 0)
        return -1;
    store_basis(basis, x->rows, n);
    return 0;
}

int plait_eigenbasis_next(float *basis, float *gram, size_t n, size_t *order)
{
    struct next x = {n,           calloc(n + 1, sizeof(*x.list)),
                     allocate(n), allocate(n),
                     allocate(n), allocate(n)};
    int rc = -1;

    errno = ENOMEM;
    if (x.list && x.turn && x.gram && x.half && x.rows) {
        for (size_t i = 0; i < n * n; i++)
            x.gram[i] = gram[i];
        rc = make_next(&x, basis, gram);
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        order[i] = x.list[i].at;
    free(x.list);
    free(x.turn);
    free(x.gram);
    free(x.half);
    free(x.rows);
    return rc;
}
