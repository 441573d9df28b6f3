/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_TRACE_H
#define PLAIT_RUNTIME_COMM_TRACE_H

#include <stdint.h>

#include "runtime/comm/profile.h"
#include "topology/base/error.h"

/* What this rank did when, in the Trace Event Format that Perfetto and
 * chrome://tracing read. Times are the host's: on a GPU, when work was
 * queued and waited for. Every function takes a NULL trace and does
 * nothing. Not for several threads at once. */
struct plait_trace;

/* DIR/rank-00000.json; DIR is created if it is missing, and files of an earlier
 * run of more than `ranks` are removed. dir NULL: no file. Spans are added to
 * `profile` too, which must outlive the trace; NULL: they are not. */
struct plait_trace *plait_trace_create(const char *dir, int rank, int ranks,
                                       struct plait_profile *profile,
                                       struct plait_error *err);
/* Ends the file and frees the trace, in any case; -1: the file is not
 * complete, and why. NULL-safe, keeps errno. */
int plait_trace_close(struct plait_trace *trace, struct plait_error *err);

/* Seconds of the clock that spans are given in. */
double plait_trace_now(void);
/* From `start` until now, on the line called `track` ("compute"); spans of
 * one track are nested or disjoint. */
void plait_trace_span(struct plait_trace *trace, const char *track,
                      const char *name, double start);
/* From `start` to `end`, where spans of a track may overlap: transfers that run
 * concurrently with compute. */
void plait_trace_async(struct plait_trace *trace, const char *track,
                       const char *name, double start, double end);

#endif
