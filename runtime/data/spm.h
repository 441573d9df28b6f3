/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPM_H
#define PLAIT_SPM_H

#include <stddef.h>
#include <stdint.h>

#include "topology/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A C face for libsentencepiece; see tokenizer.h. Without the library,
 * plait_spm_create() says so. Long texts are encoded in parts of about a
 * MiB, each up to the end of a line. */
struct plait_spm;

struct plait_spm *plait_spm_create(const char *path, struct plait_error *err);
void plait_spm_destroy(struct plait_spm *spm);
int plait_spm_vocab(const struct plait_spm *spm);
int32_t plait_spm_end(const struct plait_spm *spm);
int plait_spm_encode(const struct plait_spm *spm, const char *text, size_t size,
                     int32_t **tokens, size_t *ntokens,
                     struct plait_error *err);
int plait_spm_decode(const struct plait_spm *spm, const int32_t *tokens,
                     size_t ntokens, char **text, size_t *size,
                     struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif
