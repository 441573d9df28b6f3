/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_IDENTITY_H
#define PLAIT_RUNTIME_CHECKPOINT_IDENTITY_H

#include <stdbool.h>

#include "runtime/checkpoint/directory.h"

/* Whether a checkpoint belongs to the run that wants to go on from it. */

/* Whether `key` is in `list`, "KEY[,KEY]..."; NULL: no list. */
bool plait_identity_is_allowed(const char *list, const char *key);

/* Compares every setting of this run with the manifest's, except those in
 * `anyway`; with `weights`, only those that matter for weights alone. What the
 * manifest lacks, as an earlier version did not know the key, had its default
 * there (plait_settings_default()). -1 with EINVAL names all that differ. */
int plait_identity_check(const char *path, const struct plait_manifest *m,
                         const struct plait_job_config *config, bool weights,
                         const char *anyway, struct plait_error *err);

/* For a checkpoint of an earlier version: compares the model in
 * DIRECTORY/plait.yaml, if that file exists. */
int plait_identity_check_model(const char *directory,
                               const struct plait_model_config *model,
                               struct plait_error *err);

#endif
