/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_SEGMENT_H
#define PLAIT_RUNTIME_DATA_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/data/shard.h"
#include "topology/base/error.h"
#include "topology/job/job_config.h"

/* How the tokens of one file are stored; little-endian. */
enum plait_token_type {
    PLAIT_TOKEN_U8,
    PLAIT_TOKEN_U16,
    PLAIT_TOKEN_I16,
    PLAIT_TOKEN_I32, /* and unsigned: ids above 2^31 are out of range */
    PLAIT_TOKEN_I64
};

/* Images [C, H, W] in a file, each of a byte a pixel, `stride` bytes from one
 * to the next. */
struct plait_images {
    int shape[3]; /* C, H, W; 0: the file has tokens */
    size_t stride;
    size_t label; /* where the labels begin; they are `stride` apart too, or one
                     after the other in the file of the next segment */
    bool beside;  /* the latter */
    int classes;  /* 0: not said */
};

/* One mmapped file of a dataset, whatever its format. */
struct plait_segment {
    char *path;
    void *map;
    size_t size; /* bytes mapped */
    enum plait_token_type type;
    const unsigned char *tokens; /* or pixels, or labels */
    int64_t count;               /* of tokens, images or labels */
    int64_t first;               /* its place in the run of all segments */
    int vocab;                   /* 0: not said */
    struct plait_images images;
    char tokenizer[PLAIT_SHARD_TOKENIZER]; /* "": not said */
};

/* Map `path` in one of the formats of plait_dataset_create(). */
int plait_segment_open(struct plait_segment *segment, const char *path,
                       enum plait_data_format format, struct plait_error *err);
void plait_segment_close(struct plait_segment *segment);
/* Map s->path, a regular file of at least `least` bytes. */
int plait_segment_map(struct plait_segment *s, size_t least,
                      struct plait_error *err);
/* Samples are read in random order: read-ahead around one would be wasted. */
void plait_segment_advise(void *map, size_t size);
/* Have tokens index .. index + n - 1 read, without waiting for them. */
void plait_segment_expect(const struct plait_segment *segment, int64_t index,
                          int64_t n);
/* Token `index` of the segment; -1 if it does not fit a token id. */
int32_t plait_segment_token(const struct plait_segment *segment, int64_t index);

#endif
