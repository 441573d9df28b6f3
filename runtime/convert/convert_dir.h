/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_CONVERT_DIR_H
#define PLAIT_RUNTIME_CONVERT_CONVERT_DIR_H

#include "topology/base/error.h"

/* The directory that a conversion makes: hidden beside its place until it is
 * complete, then under its own name. */
struct plait_convert_dir {
    char to[4096]; /* its name, no slash at the end */
    char made[4096 + 32];
};

/* Refuses a `to` that is there and not an empty directory. What a conversion
 * that was killed has left of the same is removed. */
int plait_convert_dir_open(struct plait_convert_dir *dir, const char *to,
                           struct plait_error *err);
/* Give it its name. */
int plait_convert_dir_commit(const struct plait_convert_dir *dir,
                             struct plait_error *err);
/* Remove what there is of it. */
void plait_convert_dir_abandon(const struct plait_convert_dir *dir);

#endif
