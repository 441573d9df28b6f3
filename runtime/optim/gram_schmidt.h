/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_GRAM_SCHMIDT_H
#define PLAIT_RUNTIME_OPTIM_GRAM_SCHMIDT_H

#include <stddef.h>

/* Orthonormal bases in double, in host memory; a matrix [n,n] holds one vector
 * per row. Takes one thread and time proportional to n^3. */

/* Makes the vectors of `basis` orthonormal, in their order, by Gram-Schmidt. A
 * vector of which at most `least` is left is not determined by the data. Such
 * vectors are replaced by those of the basis `old` (NULL: unit vectors) that
 * are nearest to being orthogonal to all others. So a small change of `basis`
 * changes the result little even where the data does not determine it. -1 with
 * ENOMEM. */
int plait_orthonormalize(double *basis, size_t n, double least,
                         const double *old);

#endif
