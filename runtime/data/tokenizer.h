/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOKENIZER_H
#define PLAIT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "topology/error.h"

/* Text to tokens and back. "byte": 256 bytes and an end of text.
 * "spm:FILE": a SentencePiece model, where Plait was built with it. */
struct plait_tokenizer;

enum { PLAIT_BYTE_VOCAB = 257 }; /* of "byte" */

struct plait_tokenizer *plait_tokenizer_create(const char *spec,
                                               struct plait_error *err);
void plait_tokenizer_destroy(struct plait_tokenizer *t);

/* "byte" or "spm" */
const char *plait_tokenizer_name(const struct plait_tokenizer *t);
int plait_tokenizer_vocab(const struct plait_tokenizer *t);
/* The token that ends a text. */
int32_t plait_tokenizer_end(const struct plait_tokenizer *t);
/* A whole text to malloc'ed tokens, without the end; the caller frees. */
int plait_tokenizer_encode(const struct plait_tokenizer *t, const char *text,
                           size_t size, int32_t **tokens, size_t *ntokens,
                           struct plait_error *err);
/* Tokens to malloc'ed text, NUL-terminated; the end of text becomes nothing. */
int plait_tokenizer_decode(const struct plait_tokenizer *t,
                           const int32_t *tokens, size_t ntokens, char **text,
                           size_t *size, struct plait_error *err);

#endif
