/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_TOKENIZER_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/data/tokenizer/buffer.h"
#include "topology/base/error.h"

/* Text to tokens and back. "byte": 256 bytes and an end of text.
 * "spm:FILE": a SentencePiece model, where Plait was built with it.
 * "bpe:FILE": BPE as in Hugging Face's tokenizer.json, with the file or the
 * folder that it is in; its tokens are those of `tokenizers`, without the
 * special ones that a template adds. A FILE named .json or .model and a folder
 * need not say which. */
struct plait_tokenizer;

enum { PLAIT_BYTE_VOCAB = 257 }; /* of "byte" */

/* Whether it looks like one of these. */
bool plait_tokenizer_is_spec(const char *spec);
struct plait_tokenizer *plait_tokenizer_create(const char *spec,
                                               struct plait_error *err);
/* The tokenizer that plait-prep left beside its tokens; NULL, with ENOENT and
 * no text in err if no plait-prep wrote there. `path` is a token file, a
 * pattern of them or their folder. */
struct plait_tokenizer *plait_tokenizer_beside(const char *path,
                                               struct plait_error *err);
/* The folder where it would be, with a slash at the end; the caller frees. NULL
 * with ENOMEM. */
char *plait_tokenizer_folder(const char *path);
void plait_tokenizer_destroy(struct plait_tokenizer *t);

/* "byte", "spm" or "bpe" */
const char *plait_tokenizer_name(const struct plait_tokenizer *t);
/* The file it was made from, and the name of its copy beside tokens; NULL for
 * "byte". */
const char *plait_tokenizer_path(const struct plait_tokenizer *t);
const char *plait_tokenizer_file(const struct plait_tokenizer *t);
/* One more than the largest token id. */
int plait_tokenizer_vocab(const struct plait_tokenizer *t);
/* The token that ends a text: that which the files beside the tokenizer name
 * (tokenizer_config.json, generation_config.json, config.json), else the usual
 * one. -1: there is none. */
int32_t plait_tokenizer_end(const struct plait_tokenizer *t);
/* Its text; NULL: it has none. */
const char *plait_tokenizer_end_name(const struct plait_tokenizer *t);
/* The end by the usual names; -1: it has none of them. */
int32_t plait_tokenizer_usual_end(const struct plait_tokenizer *t);
/* Has texts end with this token instead, which is given as text. */
int plait_tokenizer_set_end(struct plait_tokenizer *t, const char *token,
                            struct plait_error *err);

/* The eos_token of the tokenizer_config.json beside a tokenizer's file: a
 * string there, or an object with one. malloc'ed; NULL: there is none. */
char *plait_tokenizer_eos(const char *path);
/* The first eos_token_id of the generation_config.json or, if it has none, of
 * the config.json beside it; -1: there is none. */
int32_t plait_tokenizer_eos_id(const char *path);

/* Whether an "spm" has all added tokens of the tokenizer.json `path`, as it
 * must where it takes that one's place. -1 with errno. */
int plait_tokenizer_has_added(const struct plait_tokenizer *t, const char *path,
                              struct plait_error *err);

/* The last place in a text, 0 < place < size, where it can be cut: both
 * sides encode to the tokens of the whole. 0: there is none. */
size_t plait_tokenizer_cut(const struct plait_tokenizer *t, const char *text,
                           size_t size);

/* Encodes on one thread; several may share a tokenizer. NULL with ENOMEM. */
struct plait_encoder;
struct plait_encoder *plait_encoder_create(const struct plait_tokenizer *t);
void plait_encoder_destroy(struct plait_encoder *encoder);
/* Appends the tokens of a text, without the end token. `continued`: the text
 * goes on after a cut. With "bpe", what is not UTF-8 becomes U+FFFD. */
int plait_encoder_add(struct plait_encoder *encoder, const char *text,
                      size_t size, bool continued, struct plait_tokens *out,
                      struct plait_error *err);

/* Encodes a whole text to malloc'ed tokens, without the end token; the caller
 * frees. */
int plait_tokenizer_encode(const struct plait_tokenizer *t, const char *text,
                           size_t size, int32_t **tokens, size_t *ntokens,
                           struct plait_error *err);
/* Decodes tokens to malloc'ed text, NUL-terminated; the end token becomes
 * nothing. */
int plait_tokenizer_decode(const struct plait_tokenizer *t,
                           const int32_t *tokens, size_t ntokens, char **text,
                           size_t *size, struct plait_error *err);

#endif
