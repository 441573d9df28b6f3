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

/* Images [C, H, W] in a file, one byte for each pixel, `stride` bytes from one
 * image to the next. */
struct plait_images {
    int shape[3]; /* C, H, W; 0: the file has tokens */
    size_t stride;
    size_t label; /* offset of the labels; they are `stride` apart too, or one
                     after the other in the file of the next segment */
    bool beside;  /* labels are in the next segment */
    int classes;  /* 0: unknown */
};

/* One file of a dataset, whatever its format. Samples are read, not mapped: a
 * file that is truncated while it is open then gives an error message, and no
 * signal. */
struct plait_segment {
    char *path;
    int fd;
    size_t size; /* of the file, when it was opened */
    void *map;   /* the mapped file, during plait_segment_open() */
    enum plait_token_type type;
    size_t offset; /* of the tokens, or pixels, or labels */
    int64_t count; /* of tokens, images or labels */
    int64_t first; /* index of its first one in all segments */
    int vocab;     /* 0: unknown */
    bool masked;   /* tokens of prompts are marked */
    struct plait_images images;
    char tokenizer[PLAIT_SHARD_TOKENIZER]; /* "": unknown */
};

/* Open `path` in one of the formats of plait_dataset_create(), and keep the
 * file open. */
int plait_segment_open(struct plait_segment *segment, const char *path,
                       enum plait_data_format format, struct plait_error *err);
void plait_segment_close(struct plait_segment *segment);
/* Map s->path, a regular file of at least `least` bytes, and keep it open. */
int plait_segment_map(struct plait_segment *s, size_t least,
                      struct plait_error *err);
/* Unmap the file, once its head has been parsed; from now on it is read. */
void plait_segment_unmap(struct plait_segment *s);
/* Samples are read in random order: read-ahead around one would be wasted. */
void plait_segment_advise(const struct plait_segment *segment);
/* Read bytes offset .. offset + n - 1 of the file into `to`; -1, naming file
 * and offset: it was truncated, or cannot be read. */
int plait_segment_read(const struct plait_segment *segment, size_t offset,
                       size_t n, void *to, struct plait_error *err);
/* Have tokens index .. index + n - 1 read, without waiting for them. */
void plait_segment_expect(const struct plait_segment *segment, int64_t index,
                          int64_t n);
/* The bit that marks a token of a prompt, which makes it negative. */
#define PLAIT_TOKEN_MASKED INT32_MIN
/* Tokens index .. index + n - 1, -1 for each that does not fit a token id; in a
 * masked segment, those of prompts have PLAIT_TOKEN_MASKED. */
int plait_segment_tokens(const struct plait_segment *segment, int64_t index,
                         int64_t n, int32_t *tokens, struct plait_error *err);

#endif
