/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TEXT_GENERATE_H
#define PLAIT_RUNTIME_TEXT_GENERATE_H

#include <stdio.h>

#include "runtime/parallel/decoder.h"
#include "runtime/text/choose.h"
#include "runtime/text/prompt.h"

struct plait_generate_how {
    struct plait_sampling choice;
    int64_t tokens;   /* of each text, after its prompt */
    bool stop_at_end; /* stop where a text ends, else another text follows */
};

/* What generation took. */
struct plait_generate_stats {
    size_t cache_bytes; /* keys and values on this rank */
    int texts, length;  /* number of texts and their length, reserved */
    int64_t prompt_tokens, tokens;
    double prompt_s, tokens_s;
};

/* Write the prompts and what follows them to `out`, on rank 0. A single text is
 * written while it is drawn. Several are written one after the other in their
 * order, each below a line "==> NUMBER <==", and while it is drawn once those
 * before it are complete. The model sees the newest seq_len tokens at most: a
 * longer text goes on with the newer half of what the model saw. *stats may be
 * NULL.
 *
 * Collective over the world; -1: this rank alone may have failed. */
int plait_generate(struct plait_model *model,
                   const struct plait_prompts *prompts,
                   const struct plait_generate_how *how, FILE *out,
                   struct plait_generate_stats *stats, struct plait_error *err);

#endif
