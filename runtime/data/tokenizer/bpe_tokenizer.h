/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_BPE_TOKENIZER_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_BPE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/bpe.h"
#include "runtime/data/tokenizer/metaspace.h"
#include "runtime/data/tokenizer/pretokenize.h"
#include "topology/base/error.h"

/* What a tokenizer.json describes. */
struct plait_bpe_tokenizer {
    struct plait_bpe *bpe;
    uint8_t *table; /* of plait_unicode_create() */
    struct plait_added_tokens added;
    bool composes;     /* normalizes to NFC first */
    bool digits;       /* each digit is a separate piece */
    bool prefix_space; /* a blank is added before a text that has none */
    struct plait_metaspace meta; /* used: instead of digits and `pattern` */
    bool whole_words;
    struct plait_pattern pattern;
    int vocab;
};

/* Parses a tokenizer.json of `size` bytes; `name` stands for it in errors. An
 * unsupported setting is an error that names it. NULL with errno. */
struct plait_bpe_tokenizer *plait_tokenizer_json_parse(const char *text,
                                                       size_t size,
                                                       const char *name,
                                                       struct plait_error *err);
void plait_bpe_tokenizer_destroy(struct plait_bpe_tokenizer *t);

#endif
