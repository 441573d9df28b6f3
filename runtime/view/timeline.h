/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_TIMELINE_H
#define PLAIT_RUNTIME_VIEW_TIMELINE_H

#include <jansson.h>

/* One step of a run as recorded in its trace (log.profile), the one of median
 * length among the first: {seconds, tracks, names, ranks: [{rank, spans:
 * [track, name, begin, length, ...]}]}, times in microseconds since the rank's
 * own step began. NULL: `dir` has no trace with a step. */
json_t *plait_timeline(const char *dir);

#endif
