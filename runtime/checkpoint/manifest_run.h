/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_MANIFEST_RUN_H
#define PLAIT_RUNTIME_CHECKPOINT_MANIFEST_RUN_H

#include <jansson.h>

#include "runtime/optim/run_state.h"

/* The object "run" of a manifest:
 * {"samples": 320, "skipped": 0, "noise": [square, trace, weight],
 *  "losses": [oldest, ...], "norms": [...], "batch": 0, "held": 0} */

/* The caller's; NULL: no memory. */
json_t *plait_manifest_run(const struct plait_run_state *state);

/* NULL, of an earlier version: all zero. -1: `json` is not such an object. */
int plait_manifest_parse_run(const json_t *json, struct plait_run_state *state);

#endif
