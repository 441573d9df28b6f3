/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_CONVERT_DIR_H
#define PLAIT_RUNTIME_CONVERT_CONVERT_DIR_H

#include "topology/base/error.h"

/* The directory that a conversion makes: hidden beside its final place until it
 * is complete. */
struct plait_convert_dir {
    char to[4096]; /* its final name, no slash at the end */
    char made[4096 + 32];
};

/* Refuses a `to` that exists and is not an empty directory. Removes what a
 * killed conversion of the same name has left. */
int plait_convert_dir_open(struct plait_convert_dir *dir, const char *to,
                           struct plait_error *err);
/* Give it its final name. */
int plait_convert_dir_commit(const struct plait_convert_dir *dir,
                             struct plait_error *err);
/* Remove what was written. */
void plait_convert_dir_abandon(const struct plait_convert_dir *dir);

#endif
