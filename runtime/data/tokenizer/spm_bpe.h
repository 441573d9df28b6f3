/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_SPM_BPE_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_SPM_BPE_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/data/tokenizer/bpe.h"
#include "runtime/data/tokenizer/buffer.h"
#include "runtime/data/tokenizer/spm_proto.h"
#include "runtime/data/tokenizer/tokenizer_private.h"

/* SentencePiece models that plait's own byte pair encoding encodes to the same
 * tokens as the library, several times as fast: those of type BPE that fall
 * back on bytes, leave the text as it is but for its blanks, and have no pieces
 * that users defined (Llama 2, Mistral). */
struct plait_spm_bpe;

/* *out is NULL where the model is of another kind. -1 with ENOMEM. */
int plait_spm_bpe_create(const struct plait_spm_proto *model,
                         struct plait_spm_bpe **out);
void plait_spm_bpe_destroy(struct plait_spm_bpe *b);

/* Work space for encoding; one for each thread, all zero at first. */
struct plait_spm_space {
    struct plait_bpe_scratch *bpe;
    struct plait_buffer text;
};
void plait_spm_space_clear(struct plait_spm_space *space);

/* As plait_encoder_add(), of valid UTF-8. -1 with ENOMEM. */
int plait_spm_bpe_encode(const struct plait_spm_bpe *b,
                         struct plait_spm_space *space,
                         const struct plait_passage *passage,
                         struct plait_tokens *out);

#endif
