/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_EVAL_TOKENS_H
#define PLAIT_RUNTIME_EVAL_TOKENS_H

#include "runtime/comm/comm.h"
#include "runtime/text/prompt.h"

/* Makes a token negative: it is read and not predicted. */
#define PLAIT_EVAL_MASKED INT32_MIN

/* The tokens of a file that a model is evaluated on, on every rank. */
struct plait_eval_tokens {
    int32_t *tokens;   /* [n], those of prompts | PLAIT_EVAL_MASKED */
    int64_t n;         /* at least 2 */
    int64_t predicted; /* tokens after the first that are of no prompt */
    int64_t bytes;     /* bytes of text after the first token; 0: not known */
};

/* `path`: text, or tokens where it ends in .bin or is a folder of plait-prep's.
 * All tokens are below `source`->vocab. Collective; fails as
 * plait_error_consensus() does. */
int plait_eval_tokens_read(struct plait_eval_tokens *t,
                           struct plait_comm *world, const char *path,
                           const struct plait_tokenizer_source *source,
                           struct plait_error *err);
void plait_eval_tokens_free(struct plait_eval_tokens *t);

#endif
