/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/eigen.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_PER_VALUE 60 /* two or three are usual */
#define LANES 8            /* parallel sums, for vector registers */

static double dot(const double *a, const double *b, size_t n)
{
    double sum[LANES] = {0}, all = 0;
    size_t i, k;

    for (i = 0; i + LANES <= n; i += LANES)
        for (k = 0; k < LANES; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        all += a[i] * b[i];
    for (k = 0; k < LANES; k++)
        all += sum[k];
    return all;
}

/* a += f b */
static void add(double *a, double f, const double *b, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        a[i] += f * b[i];
}

static void multiply(double *a, double f, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        a[i] *= f;
}

static void swap_rows(double *a, double *b, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        double was = a[i];

        a[i] = b[i];
        b[i] = was;
    }
}

/* -- eigenvectors -------------------------------------------------------- */

struct reduction {
    size_t n;
    double *a;             /* row k right of the diagonal: reflector k */
    double *factor;        /* [n] reflector k is 1 - factor v v^T */
    double *diag, *beside; /* [n] each */
    double *work;          /* [n] */
};

/* Replaces row k by the reflector that leaves one number right of the diagonal.
 * Returns false if there is only one already. */
static bool make_reflector(struct reduction *r, size_t k)
{
    double *v = r->a + k * r->n + k + 1, norm;
    size_t n = r->n - k - 1;

    r->beside[k] = v[0];
    r->factor[k] = 0;
    norm = sqrt(dot(v, v, n));
    if (sqrt(dot(v + 1, v + 1, n - 1)) == 0)
        return false;
    r->beside[k] = v[0] > 0 ? -norm : norm;
    v[0] -= r->beside[k];
    r->factor[k] = 2 / dot(v, v, n);
    return true;
}

/* Multiplies the rest of the matrix by the reflector on both sides. */
static void reflect_rest(struct reduction *r, size_t k)
{
    const double *v = r->a + k * r->n + k + 1;
    double *rest = r->a + (k + 1) * r->n + k + 1, *w = r->work;
    long n = (long)(r->n - k - 1), i;

    for (i = 0; i < n; i++)
        w[i] = r->factor[k] * dot(rest + i * r->n, v, n);
    add(w, -r->factor[k] / 2 * dot(w, v, n), v, n);
    for (i = 0; i < n; i++) {
        add(rest + i * r->n, -v[i], w, n);
        add(rest + i * r->n, -w[i], v, n);
    }
}

static void reduce(struct reduction *r)
{
    size_t n = r->n, k;

    for (k = 0; k + 1 < n; k++)
        if (make_reflector(r, k))
            reflect_rest(r, k);
    for (k = 0; k < n; k++)
        r->diag[k] = r->a[k * n + k];
}

/* The transposed product of the reflectors, in z. */
static void accumulate(const struct reduction *r, double *z)
{
    long n = (long)r->n, k, i;

    for (i = 0; i < n; i++)
        z[i * n + i] = 1;
    for (k = n - 2; k >= 0; k--) {
        const double *v = r->a + k * n + k + 1;
        long m = n - k - 1;

        if (r->factor[k] == 0)
            continue;
        for (i = k + 1; i < n; i++) {
            double *row = z + i * n + k + 1;

            add(row, -r->factor[k] * dot(row, v, m), v, m);
        }
    }
}

static void rotate_rows(double *a, double *b, double c, double s, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        double was = a[i];

        a[i] = c * was + s * b[i];
        b[i] = c * b[i] - s * was;
    }
}

/* One implicit QR step of the block low .. high, also applied to the rows of
 * z. */
static void qr_step(const struct reduction *r, double *z, size_t low,
                    size_t high)
{
    double *d = r->diag, *e = r->beside;
    double half = (d[high - 1] - d[high]) / 2, last = e[high - 1];
    double shift =
        d[high] - last * last / (half + copysign(hypot(half, last), half));
    double x = d[low] - shift, y = e[low];
    size_t k;

    for (k = low; k < high; k++) {
        double norm = hypot(x, y), c = norm > 0 ? x / norm : 1;
        double s = norm > 0 ? y / norm : 0, a = d[k], b = e[k], g = d[k + 1];

        if (k > low)
            e[k - 1] = norm;
        d[k] = c * c * a + 2 * c * s * b + s * s * g;
        d[k + 1] = s * s * a - 2 * c * s * b + c * c * g;
        e[k] = c * s * (g - a) + (c * c - s * s) * b;
        if (k + 1 < high) {
            x = e[k];
            y = s * e[k + 1];
            e[k + 1] *= c;
        }
        rotate_rows(z + k * r->n, z + (k + 1) * r->n, c, s, r->n);
    }
}

static bool is_split(const struct reduction *r, size_t k)
{
    return fabs(r->beside[k]) <=
           DBL_EPSILON * (fabs(r->diag[k]) + fabs(r->diag[k + 1]));
}

static int diagonalize(const struct reduction *r, double *z)
{
    size_t high = r->n - 1, low, left = STEPS_PER_VALUE * r->n;

    while (high > 0) {
        if (is_split(r, high - 1)) {
            high--;
            continue;
        }
        for (low = high - 1; low > 0 && !is_split(r, low - 1);)
            low--;
        if (left-- == 0) {
            errno = EDOM; /* with a NaN it would never end */
            return -1;
        }
        qr_step(r, z, low, high);
    }
    return 0;
}

/* Largest eigenvalue first. */
static void sort_vectors(double *value, double *z, size_t n)
{
    size_t i, k, most;

    for (i = 0; i < n; i++) {
        for (most = i, k = i + 1; k < n; k++)
            if (value[k] > value[most])
                most = k;
        if (most == i)
            continue;
        swap_rows(&value[i], &value[most], 1);
        swap_rows(z + i * n, z + most * n, n);
    }
}

int plait_eigenvectors(double *a, size_t n, double *value)
{
    double *z = calloc(n * n, sizeof(*z)), *lists = calloc(3 * n, sizeof(*z));
    struct reduction r = {n, a, lists, value, lists + n, lists + 2 * n};
    int rc = -1;

    errno = ENOMEM;
    if (z && lists) {
        reduce(&r);
        accumulate(&r, z);
        rc = diagonalize(&r, z);
    }
    if (rc == 0) {
        sort_vectors(value, z, n);
        memcpy(a, z, n * n * sizeof(*a));
    }
    free(z);
    free(lists);
    return rc;
}

/* -- orthonormal bases --------------------------------------------------- */

/* Subtracts the component along v from rows first .. n - 1. */
static void take_out(double *rows, size_t n, long first, const double *v)
{
    long i;

    for (i = first; i < (long)n; i++)
        add(rows + i * n, -dot(rows + i * n, v, n), v, n);
}

/* The row with the largest remainder; of about equal ones the first, so that
 * rounding does not decide. */
static size_t most_left(const double *rows, size_t n)
{
    double most = 0;
    size_t i, at = 0;

    for (i = 0; i < n; i++) {
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
    size_t i;

    for (i = 0; i < n; i++)
        if (!missing[i])
            take_out(candidates, n, 0, basis + i * n);
    while (count-- > 0) {
        size_t from = most_left(candidates, n);
        size_t to = first_missing(missing, from);
        double *v = basis + to * n;

        memcpy(v, candidates + from * n, n * sizeof(*v));
        multiply(v, 1 / sqrt(dot(v, v, n)), n);
        for (i = 0; i < n; i++) /* remove what rounding has left of the
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
    size_t count = 0, i;
    int rc = -1;

    for (i = 0; missing && i < n; i++) {
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
        for (i = 0; candidates && i < n * n; i++)
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
