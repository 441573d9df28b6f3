/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_EIGEN_H
#define PLAIT_KERNELS_EIGEN_H

#include <stddef.h>

/* Eigenvectors on the host, in double, with all threads that OpenMP has.
 *
 * The bits of the result depend on the processor, for each of which OpenBLAS
 * has kernels of its own, and on the number of threads. So what one rank
 * computes here must be sent to the others that need it, and not computed there
 * again. The same process on the same processor gets the same bits again, as
 * train.deterministic needs. */

/* Replaces a symmetric matrix [n,n] by its eigenvectors, one per row, those of
 * the largest eigenvalues first; value [n]. -1 with ENOMEM, EDOM if a number is
 * not finite, or EOVERFLOW if n > 32000. */
int plait_eigenvectors(double *a, size_t n, double *value);

#endif
