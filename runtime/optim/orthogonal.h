/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_ORTHOGONAL_H
#define PLAIT_RUNTIME_OPTIM_ORTHOGONAL_H

#include <stddef.h>

#include "runtime/mesh/mesh.h"
#include "topology/job/optimizers.h"

/* Muon's orthogonalisation: a matrix X is replaced by one with the same
 * singular vectors whose singular values are about 1. X is divided by a number
 * d, of its Frobenius norm |X|; then five times
 *     A = X X^T,  X = a X + (b A + c A^2) X
 * or with X^T X on the other side if there are more rows than columns. d and
 * (a, b, c) are
 *   quintic        d = max(|X|, 1e-7), (3.4445, -4.7750, 2.0315) each time:
 *                  0.7 to 1.2, tiny ones stay smaller. Keller Jordan et al.
 *                  (2024), "Muon: an optimizer for hidden layers in neural
 *                  networks", kellerjordan.github.io/posts/muon; as in
 *                  torch.optim.Muon, except that products are rounded to the
 *                  given type, not always to bf16.
 *   polar-express  d = 1.01 |X| + 1e-7, others each time, the best for values
 *                  of 1e-3 |X| or more, which become 0.84 to 1.13: Amsel et
 *                  al., "The Polar Express" (arXiv:2505.16932), algorithm 1.
 *                  With its safety factor the polynomials, too, are of
 *                  X / 1.01. */
struct plait_orthogonal;

/* The polynomial of iteration i, 0 to 4, as published: (a, b, c) of X itself.
 */
enum { PLAIT_ORTHOGONAL_ITERATIONS = 5 };
const double *plait_orthogonal_polynomial(enum plait_muon_coefficients kind,
                                          int i);

/* For at most `most` matrices at a time, of at most `largest` elements and
 * shorter sides of at most `side`, of `type`. Device memory: `largest` +
 * 2 side^2 numbers of the type and, if that is not fp32, side^2 + 2^20 of
 * fp32. NULL with ENOMEM. */
struct plait_orthogonal *
plait_orthogonal_create(struct plait_mesh *mesh, enum plait_dtype type,
                        enum plait_muon_coefficients kind, size_t most,
                        size_t largest, size_t side);
void plait_orthogonal_destroy(struct plait_orthogonal *o);

/* Replaces each of the matrices x [count, rows, cols] of the type, in device
 * memory, on mesh->q, which it waits for once. x was multiplied by `factor`, a
 * power of two, for the range of the type: that changes nothing but what a norm
 * of 1e-7 is. About 10 rows cols min + 10 min^3 multiplications for each. */
int plait_orthogonalize(struct plait_orthogonal *o, void *x, float factor,
                        size_t count, size_t rows, size_t cols);

#endif
