/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TEXT_PROMPT_H
#define PLAIT_RUNTIME_TEXT_PROMPT_H

#include "runtime/comm/comm.h"
#include "runtime/data/tokenizer/tokenizer.h"

/* Where the tokenizer of a model comes from: the first of these that there
 * is. */
struct plait_tokenizer_source {
    const char *spec; /* as in tokenizer.h */
    const char *data; /* what plait-prep left beside these tokens */
    const char *dir; /* a Hugging Face directory or a checkpoint: tokenizer.json
                        or tokenizer.model in it or in the folder it is in */
    int vocab;       /* the model's; bytes if it has their size */
};

/* NULL: err says why, or is empty if there is none. */
struct plait_tokenizer *
plait_tokenizer_find(const struct plait_tokenizer_source *source,
                     struct plait_error *err);

/* More than any model has: tokens that end a text. */
enum { PLAIT_STOPS_MOST = 64 };

/* The beginnings of texts, as tokens. */
struct plait_prompts {
    int n;
    int32_t *tokens; /* of all prompts, one after the other */
    int *first;      /* [n + 1] where each begins */
    int vocab;       /* text tokens are below it */
    int32_t end;     /* the token that ends a text; -1: none */
    /* Tokens that may end a text, such as a turn of a chat: `end`, and what is
     * named so in the files beside the tokenizer. */
    int32_t stop[PLAIT_STOPS_MOST];
    int nstops;
    struct plait_tokenizer *tokenizer; /* rank 0; NULL: tokens are numbers */
};

/* What prompts are made of. */
struct plait_prompt_texts {
    const char *const *text; /* NULL: the token that ends a text, after which a
                                new text begins */
    int n;
    int longest; /* so many tokens a prompt may have */
};

/* Collective; fails as plait_error_consensus() does. */
int plait_prompts_open(struct plait_prompts *prompts, struct plait_comm *world,
                       const struct plait_tokenizer_source *source,
                       const struct plait_prompt_texts *texts,
                       struct plait_error *err);
void plait_prompts_close(struct plait_prompts *prompts);

#endif
