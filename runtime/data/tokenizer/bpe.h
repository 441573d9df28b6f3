/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_BPE_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/data/tokenizer/buffer.h"

/* Byte-pair encoding (Sennrich et al., arXiv 1508.07909; GPT-2):
 * a piece of text is its bytes, and the two neighbours whose merge was
 * learned first become one token, until no two can be merged. */
struct plait_bpe;

/* vocab: one more than the largest token id; nmerges: how many there will
 * be. NULL with errno. */
struct plait_bpe *plait_bpe_create(int vocab, size_t nmerges);
void plait_bpe_destroy(struct plait_bpe *bpe);

/* The bytes that token `id` stands for. -1 with ENOMEM. */
int plait_bpe_set_text(struct plait_bpe *bpe, int32_t id, const char *text,
                       size_t size);
/* `left` and `right` become `merged`; merges that were added first are applied
 * first. A second merge of the same pair replaces the first. -1 with EOVERFLOW
 * if there are more than plait_bpe_create() was told. */
int plait_bpe_add_merge(struct plait_bpe *bpe, int32_t left, int32_t right,
                        int32_t merged);
/* The same with a rank of its own: the lowest is applied first, of equal ones
 * the first in the text. */
int plait_bpe_add_ranked(struct plait_bpe *bpe, uint32_t rank, int32_t left,
                         int32_t right, int32_t merged);
/* Have pieces begin as characters instead of bytes. One that is no token
 * becomes the tokens of its bytes, <0x00> to <0xFF>, if it `falls_back`, else
 * `unknown`
 * (-1: nothing), once for several in a row if `fuse`. Before
 * plait_bpe_finish().
 */
struct plait_bpe_characters {
    bool used, falls_back, fuse;
    int32_t unknown;
};
void plait_bpe_set_characters(struct plait_bpe *bpe,
                              const struct plait_bpe_characters *characters);
/* Call it when all texts are set: finds the tokens of single bytes.
 * `whole_words`: a piece that is a token itself becomes that token, whatever
 * the merges would make ("ignore_merges"). -1 with ENOMEM; with EINVAL if
 * characters fall back to tokens that are missing. */
int plait_bpe_finish(struct plait_bpe *bpe, bool whole_words);

/* The token whose bytes these are; -1 if there is none. */
int32_t plait_bpe_find(const struct plait_bpe *bpe, const char *text,
                       size_t size);
/* The bytes of a token; "" for an id that has none. */
const char *plait_bpe_text(const struct plait_bpe *bpe, int32_t id,
                           size_t *size);

/* Work space for encoding, and a cache of recent pieces; one for each
 * thread. */
struct plait_bpe_scratch;
struct plait_bpe_scratch *plait_bpe_scratch_create(void);
void plait_bpe_scratch_destroy(struct plait_bpe_scratch *scratch);

/* Appends the tokens of one piece, UTF-8 if it begins as characters; a byte
 * without a token is left out, as Hugging Face's tokenizers does. -1 with
 * ENOMEM. */
int plait_bpe_encode(const struct plait_bpe *bpe,
                     struct plait_bpe_scratch *scratch,
                     const unsigned char *piece, size_t size,
                     struct plait_tokens *out);

#endif
