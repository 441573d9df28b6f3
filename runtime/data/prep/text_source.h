/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_TEXT_SOURCE_H
#define PLAIT_RUNTIME_DATA_PREP_TEXT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/data/prep/text_list.h"
#include "runtime/data/tokenizer/buffer.h"
#include "runtime/data/tokenizer/tokenizer.h"

/* The two sets of tokens that a text is divided into. */
enum plait_text_set { PLAIT_TEXT_TRAIN, PLAIT_TEXT_VAL, PLAIT_TEXT_SETS };

/* Each twentieth document of JSON lines is for validation; of other texts the
 * last twentieth, from the beginning of a line on. */
enum { PLAIT_TEXT_VAL_EACH = 20 };

/* A position in the texts, between two parts. */
struct plait_text_position {
    int64_t file;
    int64_t at;        /* offset in its unpacked text */
    int64_t lines;     /* in this file */
    int64_t documents; /* JSON lines of all files */
};

/* What one thread encodes at a time: a stretch of one text, or whole JSON
 * lines. */
struct plait_text_part {
    struct plait_buffer text;
    const char *path; /* its file; valid as long as the list */
    bool lines;
    bool continued; /* of a text: its beginning was in an earlier part */
    bool ends;      /* of a text: this is the last part of the set */
    enum plait_text_set set; /* of a text */
    struct plait_text_position begin, end;
};

struct plait_text_source;

/* Both stay the caller's and must outlive it. NULL with errno. */
struct plait_text_source *
plait_text_source_create(const struct plait_text_list *list,
                         const struct plait_tokenizer *tokenizer,
                         struct plait_error *err);
void plait_text_source_destroy(struct plait_text_source *s);
/* Go on from a position that a part ended at. */
int plait_text_source_seek(struct plait_text_source *s,
                           const struct plait_text_position *to,
                           struct plait_error *err);
/* Reads the next part into `part`, whose memory is reused. 1; 0 at the end;
 * -1. */
int plait_text_source_next(struct plait_text_source *s,
                           struct plait_text_part *part,
                           struct plait_error *err);
/* Bytes of the files that have been read. */
int64_t plait_text_source_offset(const struct plait_text_source *s);

#endif
