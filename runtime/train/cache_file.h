/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_CACHE_FILE_H
#define PLAIT_RUNTIME_TRAIN_CACHE_FILE_H

#include <stdio.h>

/* Files in the user's cache folder with results of earlier runs. They only save
 * work: a run that cannot read or write them goes on without them. */

/* The path that the environment's `variable` gives, or else that of `name` in
 * the cache folder; malloc'ed. NULL: nothing is to be kept (`variable` is
 * empty, or there is no home), or out of memory. */
char *plait_cache_path(const char *variable, const char *name);

/* Opens a temporary file beside `path`, *beside (malloc'ed), for the new
 * contents, and makes its folders. NULL: it cannot be written. */
FILE *plait_cache_begin(const char *path, char **beside);
/* Closes `out`. Renames the temporary file to `path` if all of it was written,
 * else removes it. Frees `beside`. */
void plait_cache_end(const char *path, FILE *out, char *beside);

#endif
