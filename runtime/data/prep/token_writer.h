/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_TOKEN_WRITER_H
#define PLAIT_RUNTIME_DATA_PREP_TOKEN_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"
#include "topology/job/job_config.h"

/* Writes tokens in one of the formats of datasets: plait's (shard.h), llm.c's
 * (at most 2^31 - 1 tokens) or Megatron's .bin and .idx, with a document for
 * each end. The files appear under their names, whole and synced, when they
 * are finished, and never otherwise. */
struct plait_token_writer;

/* How much a writer has written, so that another one can go on there. */
struct plait_token_mark {
    int64_t tokens, documents;
    int64_t open; /* tokens of the document that has not ended */
};

/* What is written: the format, the tokenizer's name and its vocabulary. Tokens
 * of a masked file may have PLAIT_TOKEN_MASKED (segment.h); only plait's format
 * can be masked. */
struct plait_token_form {
    enum plait_data_format format;
    const char *tokenizer;
    int vocab;
    bool masked;
};

/* `stem`: the path without .bin. `mark`: go on at that point with the file that
 * an interrupted writer left; NULL: begin anew. NULL with errno, EWOULDBLOCK if
 * another process writes the file. */
struct plait_token_writer *
plait_token_writer_create(const char *stem, const struct plait_token_form *form,
                          const struct plait_token_mark *mark,
                          struct plait_error *err);
/* ends[nends], ascending: a document ends before tokens[ends[i]]. */
int plait_token_writer_add(struct plait_token_writer *w, const int32_t *tokens,
                           size_t n, const int64_t *ends, size_t nends,
                           struct plait_error *err);
/* Have all that was added reach the disk; *mark is then how much that is. */
int plait_token_writer_sync(struct plait_token_writer *w,
                            struct plait_token_mark *mark,
                            struct plait_error *err);
struct plait_token_mark
plait_token_writer_mark(const struct plait_token_writer *w);
/* Write all that is still lacking, so that only the files' names do: what fails
 * here leaves nothing to be undone. */
int plait_token_writer_complete(struct plait_token_writer *w,
                                struct plait_error *err);
/* Complete the files if that was not done, and give them their names. Without
 * any token no file appears, and an older one of that name is removed. */
int plait_token_writer_finish(struct plait_token_writer *w,
                              struct plait_error *err);
/* Keep the unfinished files, for another writer to go on with. NULL-safe. */
void plait_token_writer_keep(struct plait_token_writer *w);
/* Removes what was not finished and is not kept. NULL-safe, keeps errno. */
void plait_token_writer_destroy(struct plait_token_writer *w);

#endif
