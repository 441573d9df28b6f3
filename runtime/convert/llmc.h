/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_LLMC_H
#define PLAIT_RUNTIME_CONVERT_LLMC_H

#include <stdbool.h>

#include "runtime/convert/convert.h"

/* llm.c's models: one file of 256 32-bit numbers, magic 20240326, version 3
 * (fp32) or 5 (bf16), longest sequence, vocabulary, layers, heads, width,
 * padded vocabulary, the others 0; then the tensors of a GPT-2, each kind for
 * all layers in turn. */

/* Whether `path` is a file that begins like one. */
bool plait_llmc_is_model(const char *path);

/* As plait_convert_from_hf(), from the file `path`. Rows that pad its
 * vocabulary are left out. */
int plait_convert_from_llmc(const char *path, const char *dir,
                            struct plait_converted *done,
                            struct plait_error *err);

/* Writes the weights of the checkpoint `path` as fp32 or bf16 to DIR/model.bin.
 * -1 with EINVAL, naming what llm.c's GPT-2 does not have. */
int plait_convert_to_llmc(const char *path, const char *dir,
                          enum plait_dtype type, struct plait_converted *done,
                          struct plait_error *err);

#endif
