/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_TORCH_TENSOR_H
#define PLAIT_RUNTIME_CONVERT_TORCH_TENSOR_H

#include "kernels/types.h"
#include "runtime/convert/torch_file.h"

/* The tensors in a file of torch.save's. */

#define PLAIT_TORCH_DIMS_MOST 5

/* A tensor that lies whole and row by row in its file. */
struct plait_torch_array {
    enum plait_dtype type;
    int ndim; /* may be 0 */
    uint64_t shape[PLAIT_TORCH_DIMS_MOST];
    uint64_t offset; /* of its data, bytes from the start of the file */
};

/* Describes a value of the pickle as such a tensor, of fp32, bf16 or fp16, and
 * inside the file. -1 with EINVAL, and text that says what it is instead and
 * goes on "tensor NAME ...". */
int plait_torch_array_of(const struct plait_torch_file *file,
                         const struct plait_pickle_value *value,
                         struct plait_torch_array *array,
                         struct plait_error *err);

struct plait_torch_tensor {
    enum plait_dtype type;
    int ndim;          /* 1 or 2 */
    uint64_t shape[2]; /* of a vector [n, 1] */
    uint64_t offset;   /* of its data, bytes from the start of the file */
};

/* The same of a matrix or a vector. */
int plait_torch_tensor_of(const struct plait_torch_file *file,
                          const struct plait_pickle_value *value,
                          struct plait_torch_tensor *tensor,
                          struct plait_error *err);

#endif
