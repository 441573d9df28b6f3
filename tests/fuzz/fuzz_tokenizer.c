/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fuzz.h"
#include "runtime/data/tokenizer/bpe_tokenizer.h"
#include "runtime/data/tokenizer/unicode.h"

/* A tokenizer.json; one that can be read also tokenizes its own text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_bpe_scratch *scratch;
    struct plait_bpe_tokenizer *t;
    struct plait_buffer text = {0}, back = {0};
    struct plait_tokens out = {0};
    struct plait_error err;
    const char *token;
    size_t n;

    t = plait_tokenizer_json_parse((const char *)data, size, "fuzz", &err);
    if (!t)
        return 0;
    scratch = plait_bpe_scratch_create();
    if (scratch && plait_utf8_repair((const char *)data, size, &text) == 0)
        for (size_t at = 0; at < text.size; at += n) {
            n = t->meta.used
                    ? plait_metaspace_next(&t->meta, t->whole_words,
                                           text.data + at, text.size - at)
                    : text.size;
            plait_bpe_encode(t->bpe, scratch,
                             (const unsigned char *)text.data + at, n, &out);
        }
    for (size_t i = 0; i < out.count; i++)
        if (out.id[i] < 0 || out.id[i] >= t->vocab)
            abort();
    for (size_t i = 0; t->meta.used && i < out.count; i++) {
        token = plait_bpe_text(t->bpe, out.id[i], &n);
        plait_metaspace_decode(&t->meta, token, n, i == 0, &back);
    }
    free(back.data);
    free(text.data);
    free(out.id);
    plait_bpe_scratch_destroy(scratch);
    plait_bpe_tokenizer_destroy(t);
    return 0;
}
