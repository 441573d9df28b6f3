/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_OPERAND_H
#define PLAIT_RUNTIME_MODEL_OPERAND_H

#include "runtime/model/internal.h"

/* Amax and codes of the operands of a layer's fp8 products. Largest magnitudes
 * are computed where a tensor is written, so that no product has to read it
 * again for them. In other precisions these functions return NULL or do
 * nothing. */

/* Indexes in the amax of plait_activations, then of plait_scratch. */
enum { PLAIT_AMAX_N1, PLAIT_AMAX_ATT, PLAIT_AMAX_N2, PLAIT_AMAX_ACT };
enum { PLAIT_AMAX_DX, PLAIT_AMAX_DPRE };

/* amax if the run is in fp8, else NULL. */
uint32_t *plait_amax_of(const struct plait_work *w, uint32_t *amax);
/* Where an op stores the amax of a linear's input. NULL also if each tp rank
 * has only some of its rows: their maximum is not that of all rows. */
uint32_t *plait_amax_at(const struct plait_work *w,
                        const struct plait_activations *a, int which);
/* The same for dx, the gradient of the stream. */
uint32_t *plait_gradient_amax(const struct plait_work *w);
/* *amax = the largest magnitude of x [n], if no op has computed it on the
 * way. */
int plait_amax_find(const struct plait_work *w, uint32_t *amax, const void *x,
                    size_t n);

/* A linear's input: the rows of it that are here. */
struct plait_operand plait_operand_at(const struct plait_work *w,
                                      const struct plait_activations *a,
                                      int which);
/* Rounds dout [N,O] once for its two products, which must follow at once: the
 * codes are valid until the next call. Does nothing if there is no room for
 * codes. */
int plait_operand_round(const struct plait_work *w,
                        const struct plait_matrix *matrix,
                        struct plait_operand *dout);

#endif
