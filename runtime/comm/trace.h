/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TRACE_H
#define PLAIT_TRACE_H

#include <stdint.h>

#include "runtime/comm/profile.h"
#include "topology/error.h"

/* What this rank did when, in the Trace Event Format that Perfetto and
 * chrome://tracing read. Times are the host's: on a GPU, when work was
 * queued and waited for. Every function takes a NULL trace and does
 * nothing. Not for several threads at once. */
struct plait_trace;

/* DIR/rank-00000.json; DIR is made if it is not there, and rid of what a run
 * of more than `ranks` has left. dir NULL: no file. What is noted is added up
 * in `profile` too, which outlives the trace; NULL: is not. */
struct plait_trace *plait_trace_create(const char *dir, int rank, int ranks,
                                       struct plait_profile *profile,
                                       struct plait_error *err);
/* Ends the file and frees the trace, in any case; -1: the file is not
 * complete, and why. NULL-safe, keeps errno. */
int plait_trace_close(struct plait_trace *trace, struct plait_error *err);

/* Seconds of the clock that spans are given in. */
double plait_trace_now(void);
/* From `start` until now, on the line called `track` ("compute"); spans of
 * one track lie in or after one another. */
void plait_trace_span(struct plait_trace *trace, const char *track,
                      const char *name, double start);
/* From `start` to `end`, where spans of a track may overlap: what runs
 * beside. */
void plait_trace_async(struct plait_trace *trace, const char *track,
                       const char *name, double start, double end);

#endif
