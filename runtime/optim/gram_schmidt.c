/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/gram_schmidt.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LANES 8 /* parallel sums, for vector registers */

static double dot(const double *a, const double *b, size_t n)
{
    double sum[LANES] = {0}, all = 0;
    size_t i;

    for (i = 0; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        all += a[i] * b[i];
    for (size_t k = 0; k < LANES; k++)
        all += sum[k];
    return all;
}

/* a += f b */
static void add(double *a, double f, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] += f * b[i];
}

static void multiply(double *a, double f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] *= f;
}

/* Subtracts the component along v from rows first .. n - 1. */
static void take_out(double *rows, size_t n, long first, const double *v)
{
    for (long i = first; i < (long)n; i++)
        add(rows + i * n, -dot(rows + i * n, v, n), v, n);
}

/* The row with the largest remainder; of about equal ones the first, so that
 * rounding does not decide. */
static size_t most_left(const double *rows, size_t n)
{
    double most = 0;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        double left = dot(rows + i * n, rows + i * n, n);

        if (left > 1.001 * most) {
            most = left;
            at = i;
        }
    }
    return at;
}

static size_t first_missing(const bool *missing, size_t wanted)
{
    size_t i = 0;

    if (missing[wanted])
        return wanted;
    while (!missing[i])
        i++;
    return i;
}

static void fill_missing(double *basis, size_t n, bool *missing, size_t count,
                         double *candidates)
{
    for (size_t i = 0; i < n; i++)
        if (!missing[i])
            take_out(candidates, n, 0, basis + i * n);
    while (count-- > 0) {
        size_t from = most_left(candidates, n);
        size_t to = first_missing(missing, from);
        double *v = basis + to * n;

        memcpy(v, candidates + from * n, n * sizeof(*v));
        multiply(v, 1 / sqrt(dot(v, v, n)), n);
        for (size_t i = 0; i < n; i++) /* remove what rounding has left of the
                                        * others */
            if (!missing[i])
                add(v, -dot(v, basis + i * n, n), basis + i * n, n);
        multiply(v, 1 / sqrt(dot(v, v, n)), n);
        missing[to] = false;
        take_out(candidates, n, 0, v);
    }
}

int plait_orthonormalize(double *basis, size_t n, double least,
                         const double *old)
{
    bool *missing = calloc(n, sizeof(*missing));
    double *candidates = NULL;
    size_t count = 0;
    int rc = -1;

    for (size_t i = 0; missing && i < n; i++) {
        double *v = basis + i * n, norm = sqrt(dot(v, v, n));

        missing[i] = !(norm > least);
        count += missing[i];
        if (missing[i])
            continue;
        multiply(v, 1 / norm, n);
        take_out(basis, n, (long)i + 1, v);
    }
    if (count > 0)
        candidates = calloc(n * n, sizeof(*candidates));
    if (missing && (candidates || count == 0)) {
        for (size_t i = 0; candidates && i < n * n; i++)
            candidates[i] = old ? old[i] : i % (n + 1) == 0;
        if (candidates)
            fill_missing(basis, n, missing, count, candidates);
        rc = 0;
    }
    free(missing);
    free(candidates);
    if (rc < 0)
        errno = ENOMEM;
    return rc;
}
