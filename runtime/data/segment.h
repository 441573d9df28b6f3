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

/* One file of a dataset, whatever its format. Its samples are read, not
 * mapped: a file that is cut while it is open is then an error that says so,
 * and no signal. */
struct plait_segment {
    char *path;
    int fd;
    size_t size; /* of the file, when it was opened */
    void *map;   /* the file, while plait_segment_open() looks at it */
    enum plait_token_type type;
    size_t offset; /* of the tokens, or pixels, or labels */
    int64_t count; /* of tokens, images or labels */
    int64_t first; /* its place in the run of all segments */
    int vocab;     /* 0: not said */
    bool masked;   /* tokens of prompts are marked */
    struct plait_images images;
    char tokenizer[PLAIT_SHARD_TOKENIZER]; /* "": not said */
};

/* Open `path` in one of the formats of plait_dataset_create(); it keeps a file
 * open. */
int plait_segment_open(struct plait_segment *segment, const char *path,
                       enum plait_data_format format, struct plait_error *err);
void plait_segment_close(struct plait_segment *segment);
/* Map s->path, a regular file of at least `least` bytes, and keep it open. */
int plait_segment_map(struct plait_segment *s, size_t least,
                      struct plait_error *err);
/* Its head was looked at: what is read from now on is read from the file. */
void plait_segment_unmap(struct plait_segment *s);
/* Samples are read in random order: read-ahead around one would be wasted. */
void plait_segment_advise(const struct plait_segment *segment);
/* Bytes offset .. offset + n - 1 of the file into `to`; -1 with file and
 * offset: it was cut, or cannot be read. */
int plait_segment_read(const struct plait_segment *segment, size_t offset,
                       size_t n, void *to, struct plait_error *err);
/* Have tokens index .. index + n - 1 read, without waiting for them. */
void plait_segment_expect(const struct plait_segment *segment, int64_t index,
                          int64_t n);
/* Marks a token of a prompt, which is negative with it. */
#define PLAIT_TOKEN_MASKED INT32_MIN
/* Tokens index .. index + n - 1, -1 for each that does not fit a token id; of a
 * masked segment with PLAIT_TOKEN_MASKED where that is said. */
int plait_segment_tokens(const struct plait_segment *segment, int64_t index,
                         int64_t n, int32_t *tokens, struct plait_error *err);

#endif
