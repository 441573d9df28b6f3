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

/* Algorithm 1 of "The Polar Express" (arXiv:2505.16932) has these for X / 1.01,
 * as the numbers (a / 1.01, b / 1.01^3, c / 1.01^5). */
static const double express[5][3] = {
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673}};

static inline void polynomial_of(double p[3], int step, int is_express)
{
    p[0] = is_express ? express[step][0] / 1.01 : 3.4445;
    p[1] = is_express ? express[step][1] / pow(1.01, 3) : -4.7750;
    p[2] = is_express ? express[step][2] / pow(1.01, 5) : 2.0315;
}

/* By X X^T, whether or not there are more rows than columns. */
static inline void orthogonal_rows(double *x, size_t rows, size_t cols,
                                   int is_express)
{
    double *a = malloc(rows * rows * sizeof(*a));
    double *b = malloc(rows * rows * sizeof(*b));
    double *y = malloc(rows * cols * sizeof(*y)), sum = 0;

    for (size_t i = 0; i < rows * cols; i++)
        sum += x[i] * x[i];
    for (size_t i = 0; i < rows * cols; i++)
        x[i] /= is_express ? sqrt(sum) * 1.01 + 1e-7 : fmax(sqrt(sum), 1e-7);
    for (int step = 0; step < 5; step++) {
        double p[3];

        polynomial_of(p, step, is_express);
        multiply(a, x, x, rows, rows, cols, 1, cols);
        multiply(b, a, a, rows, rows, rows, rows, 1);
        for (size_t i = 0; i < rows * rows; i++)
            b[i] = p[1] * a[i] + p[2] * b[i];
        multiply(y, b, x, rows, cols, rows, cols, 1);
        for (size_t i = 0; i < rows * cols; i++)
            x[i] = p[0] * x[i] + y[i];
    }
    free(a);
    free(b);
    free(y);
}

/* Muon's orthogonalization of x [rows, cols]. */
static inline void orthogonal_reference(double *x, size_t rows, size_t cols,
                                        int is_express)
{
    double *y;

    if (rows <= cols) {
        orthogonal_rows(x, rows, cols, is_express);
        return;
    }
    y = malloc(rows * cols * sizeof(*y));
    for (size_t k = 0; k < rows * cols; k++)
        y[k % cols * rows + k / cols] = x[k];
    orthogonal_rows(y, cols, rows, is_express);
    for (size_t k = 0; k < rows * cols; k++)
        x[k] = y[k % cols * rows + k / cols];
    free(y);
}

#endif
