/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define PLAIT_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>

#include "runtime/checkpoint/tensor_slice.h"
#include "topology/base/error.h"

/* Numbers in a head, and elements of a tensor, are at most so many: sums and
 * products of few of them fit into 64 bits. */
#define PLAIT_SAFETENSORS_MOST ((int64_t)1 << 50)

/* The head of a safetensors file: the length of a JSON text as u64, then the
 * JSON, padded with blanks to a multiple of 8. Every tensor here is fp32. The
 * entry "plait" of __metadata__ (a text, as the format demands) says which part
 * of the whole model each one is, so that any reader of safetensors can open
 * the file. */

/* The head for `n` slices whose data follow one after the other, malloc'ed.
 * Weights have the tensor's name; see checkpoint.c for the others. NULL with
 * errno. */
unsigned char *plait_safetensors_encode(const struct plait_tensor_slice *slices,
                                        int n, size_t *size);

/* The JSON of a file in memory, checked to be an object; data begin at *data.
 * NULL with EINVAL. The caller decrefs it. */
json_t *plait_safetensors_head(const char *name, const unsigned char *file,
                               size_t size, size_t *data,
                               struct plait_error *err);

/* A JSON object as the format demands: length, text, blanks. malloc'ed; NULL
 * with errno. */
unsigned char *plait_safetensors_wrap(const json_t *head, size_t *size);

struct plait_stored {
    struct plait_tensor_slice slice;
    size_t offset; /* of its data, in the file */
};

/* Read and check the head of a whole file in memory. `name` stands for it in
 * errors. Tensors without an entry in "plait" are whole ones. The caller
 * frees *stored. */
int plait_safetensors_parse(const char *name, const unsigned char *file,
                            size_t size, struct plait_stored **stored,
                            int *nstored, struct plait_error *err);

#endif
