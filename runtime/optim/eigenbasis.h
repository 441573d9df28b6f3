/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_EIGENBASIS_H
#define PLAIT_RUNTIME_OPTIM_EIGENBASIS_H

#include <stddef.h>

/* SOAP's bases, in the host's memory. A basis [n,n] has its vectors in the
 * columns, as the products take it.
 *
 * Data decides on a basis only as far as it goes: a first gradient of lower
 * rank has many bases of what is 0, and rounding would choose one. Such
 * vectors are kept from the basis before, at first from the unit vectors
 * (plait_orthonormalize), so that all layouts choose alike. */

/* Both bases of the first gradient g [rows,cols]: its singular vectors, which
 * are the eigenvectors of g g^T and g^T g. side[0] [rows,rows], side[1]
 * [cols,cols]; NULL: not wanted. In double: three copies of the shorter side's
 * square and one of each basis. -1 with ENOMEM, or EDOM where g is not
 * finite. */
int plait_eigenbasis_first(const float *g, size_t rows, size_t cols,
                           float *side[2]);

/* One step of a power iteration: basis [n,n] by product [n,n] = (gram basis)^T,
 * a vector in each row. The vectors are put into the order of their eigenvalues
 * as estimated, largest first: order[n] says where each has been. -1 with
 * ENOMEM, or EDOM where product is not finite. */
int plait_eigenbasis_next(float *basis, const float *product, size_t n,
                          size_t *order);

#endif
