/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_CODES_H
#define PLAIT_RUNTIME_OPTIM_CODES_H

#include "runtime/optim/optim.h"
#include "runtime/parallel/shard.h"

/* The states of adamw8bit, as codes of a byte (kernels/dynamic_map.h). A block
 * is 256 elements of a slice, the first one at the slice's beginning, so that
 * blocks lie differently in different layouts: those agree to the error of
 * the codes, not to rounding. Tensors of fewer than 4096 elements in the whole
 * model have fp32 states. A checkpoint has fp32 of all of them; where it is
 * read in the layout that wrote it, the codes are the same again. */
struct plait_optim_codes;

/* One slice's: m, then v. */
struct plait_slice_codes {
    uint8_t *code[PLAIT_OPTIM_STATES]; /* [count]; NULL: states are fp32 */
    float *scale[PLAIT_OPTIM_STATES];  /* [blocks] */
};

/* Allocates the states, 0, of slices[n]: codes, or fp32 which slice->state then
 * is. -1: no memory. */
struct plait_optim_codes *
plait_optim_codes_create(const struct plait_shards *shards,
                         struct plait_optim_slice *slices, int n,
                         struct plait_error *err);
void plait_optim_codes_destroy(struct plait_optim_codes *codes);

const struct plait_slice_codes *
plait_optim_codes_of(const struct plait_optim_codes *codes, int slice);

/* Codes of numbers first .. first + n - 1 of state `which` to and from fp32 in
 * plain memory; first is a multiple of a block, and n too unless it reaches
 * the end. */
int plait_optim_codes_read(const struct plait_optim_codes *codes, int slice,
                           int which, size_t first, size_t n, float *to);
int plait_optim_codes_write(const struct plait_optim_codes *codes, int slice,
                            int which, size_t first, size_t n,
                            const float *from);

#endif
