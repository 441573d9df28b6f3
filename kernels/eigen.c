/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/eigen.h"

#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* The largest matrix: LAPACK counts its work space in 32 bits. */
enum { MOST = 32000 };

/* LAPACK's eigenvectors of a symmetric matrix by divide and conquer, which
 * OpenBLAS contains without a header for it. A Fortran function: the last two
 * arguments are the lengths of the first two. */
extern void dsyevd_(const char *job, const char *half, const blasint *n,
                    double *a, const blasint *stride, double *value,
                    double *work, const blasint *nwork, blasint *numbers,
                    const blasint *nnumbers, blasint *info, size_t job_length,
                    size_t half_length);

static bool is_finite(const double *a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(a[i]))
            return false;
    return true;
}

static void swap_rows(double *a, double *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double was = a[i];

        a[i] = b[i];
        b[i] = was;
    }
}

/* Columns of LAPACK's matrix are rows here, the smallest eigenvalue first. */
static int decompose(double *a, blasint n, double *value)
{
    blasint nwork = 1 + 6 * n + 2 * n * n, nnumbers = 3 + 5 * n, info = 0;
    double *work = calloc((size_t)nwork, sizeof(*work));
    blasint *numbers = calloc((size_t)nnumbers, sizeof(*numbers));
    int rc = work && numbers ? 0 : ENOMEM;

    if (rc == 0)
        dsyevd_("V", "U", &n, a, &n, value, work, &nwork, numbers, &nnumbers,
                &info, 1, 1);
    free(work);
    free(numbers);
    return info == 0 ? rc : EDOM;
}

int plait_eigenvectors(double *a, size_t n, double *value)
{
    if (n > MOST)
        errno = EOVERFLOW;
    else if (!is_finite(a, n * n)) /* with a NaN dsyevd might not end */
        errno = EDOM;
    else
        errno = decompose(a, (blasint)n, value);
    if (errno != 0)
        return -1;
    for (size_t i = 0; i < n / 2; i++) {
        swap_rows(&value[i], &value[n - 1 - i], 1);
        swap_rows(a + i * n, a + (n - 1 - i) * n, n);
    }
    return 0;
}
