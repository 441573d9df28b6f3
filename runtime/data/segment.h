/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SEGMENT_H
#define PLAIT_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "shard.h"
#include "topology/error.h"

/* How the tokens of one file are stored; little-endian. */
enum plait_token_type {
    PLAIT_TOKEN_U8,
    PLAIT_TOKEN_U16,
    PLAIT_TOKEN_I16,
    PLAIT_TOKEN_I32, /* and unsigned: ids above 2^31 are out of range */
    PLAIT_TOKEN_I64
};

/* One mmapped file of a dataset, whatever its format. */
struct plait_segment {
    char *path;
    void *map;
    size_t size; /* bytes mapped */
    enum plait_token_type type;
    const unsigned char *tokens;
    int64_t count;
    int64_t first; /* its place in the run of all segments */
    int vocab;     /* 0: not said */
    char tokenizer[PLAIT_SHARD_TOKENIZER]; /* "": not said */
};

/* Map `path` in one of the formats of plait_dataset_create(). */
int plait_segment_open(struct plait_segment *segment, const char *path,
                       const char *format, struct plait_error *err);
void plait_segment_close(struct plait_segment *segment);
/* Samples are read here and there: what lies around one is not wanted. */
void plait_segment_advise(void *map, size_t size);
/* Have tokens index .. index + n - 1 read, without waiting for them. */
void plait_segment_expect(const struct plait_segment *segment, int64_t index,
                          int64_t n);
/* Token `index` of the segment; -1 if it does not fit a token id. */
int32_t plait_segment_token(const struct plait_segment *segment, int64_t index);

#endif
