/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_ADDED_TOKENS_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens that are found in a text literally, before anything else is done with
 * it, such as "<|endoftext|>". All zero is an empty set. */
struct plait_added_token {
    int32_t id;
    bool special;    /* prints as nothing */
    bool normalized; /* found after normalization, not before */
    char *text;
    size_t size; /* > 0 */
};

struct plait_added_tokens {
    struct plait_added_token *token; /* the longest first */
    size_t count;
    bool starts[2][256]; /* [normalized]: the first bytes of such tokens */
};

/* Copies the text. -1 with ENOMEM. */
int plait_added_tokens_add(struct plait_added_tokens *set, int32_t id,
                           const char *text, size_t size, bool special,
                           bool normalized);
void plait_added_tokens_clear(struct plait_added_tokens *set);

/* The first token in the text that is `normalized` or not; of several at one
 * place, the longest. *at is where it begins. NULL, and *at the text's size, if
 * there is none. */
const struct plait_added_token *
plait_added_tokens_find(const struct plait_added_tokens *set, bool normalized,
                        const char *text, size_t size, size_t *at);
/* Whether a cut at `at` would go through a token. */
bool plait_added_tokens_cut(const struct plait_added_tokens *set,
                            const char *text, size_t size, size_t at);
/* The token with this text; NULL if there is none. */
const struct plait_added_token *
plait_added_tokens_named(const struct plait_added_tokens *set,
                         const char *text);

#endif
