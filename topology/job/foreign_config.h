/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FOREIGN_CONFIG_H
#define PLAIT_TOPOLOGY_JOB_FOREIGN_CONFIG_H

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The max_window_layers of Qwen's configurations that do not give it. */
enum { PLAIT_WINDOW_LAYERS = 28 };

/* Read a model from other software's configuration, for the planner: Hugging
 * Face's config.json, or Megatron's arguments (a file of "--num-layers 32 ...",
 * or of the same names as YAML). `*framework` is set where the file shows whose
 * it is. A file that is neither is read as plait_job_config_create() does.
 * NULL, with the reason in err. */
struct plait_job_config *
plait_foreign_config_create(const char *path, const char *const *set, int nset,
                            enum plait_framework *framework,
                            struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif
