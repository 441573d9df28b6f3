/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_MANIFEST_RUN_H
#define PLAIT_RUNTIME_CHECKPOINT_MANIFEST_RUN_H

#include <jansson.h>

#include "runtime/optim/run_state.h"

/* The object "run" of a manifest:
 * {"samples": 320, "skipped": 0, "noise": [square, trace, weight],
 *  "losses": [oldest, ...], "norms": [...], "batch": 0, "held": 0} */

/* Owned by the caller. NULL: out of memory. */
json_t *plait_manifest_run(const struct plait_run_state *state);

/* `json` NULL (an earlier version): all zero. -1: it is malformed. */
int plait_manifest_parse_run(const json_t *json, struct plait_run_state *state);

#endif
