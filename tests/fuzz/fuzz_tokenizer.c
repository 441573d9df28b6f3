/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fuzz.h"
#include "runtime/data/tokenizer/bpe_tokenizer.h"

/* A tokenizer.json; one that can be read also tokenizes its own text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_bpe_scratch *scratch;
    struct plait_bpe_tokenizer *t;
    struct plait_tokens out = {0};
    struct plait_error err;

    t = plait_tokenizer_json_parse((const char *)data, size, "fuzz", &err);
    if (!t)
        return 0;
    scratch = plait_bpe_scratch_create();
    if (scratch && size > 0)
        plait_bpe_encode(t->bpe, scratch, data, size, &out);
    for (size_t i = 0; i < out.count; i++)
        if (out.id[i] < 0 || out.id[i] >= t->vocab)
            abort();
    free(out.id);
    plait_bpe_scratch_destroy(scratch);
    plait_bpe_tokenizer_destroy(t);
    return 0;
}
