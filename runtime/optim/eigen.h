/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_EIGEN_H
#define PLAIT_RUNTIME_OPTIM_EIGEN_H

#include <stddef.h>

/* Orthonormal bases in double, in the host's memory; a matrix [n,n] holds a
 * vector in each row. All of it takes time that grows with n^3, on one thread.
 */

/* The eigenvectors of a symmetric matrix, in its place, those of the largest
 * eigenvalues first; value [n]. Householder's reduction to three diagonals,
 * then implicit QR steps with Wilkinson's shift (Golub and Van Loan, "Matrix
 * computations", algorithms 8.3.1 to 8.3.3). -1 with ENOMEM, or EDOM where a
 * number is not finite. */
int plait_eigenvectors(double *a, size_t n, double *value);

/* The vectors of `basis`, in their order, are made orthonormal by Gram and
 * Schmidt. One of which no more than `least` is left, or a 0, is not determined
 * by what is there: those are replaced by vectors of `old`, a basis, NULL: the
 * unit vectors, that are nearest to being orthogonal to all others. So a
 * small change of `basis` makes a small one of the result wherever the data
 * has nothing to say. -1 with ENOMEM. */
int plait_orthonormalize(double *basis, size_t n, double least,
                         const double *old);

#endif
