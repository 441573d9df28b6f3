/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_TOKENIZER_PRIVATE_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_TOKENIZER_PRIVATE_H

#include "runtime/data/tokenizer/tokenizer.h"

/* A text to encode, or a part of one. */
struct plait_passage {
    const char *text;
    size_t size;
    bool continued; /* it goes on after one that was cut */
};

/* The functions of a kind of tokenizer. */
struct plait_tokenizer_ops {
    const char *name;
    const char *file; /* the name of a copy of its file; NULL: it has none */
    void (*destroy)(void *model);
    /* As plait_tokenizer_cut(). */
    size_t (*cut)(const void *model, const char *text, size_t size);
    /* Work space for one thread; NULL with ENOMEM. */
    void *(*scratch_create)(void);
    void (*scratch_destroy)(void *scratch);
    /* As plait_encoder_add() and plait_tokenizer_decode(). */
    int (*encode)(const void *model, void *scratch,
                  const struct plait_passage *passage, struct plait_tokens *out,
                  struct plait_error *err);
    int (*decode)(const void *model, const int32_t *tokens, size_t ntokens,
                  struct plait_buffer *out, struct plait_error *err);
    /* The text of a special token; NULL: it is none, or has no name here. */
    const char *(*name_of)(const void *model, int32_t token);
};

struct plait_tokenizer {
    const struct plait_tokenizer_ops *ops;
    void *model;
    char *path; /* NULL: it needs no file */
    int vocab;
    int32_t end;
    int32_t usual_end; /* the end by the usual names; -1: there is none */
};

/* Each opens a tokenizer from its file, and fills in all but `path`. -1 with
 * errno. */
int plait_tokenizer_open_bpe(struct plait_tokenizer *t, const char *path,
                             struct plait_error *err);
int plait_tokenizer_open_spm(struct plait_tokenizer *t, const char *path,
                             struct plait_error *err);

#endif
