/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_ORTHOGONAL_REFERENCE_H
#define PLAIT_TESTS_UNIT_ORTHOGONAL_REFERENCE_H

#include <math.h>
#include <stdlib.h>

/* c[n,m] = a[n,k] b[k,m], where element (k, j) of b is b[k * sk + j * sj] */
static inline void multiply(double *c, const double *a, const double *b,
                            size_t n, size_t m, size_t k, size_t sk, size_t sj)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++) {
            double sum = 0;

            for (size_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * sk + j * sj];
            c[i * m + j] = sum;
        }
}

/* By X X^T, whether or not there are more rows than columns. */
static inline void orthogonal_rows(double *x, size_t rows, size_t cols)
{
    double *a = malloc(rows * rows * sizeof(*a));
    double *b = malloc(rows * rows * sizeof(*b));
    double *y = malloc(rows * cols * sizeof(*y)), sum = 0;

    for (size_t i = 0; i < rows * cols; i++)
        sum += x[i] * x[i];
    for (size_t i = 0; i < rows * cols; i++)
        x[i] /= fmax(sqrt(sum), 1e-7);
    for (int step = 0; step < 5; step++) {
        multiply(a, x, x, rows, rows, cols, 1, cols);
        multiply(b, a, a, rows, rows, rows, rows, 1);
        for (size_t i = 0; i < rows * rows; i++)
            b[i] = -4.7750 * a[i] + 2.0315 * b[i];
        multiply(y, b, x, rows, cols, rows, cols, 1);
        for (size_t i = 0; i < rows * cols; i++)
            x[i] = 3.4445 * x[i] + y[i];
    }
    free(a);
    free(b);
    free(y);
}

/* Muon's orthogonalization of x [rows, cols]. */
static inline void orthogonal_reference(double *x, size_t rows, size_t cols)
{
    double *y;

    if (rows <= cols) {
        orthogonal_rows(x, rows, cols);
        return;
    }
    y = malloc(rows * cols * sizeof(*y));
    for (size_t k = 0; k < rows * cols; k++)
        y[k % cols * rows + k / cols] = x[k];
    orthogonal_rows(y, cols, rows);
    for (size_t k = 0; k < rows * cols; k++)
        x[k] = y[k % cols * rows + k / cols];
    free(y);
}

#endif
