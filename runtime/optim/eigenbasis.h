/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_EIGENBASIS_H
#define PLAIT_RUNTIME_OPTIM_EIGENBASIS_H

#include <stddef.h>

/* SOAP's bases, in host memory. A basis [n,n] has its vectors in the columns,
 * as the products need it.
 *
 * The data does not determine a whole basis if a gradient has a lower rank:
 * rounding would choose the vectors of its null space. These are kept from the
 * previous basis, initially from the unit vectors (plait_orthonormalize), so
 * that all layouts choose alike. */

/* Both bases of the first gradient g [rows,cols]: its singular vectors, which
 * are the eigenvectors of g g^T and g^T g. side[0] [rows,rows], side[1]
 * [cols,cols]; NULL: not wanted. In double: needs three copies of the shorter
 * side's square and one of each basis. -1 with ENOMEM, or EDOM if g is not
 * finite. */
int plait_eigenbasis_first(const float *g, size_t rows, size_t cols,
                           float *side[2]);

/* One step of a power iteration: the basis Q [n,n] of a Gram matrix G becomes
 * orth((G + e I) Q), with e = 2^-24 of G's largest estimated eigenvalue:
 * eigenvalues below that fraction are fp32 rounding, and their vectors stay as
 * they were. `gram` [n,n] is Q^T G Q and is transformed to the new basis: in
 * this form small eigenvalues are not lost beside large ones, as they would be
 * in G itself. The vectors are sorted by estimated eigenvalue, largest first:
 * order[n] is where each has been before. In double. -1 with ENOMEM, or EDOM if
 * gram is not finite. */
int plait_eigenbasis_next(float *basis, float *gram, size_t n, size_t *order);

#endif
