/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_TORCH_FILE_H
#define PLAIT_RUNTIME_CONVERT_TORCH_FILE_H

#include "runtime/pickle/pickle.h"

/* A file of torch.save's (PyTorch 1.6 on): a zip of uncompressed entries:
 * NAME/data.pkl, a pickle, and NAME/data/K, the numbers of its tensors. */
struct plait_torch_file;

/* Reads the list of the entries and the pickle. NULL with errno, naming the
 * file. */
struct plait_torch_file *plait_torch_file_open(const char *path,
                                               struct plait_error *err);
/* The same of a zip inside a file, which begins at byte `start` and has `size`
 * bytes; offsets are counted from `start`. */
struct plait_torch_file *plait_torch_file_open_at(const char *path,
                                                  uint64_t start, uint64_t size,
                                                  struct plait_error *err);
void plait_torch_file_close(struct plait_torch_file *file);

const struct plait_pickle_value *
plait_torch_file_root(const struct plait_torch_file *file);

/* The place and size of an entry data/KEY, the key of n characters. -1 with
 * EINVAL, and text that goes on "tensor NAME ..." where there is none. */
int plait_torch_file_data(const struct plait_torch_file *file, const char *key,
                          size_t n, uint64_t *offset, uint64_t *size,
                          struct plait_error *err);

/* Reads `size` bytes from `offset` on. Any thread may call it. */
int plait_torch_file_read(const struct plait_torch_file *file, uint64_t offset,
                          void *to, size_t size, struct plait_error *err);

#endif
