/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_PREDICTED_H
#define PLAIT_RUNTIME_VIEW_PREDICTED_H

#include <jansson.h>

/* What the planner expects of a run, from the record of its start: step_s,
 * tokens_per_s, mfu, compute_s, bubble_s, optimizer_s, axes (seconds of a step
 * by axis) and memory (bytes of each stage), or `error` with the reason. It
 * uses the figures of `gpu_type`, or with NULL of the type on record. NULL: out
 * of memory. */
json_t *plait_predicted(const json_t *start, const char *gpu_type);

/* `text` as a string of JSON, which has to be UTF-8. In a text that is not,
 * each byte that is not ASCII becomes "?". NULL: out of memory. */
json_t *plait_report_text(const char *text);

#endif
