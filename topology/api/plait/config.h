/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_CONFIG_H
#define PLAIT_CONFIG_H

#include <plait/error.h>
#include <plait/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is to be trained and how: the configuration of plait-train,
 * plait.yaml(5). */
struct plait_job_config;

/* Read a YAML file (NULL: the defaults alone), then apply `nset` texts
 * "section.key=value" in order. The caller owns the configuration; NULL:
 * `err` names file, line and the nearest key. */
PLAIT_EXPORT struct plait_job_config *
plait_job_config_create(const char *path, const char *const *set, int nset,
                        struct plait_error *err);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void plait_job_config_destroy(struct plait_job_config *config);

#ifdef __cplusplus
}
#endif
#endif
