/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_TEXT_ENCODE_H
#define PLAIT_RUNTIME_DATA_PREP_TEXT_ENCODE_H

#include "runtime/data/prep/text_source.h"

/* Parts of texts become tokens on several threads and come back in the order
 * in which they went in. */
struct plait_text_encoded {
    struct plait_tokens tokens;
    struct plait_buffer ends; /* int64_t each: a document ends before token */
};

struct plait_text_job {
    struct plait_text_part part;
    struct plait_text_encoded set[PLAIT_TEXT_SETS];
    int failed; /* errno */
    struct plait_error err;
};

struct plait_text_encoder;

/* The fields of JSON lines: what is learned to predict, and in front of it
 * the prompt, which is not; NULL: there is none. */
struct plait_text_fields {
    const char *text, *prompt;
};

/* What is passed stays the caller's. NULL with errno. */
struct plait_text_encoder *
plait_text_encoder_create(const struct plait_tokenizer *tokenizer,
                          const struct plait_text_fields *fields, int threads,
                          struct plait_error *err);
void plait_text_encoder_destroy(struct plait_text_encoder *e);
/* The job to fill in next; NULL: all are under way. */
struct plait_text_job *plait_text_encoder_next(struct plait_text_encoder *e);
/* The job that plait_text_encoder_next() gave is filled in. */
void plait_text_encoder_submit(struct plait_text_encoder *e);
/* The oldest job, when it is done; NULL if none is under way. It is to be
 * filled in again after plait_text_encoder_release(). */
struct plait_text_job *plait_text_encoder_take(struct plait_text_encoder *e);
void plait_text_encoder_release(struct plait_text_encoder *e);

#endif
