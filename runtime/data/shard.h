/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_SHARD_H
#define PLAIT_RUNTIME_DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* The plait shard: a header of 64 bytes, then the tokens, nothing after. All
 * numbers are little-endian.
 *
 *   offset  size
 *        0     8  magic "PLAITTOK"
 *        8     4  version, 1; 2 of a masked shard
 *       12     4  bytes per token, 2 or 4 (unsigned)
 *       16     8  number of tokens
 *       24     4  vocabulary: every token is below it
 *       28    28  name of the tokenizer, padded with NUL ("byte")
 *       56     4  0
 *       60     4  CRC-32 (zlib's) of bytes 0 to 59
 *
 * The highest bit of each token of a masked shard says that it is not to be
 * learned to predict: it is part of a prompt. The vocabulary is then at most
 * 2^15 with 2 bytes a token, 2^31 - 1 with 4.
 */
#define PLAIT_SHARD_HEADER 64
#define PLAIT_SHARD_TOKENIZER 28

struct plait_shard_header {
    int width;
    int64_t tokens;
    int vocab;
    char tokenizer[PLAIT_SHARD_TOKENIZER]; /* ends with NUL */
    bool masked;
};

void plait_shard_encode(const struct plait_shard_header *header,
                        unsigned char bytes[PLAIT_SHARD_HEADER]);
/* `name` stands for the file in errors. */
int plait_shard_decode(const char *name,
                       const unsigned char bytes[PLAIT_SHARD_HEADER],
                       struct plait_shard_header *header,
                       struct plait_error *err);

#endif
