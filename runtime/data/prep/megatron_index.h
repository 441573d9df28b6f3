/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_MEGATRON_INDEX_H
#define PLAIT_RUNTIME_DATA_PREP_MEGATRON_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Whether Megatron stores tokens of this vocabulary in 16 bits (DType of
 * megatron.core.datasets.indexed_dataset: below 65500). */
bool plait_megatron_is_small(int vocab);

/* Write the .idx for tokens of `width` bytes, 2 or 4, with one sequence for
 * each document: "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64
 * documents + 1, then i32 lengths, i64 byte offsets, i64 first sequences of the
 * documents and their end. `lengths` has the documents' lengths in tokens as
 * little-endian u32; it is read from its start. -1 with errno. */
int plait_megatron_write_index(FILE *index, FILE *lengths, int64_t documents,
                               int width);

#endif
