/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRACE_TRACE_H
#define PLAIT_RUNTIME_TRACE_TRACE_H

#include <stdint.h>

#include "runtime/trace/profile.h"
#include "topology/base/error.h"

/* What this rank did when, in the Trace Event Format that Perfetto and
 * chrome://tracing read. Times are the host's: for work on a GPU, when it was
 * queued and waited for. Every function accepts a NULL trace and then does
 * nothing. Not for several threads at once. */
struct plait_trace;

/* Writes to DIR/rank-00000.json. DIR is created if it is missing, and files
 * that an earlier run left for ranks from `ranks` on are removed. dir NULL: no
 * file. Spans are added to `profile` too, which must outlive the trace; NULL:
 * not. */
struct plait_trace *plait_trace_create(const char *dir, int rank, int ranks,
                                       struct plait_profile *profile,
                                       struct plait_error *err);
/* Ends the file and frees the trace, in any case; -1 with err: the file is not
 * complete. `trace` may be NULL; keeps errno. */
int plait_trace_close(struct plait_trace *trace, struct plait_error *err);

/* Times are plait_clock_now()'s. A span from `start` to `end`, the present, on
 * the line called `track` ("compute"). Spans of a track are nested or disjoint.
 * For activity.c, as is the next. */
void plait_trace_span(struct plait_trace *trace, const char *track,
                      const char *name, double start, double end);
/* A span from `start` to `end` that may overlap others of its track: for
 * transfers that run concurrently with compute. */
void plait_trace_async(struct plait_trace *trace, const char *track,
                       const char *name, double start, double end);

#endif
