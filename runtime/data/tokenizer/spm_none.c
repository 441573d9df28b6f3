/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "runtime/data/tokenizer/spm.h"

/* Built without SentencePiece: no model can be opened, so the functions that
 * take one are never reached. */

struct plait_spm *plait_spm_create(const char *path, struct plait_error *err)
{
    errno = ENOTSUP;
    plait_errorf(err,
                 "spm:%s: this plait was built without SentencePiece; use "
                 "--tokenizer byte or bpe:FILE",
                 path);
    return NULL;
}

void plait_spm_destroy(struct plait_spm *spm)
{
    (void)spm;
}

int plait_spm_vocab(const struct plait_spm *spm)
{
    (void)spm;
    return 0;
}

int32_t plait_spm_end(const struct plait_spm *spm)
{
    (void)spm;
    return 0;
}

int plait_spm_bytes(const struct plait_spm *spm, struct plait_buffer *out)
{
    (void)spm, (void)out;
    errno = ENOTSUP;
    return -1;
}

bool plait_spm_has(const struct plait_spm *spm, int64_t id, const char *token)
{
    (void)spm, (void)id, (void)token;
    return false;
}

int plait_spm_encode(const struct plait_spm *spm, const char *text, size_t size,
                     bool continued, struct plait_tokens *out,
                     struct plait_error *err)
{
    (void)spm, (void)text, (void)size, (void)continued, (void)out;
    errno = ENOTSUP;
    return plait_errorf(err, "no SentencePiece tokenizer");
}

size_t plait_spm_cut(const struct plait_spm *spm, const char *text, size_t size)
{
    (void)spm, (void)text, (void)size;
    return 0;
}

int plait_spm_decode(const struct plait_spm *spm, const int32_t *tokens,
                     size_t ntokens, struct plait_buffer *out,
                     struct plait_error *err)
{
    (void)spm, (void)tokens, (void)ntokens, (void)out;
    errno = ENOTSUP;
    return plait_errorf(err, "no SentencePiece tokenizer");
}
