/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_CACHE_FILE_H
#define PLAIT_RUNTIME_TRAIN_CACHE_FILE_H

#include <stdio.h>

/* Files of what earlier runs have found, in the user's cache folder. They save
 * work and decide nothing: a run does without where there is none. */

/* The file that `variable` of the environment names, or `name` of the cache
 * folder; malloc'ed. NULL: nothing is to be kept, or there is no memory. */
char *plait_cache_path(const char *variable, const char *name);

/* To write it anew, in a file beside it, whose folders are made. NULL: it
 * cannot be. */
FILE *plait_cache_begin(const char *path, char **beside);
/* Puts what was written in place at once, if it was written whole; frees
 * `beside`. */
void plait_cache_end(const char *path, FILE *out, char *beside);

#endif
