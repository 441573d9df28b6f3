/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_HISTORY_H
#define PLAIT_RUNTIME_VIEW_HISTORY_H

#include <jansson.h>
#include <stddef.h>

#include "topology/base/error.h"

/* A metrics file of plait-train as columns. Members that are objects or lists
 * make a column for each entry: "comm_bytes.tp", "mem_bytes_stages.0". */
struct plait_column {
    char *name;
    double *at; /* [steps], NaN where a line has no number */
};

struct plait_history {
    char *path;
    size_t nsteps, room;
    struct plait_column *columns; /* the first is "step", rising */
    size_t ncolumns;
    json_t *starts; /* array: the lines of PATH.starts, perhaps empty */
    long offset;    /* bytes read so far */
    size_t nlines;
    size_t skipped; /* lines that are not whole, as a full disk or two runs in
                       one file leave them */
};

/* Errors name the file, the line and what is wrong with it. */
struct plait_history *plait_history_create(const char *path,
                                           struct plait_error *err);

/* Reads what was written since the last call; all of it again where the file
 * was cut off, as by a run that was resumed. An unfinished last line is left
 * for later. 1: there was something new, 0: nothing. */
int plait_history_update(struct plait_history *h, struct plait_error *err);

/* Says on stderr how many lines were skipped, if any were. */
void plait_history_say_skipped(const struct plait_history *h,
                               const char *program);

/* NULL: there is no such column. */
const double *plait_history_column(const struct plait_history *h,
                                   const char *name);
void plait_history_destroy(struct plait_history *h);

/* The metrics files that `path` means: itself, or those of a directory (files
 * NAME.jsonl whose first line has a step), by name. At least one. The caller
 * frees the names and the list. */
int plait_history_find(const char *path, char ***files, size_t *nfiles,
                       struct plait_error *err);

/* A pattern for glob() of the files `below` (a pattern) in `dir`, which is a
 * name and none, whatever characters it has. The caller frees; NULL: no
 * memory. */
char *plait_history_pattern(const char *dir, const char *below);

#endif
