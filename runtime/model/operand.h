/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_OPERAND_H
#define PLAIT_RUNTIME_MODEL_OPERAND_H

#include "runtime/model/internal.h"

/* What the products of a layer in fp8 are told of their operands. The largest
 * magnitudes are found where a tensor is made, so that no product reads it
 * once more for them. In other precisions nobody asks: all of this is NULL or
 * nothing. */

/* Numbers in the amax of plait_activations, then of plait_scratch. */
enum { PLAIT_AMAX_N1, PLAIT_AMAX_ATT, PLAIT_AMAX_N2, PLAIT_AMAX_ACT };
enum { PLAIT_AMAX_DX, PLAIT_AMAX_DPRE };

/* amax in fp8, else NULL. */
uint32_t *plait_amax_of(const struct plait_work *w, uint32_t *amax);
/* Where an op leaves that of a linear's input. NULL also where each tp rank
 * has some rows of it alone: what they find is not that of all. */
uint32_t *plait_amax_at(const struct plait_work *w,
                        const struct plait_activations *a, int which);
/* The same of dx, the gradient of the stream. */
uint32_t *plait_gradient_amax(const struct plait_work *w);
/* *amax = that of x [n], where no op has found it on its way. */
int plait_amax_find(const struct plait_work *w, uint32_t *amax, const void *x,
                    size_t n);

/* A linear's input: those of its rows that are here. */
struct plait_operand plait_operand_at(const struct plait_work *w,
                                      const struct plait_activations *a,
                                      int which);
/* dout [N,O], of which both products come at once, gets its codes for them;
 * they stay until the next call. Nothing where there is no room for them. */
int plait_operand_round(const struct plait_work *w,
                        const struct plait_matrix *matrix,
                        struct plait_operand *dout);

#endif
