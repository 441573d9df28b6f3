/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_TORCH_OUT_H
#define PLAIT_RUNTIME_CONVERT_TORCH_OUT_H

#include "kernels/types.h"
#include "runtime/checkpoint/file_out.h"
#include "runtime/convert/pickle_out.h"

/* A file that torch.load reads, written from its first byte to its last:
 * plait_torch_out_begin() and _end() around the bytes of each entry, then
 * _close(). 0 or -1 with errno. */
struct plait_torch_out {
    struct plait_file_out file;
    struct plait_pickle_out list;   /* the zip's list of the entries written */
    uint64_t entries, header, data; /* the number; offsets of the last */
    char name[80];
};

int plait_torch_out_open(struct plait_torch_out *out, const char *path);
/* Begins an entry of exactly `size` bytes, which follow by
 * plait_file_out_write(). */
int plait_torch_out_begin(struct plait_torch_out *out, const char *name,
                          uint64_t size);
int plait_torch_out_end(struct plait_torch_out *out);
/* Writes a whole entry. */
int plait_torch_out_entry(struct plait_torch_out *out, const char *name,
                          const void *bytes, size_t size);
/* With `keep`, writes the list and syncs all to the disk. */
int plait_torch_out_close(struct plait_torch_out *out, bool keep);

/* Adds to a pickle the tensor [rows, cols], or [rows] where cols is 0, whose
 * numbers are entry data/KEY. */
void plait_torch_out_tensor(struct plait_pickle_out *pickle, int key,
                            enum plait_dtype type, uint64_t rows,
                            uint64_t cols);

#endif
