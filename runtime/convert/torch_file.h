/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_TORCH_FILE_H
#define PLAIT_RUNTIME_CONVERT_TORCH_FILE_H

#include "kernels/types.h"
#include "runtime/pickle/pickle.h"

/* A file of torch.save's (PyTorch 1.6 on): a zip of uncompressed entries:
 * NAME/data.pkl, a pickle, and NAME/data/K, the numbers of its tensors. */
struct plait_torch_file;

/* Reads the list of the entries and the pickle. NULL with errno, naming the
 * file. */
struct plait_torch_file *plait_torch_file_open(const char *path,
                                               struct plait_error *err);
void plait_torch_file_close(struct plait_torch_file *file);

const struct plait_pickle_value *
plait_torch_file_root(const struct plait_torch_file *file);

struct plait_torch_tensor {
    enum plait_dtype type;
    int ndim;          /* 1 or 2 */
    uint64_t shape[2]; /* of a vector [n, 1] */
    uint64_t offset;   /* of its data, bytes from the start of the file */
};

/* Describes a value of the pickle as a tensor: whole, row by row, of fp32, bf16
 * or fp16, and inside the file. -1 with EINVAL, and text that says what it is
 * instead and goes on "tensor NAME ...". */
int plait_torch_tensor_of(const struct plait_torch_file *file,
                          const struct plait_pickle_value *value,
                          struct plait_torch_tensor *tensor,
                          struct plait_error *err);

/* Reads `size` bytes from `offset` on. Any thread may call it. */
int plait_torch_file_read(const struct plait_torch_file *file, uint64_t offset,
                          void *to, size_t size, struct plait_error *err);

#endif
