/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_DCP_IMPORT_H
#define PLAIT_RUNTIME_CONVERT_DCP_IMPORT_H

#include "runtime/convert/convert.h"

/* Models in checkpoints of torch.distributed.checkpoint's, which say nothing of
 * the model but its tensors: the config.json of Hugging Face's form lies in the
 * folder, or in the one above it. */

/* Which of the two has config.json. -1 with ENOENT: neither. */
int plait_dcp_config_find(const char *dir, char path[4096],
                          struct plait_error *err);

/* As plait_convert_from_hf(), from `from` with the config.json of `config`. */
int plait_convert_from_dcp(const char *from, const char *config,
                           const char *dir, struct plait_converted *done,
                           struct plait_error *err);

#endif
