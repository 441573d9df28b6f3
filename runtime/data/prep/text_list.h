/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_TEXT_LIST_H
#define PLAIT_RUNTIME_DATA_PREP_TEXT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* The files that texts are read from. All zero is an empty list. */
struct plait_text_file {
    char *path;
    int64_t size, mtime;
    bool lines; /* JSON lines: each is a document */
};

struct plait_text_list {
    struct plait_text_file *file;
    size_t count;
    int64_t size; /* of all files */
};

/* Add a file, or all files of a folder and the folders in it, in the order of
 * their names; those whose names begin with a dot, and empty ones, are skipped.
 * Names that end in .jsonl or .ndjson, compressed or not, are JSON lines; all
 * are if `lines` is true. Refuses an empty file that was named itself, a folder
 * without a text, Parquet. */
int plait_text_list_add(struct plait_text_list *list, const char *path,
                        bool lines, struct plait_error *err);
/* Reads the beginning of each file, and refuses what is no text. */
int plait_text_list_check(const struct plait_text_list *list,
                          struct plait_error *err);
void plait_text_list_clear(struct plait_text_list *list);

#endif
