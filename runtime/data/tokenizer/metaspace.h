/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_METASPACE_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_METASPACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/bpe.h"
#include "runtime/data/tokenizer/buffer.h"
#include "topology/base/error.h"

/* The tokenizers that SentencePiece's BPE became in a tokenizer.json (Llama 2,
 * Mistral, Gemma): blanks are written as U+2581, pieces begin as characters
 * instead of bytes, and nothing cuts a text into words. */

#define PLAIT_METASPACE "\xe2\x96\x81"
enum { PLAIT_METASPACE_SIZE = 3 };

struct plait_metaspace {
    bool used;       /* the tokenizer is of this kind */
    bool normalizes; /* it writes the blanks before it looks for the added
                        tokens that are found in normalized text */
    enum {
        PLAIT_PREPEND_NONE,
        PLAIT_PREPEND_ALWAYS,  /* a blank begins every text */
        PLAIT_PREPEND_MISSING, /* that has none, also after an added token */
        PLAIT_PREPEND_FIRST    /* that has none */
    } prepend;
    bool falls_back; /* on the tokens of bytes */
    bool splits;     /* every blank begins a piece */
    enum {
        PLAIT_STRIP_NONE,
        PLAIT_STRIP_BLANK, /* decoding drops a blank at the beginning */
        PLAIT_STRIP_TOKEN  /* and all blanks of the first token */
    } strip;
    /* Some token has a blank after something else, or something else after a
     * line break: the text cannot be cut there. */
    bool joins_blanks, joins_lines;
};

/* Reads it from a tokenizer.json, whose name stands in errors: `used` is false
 * if it is of another kind. -1 with errno. */
int plait_metaspace_read(const json_t *root, const char *name,
                         struct plait_metaspace *m, struct plait_error *err);
/* Sets what the tokens join. */
void plait_metaspace_note_joins(struct plait_metaspace *m,
                                const struct plait_bpe *bpe, int vocab,
                                const struct plait_added_tokens *added);

/* Appends the text with blanks written so, behind one more where it is to be
 * prepended. `begins`: nothing was before it, not even an added token. -1 with
 * ENOMEM. */
int plait_metaspace_write(const struct plait_metaspace *m, const char *text,
                          size_t size, bool continued, bool begins,
                          struct plait_buffer *out);
/* The size of the first piece of a written text. */
size_t plait_metaspace_next(const struct plait_metaspace *m, bool whole_words,
                            const char *text, size_t size);
/* Whether the tokens of a text are those of the parts when it is cut before
 * text[at], a blank or what follows a line break. */
bool plait_metaspace_can_cut(const struct plait_metaspace *m, bool whole_words,
                             const char *text, size_t at);
/* Appends what a token decodes to; `first`: nothing is before it. */
int plait_metaspace_decode(const struct plait_metaspace *m, const char *token,
                           size_t size, bool first, struct plait_buffer *out);

#endif
