/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_PREP_FILES_H
#define PLAIT_RUNTIME_DATA_PREP_PREP_FILES_H

#include <stdint.h>

#include "runtime/data/prep/text_source.h"
#include "runtime/data/prep/token_writer.h"

/* The files beside the tokens in a folder of plait-prep: prep.state while it
 * runs, prep.json and a copy of the tokenizer when it is done. */

/* Make the directory, and those above it where they are missing. */
int plait_prep_make_dir(const char *dir, struct plait_error *err);

/* The progress of a run. */
struct plait_prep_state {
    struct plait_text_position at;
    struct plait_token_mark mark[PLAIT_TEXT_SETS];
    int64_t left; /* JSON lines that gave no text */
};

/* `key` stands for the texts and options: only a run with the same key goes on.
 * 1: *state is set; 0: no state is there, or only that of a run with another
 * key. */
int plait_prep_state_load(const char *dir, uint64_t key,
                          struct plait_prep_state *state);
int plait_prep_state_save(const char *dir, uint64_t key,
                          const struct plait_prep_state *state,
                          struct plait_error *err);
void plait_prep_state_remove(const char *dir);

/* Copy the tokenizer's file, and a tokenizer_config.json beside it, into the
 * folder. Refuses to overwrite a different one that plait-prep did not
 * write. */
int plait_prep_copy_tokenizer(const char *dir, const struct plait_tokenizer *t,
                              struct plait_error *err);
/* Have the new names in the folder reach the disk. */
int plait_prep_sync(const char *dir, struct plait_error *err);
int plait_prep_write_manifest(
    const char *dir, enum plait_data_format format,
    const struct plait_tokenizer *t,
    const struct plait_token_mark mark[PLAIT_TEXT_SETS],
    struct plait_error *err);

#endif
