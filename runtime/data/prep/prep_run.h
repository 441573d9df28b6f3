/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_PREP_RUN_H
#define PLAIT_RUNTIME_DATA_PREP_PREP_RUN_H

#include "runtime/data/prep/text_source.h"
#include "runtime/data/prep/token_writer.h"

struct plait_prep {
    char **texts;
    int ntexts;
    const char *dir;
    const char *tokenizer; /* as plait_tokenizer_create() takes it */
    const char *field;     /* of JSON lines; NULL: "text", and only files named
                              .jsonl or .ndjson are JSON lines */
    const char *prompt_field; /* of prompts before the texts, which have no
                                 loss; then all files are JSON lines, and a NULL
                                 `field` is "completion". NULL: none */
    const char *end_token;    /* that ends a document; NULL: the tokenizer's */
    bool skip_bad;            /* leave out JSON lines that cannot be read */
    enum plait_data_format format;
};

struct plait_prep_result {
    int vocab;
    int32_t end;       /* the token that ends a document */
    char end_name[64]; /* "": it has none */
    int64_t left;      /* JSON lines that gave no text */
    struct plait_token_mark mark[PLAIT_TEXT_SETS];
};

/* Turns texts into the tokens of a folder; goes on where an interrupted run
 * with the same texts and options stopped. Progress goes to standard error if
 * that is a terminal, and so do the first lines that gave no text. */
int plait_prep_run(const struct plait_prep *prep,
                   struct plait_prep_result *result, struct plait_error *err);

#endif
