/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_EIGENBASIS_H
#define PLAIT_RUNTIME_OPTIM_EIGENBASIS_H

#include <stddef.h>

/* SOAP's bases, in the host's memory. A basis [n,n] has its vectors in the
 * columns, as the products take it.
 *
 * Data decides on a basis only as far as it goes: a gradient of lower rank has
 * many bases of what is 0, and rounding would choose one. Such vectors are
 * kept from the basis before, at first from the unit vectors
 * (plait_orthonormalize), so that all layouts choose alike. */

/* Both bases of the first gradient g [rows,cols]: its singular vectors, which
 * are the eigenvectors of g g^T and g^T g. side[0] [rows,rows], side[1]
 * [cols,cols]; NULL: not wanted. In double: three copies of the shorter side's
 * square and one of each basis. -1 with ENOMEM, or EDOM where g is not
 * finite. */
int plait_eigenbasis_first(const float *g, size_t rows, size_t cols,
                           float *side[2]);

/* One step of a power iteration: the basis Q [n,n] of a Gram matrix G becomes
 * orth((G + e I) Q), e = 2^-24 of G's largest eigenvalue as estimated: what is
 * less than that share is rounding of fp32, and stays as it was. `gram` [n,n]
 * is Q^T G Q and is moved into the new basis: kept so, small eigenvalues are
 * not lost beside large ones, as they would be in G itself. The vectors are put
 * into the order of their eigenvalues as estimated, largest first: order[n]
 * says where each has been. In double. -1 with ENOMEM, or EDOM where gram is
 * not finite. */
int plait_eigenbasis_next(float *basis, float *gram, size_t n, size_t *order);

#endif
