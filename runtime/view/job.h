/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_JOB_H
#define PLAIT_RUNTIME_VIEW_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/base/error.h"

/* Whether `path` is the number of a job of Slurm's, "123" or "123_4", and no
 * file. */
bool plait_job_is_id(const char *path);

/* The metrics files of that job, as plait_history_find() returns them: those in
 * its working directory, or up to two folders below, whose last start names
 * it. */
int plait_job_find(const char *id, char ***files, size_t *nfiles,
                   struct plait_error *err);

#endif
