/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_DETOKENIZE_H
#define PLAIT_RUNTIME_TRAIN_DETOKENIZE_H

#include <stdio.h>

#include "runtime/comm/comm.h"
#include "runtime/data/tokenizer.h"

#define PLAIT_DETOKENIZE_PENDING 64

/* The text of a sample: what it begins with as tokens, and tokens as text
 * while they come. */
struct plait_detokenizer {
    int32_t *prompt; /* [nprompt], at least one */
    size_t nprompt;
    int vocab; /* the tokens that are text are those below */

    /* Rank 0. NULL: tokens are printed as numbers. */
    struct plait_tokenizer *tokenizer;
    /* The newest tokens: what is printed of one may depend on the one before,
     * and a letter may take several. */
    int32_t pending[PLAIT_DETOKENIZE_PENDING];
    int npending;
    size_t printed; /* bytes of what they are */
};

/* Collective. `spec` as in tokenizer.h; NULL: the one that plait-prep left
 * beside `data` (NULL: none), else bytes where the model's `vocab` is theirs,
 * otherwise numbers. A prompt of NULL, or of no tokens, is the end
 * of a text, after which the next one begins. */
int plait_detokenizer_open(struct plait_detokenizer *d,
                           struct plait_comm *world, const char *spec,
                           const char *data, const char *prompt, int vocab,
                           struct plait_error *err);
void plait_detokenizer_close(struct plait_detokenizer *d);

/* Rank 0 alone. Half a letter is held back until it is whole, or the end. */
int plait_detokenizer_put(struct plait_detokenizer *d, int32_t token, FILE *out,
                          struct plait_error *err);
int plait_detokenizer_end(struct plait_detokenizer *d, FILE *out,
                          struct plait_error *err);

#endif
