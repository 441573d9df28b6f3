/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_TEXT_ENCODE_H
#define PLAIT_RUNTIME_DATA_PREP_TEXT_ENCODE_H

#include "runtime/data/prep/text_source.h"

/* Encodes parts of texts on several threads, and returns them in the order in
 * which they were submitted. */
enum { PLAIT_TEXT_LEFT_NAMED = 5 };

struct plait_text_encoded {
    struct plait_tokens tokens;
    struct plait_buffer ends; /* int64_t each: a document ends before token */
};

/* JSON lines that gave no text. */
struct plait_text_left {
    int64_t count;
    struct {
        int64_t line;
        char why[160];
    } first[PLAIT_TEXT_LEFT_NAMED];
};

struct plait_text_job {
    struct plait_text_part part;
    struct plait_text_left left;
    struct plait_text_encoded set[PLAIT_TEXT_SETS];
    int failed; /* errno */
    struct plait_error err;
};

struct plait_text_encoder;

/* The fields of JSON lines: the text to learn, and the prompt before it, which
 * is not learned; NULL: no prompt. */
struct plait_text_fields {
    const char *text, *prompt;
    bool skip_bad; /* leave out lines that are no JSON or lack a field */
};

/* The tokenizer stays the caller's. NULL with errno. */
struct plait_text_encoder *
plait_text_encoder_create(const struct plait_tokenizer *tokenizer,
                          const struct plait_text_fields *fields, int threads,
                          struct plait_error *err);
void plait_text_encoder_destroy(struct plait_text_encoder *e);
/* The next job to fill in; NULL: all are under way. */
struct plait_text_job *plait_text_encoder_next(struct plait_text_encoder *e);
/* Submit the job that plait_text_encoder_next() gave, once it is filled in. */
void plait_text_encoder_submit(struct plait_text_encoder *e);
/* Waits for the oldest job; NULL: none is under way. The job can be reused
 * after plait_text_encoder_release(). */
struct plait_text_job *plait_text_encoder_take(struct plait_text_encoder *e);
void plait_text_encoder_release(struct plait_text_encoder *e);

#endif
