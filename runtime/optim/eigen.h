/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_EIGEN_H
#define PLAIT_RUNTIME_OPTIM_EIGEN_H

#include <stddef.h>

/* Orthonormal bases in double, in host memory; a matrix [n,n] holds one vector
 * per row. Everything runs on one thread and takes time proportional to n^3. */

/* Replaces a symmetric matrix by its eigenvectors, those of the largest
 * eigenvalues first; value [n]. Householder's tridiagonalization, then implicit
 * QR steps with Wilkinson's shift (Golub and Van Loan, "Matrix computations",
 * algorithms 8.3.1 to 8.3.3). -1 with ENOMEM, or EDOM if a number is not
 * finite. */
int plait_eigenvectors(double *a, size_t n, double *value);

/* Makes the vectors of `basis` orthonormal, in their order, by Gram-Schmidt. A
 * vector of which at most `least` is left is not determined by the data. Such
 * vectors are replaced by those of the basis `old` (NULL: unit vectors) that
 * are nearest to being orthogonal to all others. So a small change of `basis`
 * changes the result little even where the data does not determine it. -1 with
 * ENOMEM. */
int plait_orthonormalize(double *basis, size_t n, double least,
                         const double *old);

#endif
