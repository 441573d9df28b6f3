/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spm.h"

enum { BYTE_END = 256 };

struct plait_tokenizer {
    struct plait_spm *spm; /* NULL: bytes */
};

struct plait_tokenizer *plait_tokenizer_create(const char *spec,
                                               struct plait_error *err)
{
    struct plait_tokenizer *t = calloc(1, sizeof(*t));

    if (!t) {
        plait_errorf(err, "tokenizer %s: out of memory", spec);
        return NULL;
    }
    if (!strcmp(spec, "byte"))
        return t;
    if (!strncmp(spec, "spm:", 4) && spec[4]) {
        t->spm = plait_spm_create(spec + 4, err);
        if (t->spm)
            return t;
    } else {
        errno = EINVAL;
        plait_errorf(err, "the tokenizer is byte or spm:FILE, not '%s'", spec);
    }
    free(t);
    return NULL;
}

void plait_tokenizer_destroy(struct plait_tokenizer *t)
{
    int saved = errno;

    if (!t)
        return;
    plait_spm_destroy(t->spm);
    free(t);
    errno = saved;
}

const char *plait_tokenizer_name(const struct plait_tokenizer *t)
{
    return t->spm ? "spm" : "byte";
}

int plait_tokenizer_vocab(const struct plait_tokenizer *t)
{
    return t->spm ? plait_spm_vocab(t->spm) : PLAIT_BYTE_VOCAB;
}

int32_t plait_tokenizer_end(const struct plait_tokenizer *t)
{
    return t->spm ? plait_spm_end(t->spm) : BYTE_END;
}

int plait_tokenizer_encode(const struct plait_tokenizer *t, const char *text,
                           size_t size, int32_t **tokens, size_t *ntokens,
                           struct plait_error *err)
{
    int32_t *out;
    size_t i;

    if (t->spm)
        return plait_spm_encode(t->spm, text, size, tokens, ntokens, err);
    out = malloc((size + 1) * sizeof(*out));
    if (!out)
        return plait_errorf(err, "tokenizer: out of memory");
    for (i = 0; i < size; i++)
        out[i] = (unsigned char)text[i];
    *tokens = out;
    *ntokens = size;
    return 0;
}

int plait_tokenizer_decode(const struct plait_tokenizer *t,
                           const int32_t *tokens, size_t ntokens, char **text,
                           size_t *size, struct plait_error *err)
{
    size_t i, used = 0;
    char *out;

    if (t->spm)
        return plait_spm_decode(t->spm, tokens, ntokens, text, size, err);
    out = malloc(ntokens + 1);
    if (!out)
        return plait_errorf(err, "tokenizer: out of memory");
    for (i = 0; i < ntokens; i++)
        if (tokens[i] >= 0 && tokens[i] < BYTE_END)
            out[used++] = (char)tokens[i];
    out[used] = '\0';
    *text = out;
    *size = used;
    return 0;
}
