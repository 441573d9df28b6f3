/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_SPM_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_SPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "runtime/data/tokenizer/buffer.h"
#include "topology/base/error.h"

/* C interface to libsentencepiece; see tokenizer.h. Without the library,
 * plait_spm_create() says so. */
struct plait_spm;

struct plait_spm *plait_spm_create(const char *path, struct plait_error *err);
void plait_spm_destroy(struct plait_spm *spm);
int plait_spm_vocab(const struct plait_spm *spm);
int32_t plait_spm_end(const struct plait_spm *spm);
/* Appends the model's bytes. -1 with ENOMEM. */
int plait_spm_bytes(const struct plait_spm *spm, struct plait_buffer *out);
/* Whether the token is there, under this id. */
bool plait_spm_has(const struct plait_spm *spm, int64_t id, const char *token);
/* As plait_encoder_add(). A text is encoded line by line, which gives the
 * tokens of the whole: for one long sentence, the library's time and memory
 * grow faster than its length. A line of more than 1 MiB is encoded in parts of
 * that size, of whole characters, as if each were a text. */
int plait_spm_encode(const struct plait_spm *spm, const char *text, size_t size,
                     bool continued, struct plait_tokens *out,
                     struct plait_error *err);
/* As plait_tokenizer_cut(): at the last line break between two characters that
 * are not white space. */
size_t plait_spm_cut(const struct plait_spm *spm, const char *text,
                     size_t size);
int plait_spm_decode(const struct plait_spm *spm, const int32_t *tokens,
                     size_t ntokens, struct plait_buffer *out,
                     struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif
