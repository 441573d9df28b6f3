/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_TENSOR_SLICE_H
#define PLAIT_RUNTIME_CHECKPOINT_TENSOR_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Some elements of a tensor: a run of `count` elements, from `first` on, of
 * the rows of a box that a rank holds of the whole tensor. A vector is a
 * matrix of one row. A box may stick out of the whole tensor: that part is
 * padding. Slices of different layouts meet in the whole tensor's
 * coordinates, which is what makes a checkpoint fit another layout. */
struct plait_tensor_slice {
    char name[128];
    uint64_t shape[2]; /* of the whole tensor */
    uint64_t begin[2]; /* of the box, in the whole tensor */
    uint64_t box[2];
    uint64_t first, count;
};

/* Elements of the slice that are no padding. */
uint64_t plait_tensor_slice_inside(const struct plait_tensor_slice *slice);

/* Whether they have an element of the tensor in common. */
bool plait_tensor_slice_meets(const struct plait_tensor_slice *a,
                              const struct plait_tensor_slice *b);

/* Copy what both slices hold of the tensor; the data are the `count` elements
 * of each run. Returns the number of elements copied. */
uint64_t plait_tensor_slice_copy(const struct plait_tensor_slice *to,
                                 float *to_data,
                                 const struct plait_tensor_slice *from,
                                 const float *from_data);

#endif
