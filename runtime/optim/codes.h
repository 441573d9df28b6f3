/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_CODES_H
#define PLAIT_RUNTIME_OPTIM_CODES_H

#include "runtime/optim/optim.h"
#include "runtime/parallel/shard.h"

/* The 8-bit states of adamw8bit (kernels/dynamic_map.h). A block is 256
 * elements of a slice, counted from the slice's first one, so that blocks are
 * cut differently in different layouts: those agree within the error of the
 * codes, not within rounding. Tensors with fewer than 4096 elements in the
 * whole model have fp32 states, and so has an embedding that the ends of a
 * pipeline share. A checkpoint stores all of them as fp32; if it
 * is loaded in the layout that wrote it, the codes are the same again. */
struct plait_optim_codes;

/* The codes of one slice: m, then v. */
struct plait_slice_codes {
    uint8_t *code[PLAIT_OPTIM_STATES]; /* [count]; NULL: states are fp32 */
    float *scale[PLAIT_OPTIM_STATES];  /* [blocks] */
};

/* Allocates the states of slices[n], as 0: codes, or fp32, which slice->state
 * then points to. NULL: out of memory. */
struct plait_optim_codes *
plait_optim_codes_create(const struct plait_shards *shards,
                         struct plait_optim_slice *slices, int n,
                         struct plait_error *err);
void plait_optim_codes_destroy(struct plait_optim_codes *codes);

const struct plait_slice_codes *
plait_optim_codes_of(const struct plait_optim_codes *codes, int slice);

/* Converts codes of numbers first .. first + n - 1 of state `which` to and from
 * fp32 in host memory; first is a multiple of a block, and so is n unless it
 * reaches the end. */
int plait_optim_codes_read(const struct plait_optim_codes *codes, int slice,
                           int which, size_t first, size_t n, float *to);
int plait_optim_codes_write(const struct plait_optim_codes *codes, int slice,
                            int which, size_t first, size_t n,
                            const float *from);

#endif
