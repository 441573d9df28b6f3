/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <string.h>

#include "runtime/data/tokenizer/spm.h"
#include "runtime/data/tokenizer/tokenizer_private.h"

/* The kind of tokenizer that uses SentencePiece. */

static void spm_destroy(void *model)
{
    plait_spm_destroy(model);
}

static size_t spm_cut(const void *model, const char *text, size_t size)
{
    return plait_spm_cut(model, text, size);
}

static int spm_encode(const void *model, void *scratch, const char *text,
                      size_t size, bool continued, struct plait_tokens *out,
                      struct plait_error *err)
{
    (void)scratch;
    return plait_spm_encode(model, text, size, continued, out, err);
}

static int spm_decode(const void *model, const int32_t *tokens, size_t ntokens,
                      struct plait_buffer *out, struct plait_error *err)
{
    return plait_spm_decode(model, tokens, ntokens, out, err);
}

static const struct plait_tokenizer_ops spm_ops = {
    .name = "spm",
    .file = "tokenizer.model",
    .destroy = spm_destroy,
    .cut = spm_cut,
    .encode = spm_encode,
    .decode = spm_decode,
};

int plait_tokenizer_open_spm(struct plait_tokenizer *t, const char *path,
                             struct plait_error *err)
{
    struct plait_spm *spm = plait_spm_create(path, err);

    if (!spm)
        return -1;
    t->ops = &spm_ops;
    t->model = spm;
    t->vocab = plait_spm_vocab(spm);
    t->end = plait_spm_end(spm);
    return 0;
}
