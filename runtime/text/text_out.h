/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TEXT_TEXT_OUT_H
#define PLAIT_RUNTIME_TEXT_TEXT_OUT_H

#include <stdio.h>

#include "runtime/data/tokenizer/tokenizer.h"

#define PLAIT_TEXT_PENDING 64

/* Writes tokens as text while they come: valid UTF-8, of which no incomplete
 * character is written. What is not UTF-8 becomes U+FFFD. */
struct plait_text_out {
    /* NULL: tokens are written as numbers. Not owned. */
    const struct plait_tokenizer *tokenizer;
    /* The newest tokens: the text of a token may depend on the one before, and
     * a character may take several tokens. */
    int32_t pending[PLAIT_TEXT_PENDING];
    int npending;
    size_t printed; /* bytes of their text that are printed */
};

/* plait_text_out_end() writes what was held back, and a newline. */
int plait_text_out_put(struct plait_text_out *t, int32_t token, FILE *out,
                       struct plait_error *err);
int plait_text_out_end(struct plait_text_out *t, FILE *out,
                       struct plait_error *err);

#endif
