/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRACE_ACTIVITY_H
#define PLAIT_RUNTIME_TRACE_ACTIVITY_H

#include "runtime/stuck/record.h"
#include "runtime/trace/trace.h"

/* What a rank is doing, told by one begin and one end to all who listen: the
 * record, from which plait-stuck and the watchdog learn where a rank is that
 * hangs; the trace and the profile; the ranges of a GPU's profiler; the limit
 * of time of the watchdog. The end returns how long it took, for statistics.
 *
 * An activity may be left without an end, as when a step fails: the record then
 * goes on to say what the rank was in. One with a range or an operation is
 * dropped instead. No memory is allocated. For the thread that trains. */

struct plait_watchdog; /* runtime/train/watchdog */

/* Who listens. Each member may be NULL. */
struct plait_listeners {
    const struct plait_ops *ops; /* of the device: its profiler */
    struct plait_record *record;
    struct plait_record_group *group; /* the communicator's, in the record or
                                         beside it */
    struct plait_trace *trace;
    struct plait_watchdog *dog;
    /* plait_watchdog_stage(), which lies above this folder. */
    void (*stage)(struct plait_watchdog *dog, const char *what);
};

/* What is done. Its texts outlive the activity. Members that are left out are
 * not told. */
struct plait_doing {
    enum plait_phase phase;   /* PLAIT_PHASE_START: the phase does not change */
    const char *file;         /* for PLAIT_PHASE_OPEN: the one that is opened */
    const char *track, *name; /* the line in the trace, and the name there */
    const char *range;        /* the name in a GPU's profiler */
    const char *stage;        /* the name of what has the limit of steps, before
                                 the first step */
    /* For listeners with a group: an operation of it, begun here or, where
     * `tag` is set, before. */
    enum plait_op op;
    int peer; /* of a message: the other rank's index */
    uint64_t bytes, tag;
};

/* An activity under way. */
struct plait_activity {
    const struct plait_listeners *to;
    struct plait_doing what;
    double begin; /* plait_clock_now()'s */
    uint64_t tag; /* of the operation */
};

struct plait_activity plait_activity_begin(const struct plait_listeners *to,
                                           const struct plait_doing *what);
/* Ends it; returns the seconds it took. The phase becomes the one that follows:
 * after an evaluation, a log, a checkpoint or a check the rank is between two
 * steps, and after it has loaded weights it is starting. */
double plait_activity_end(const struct plait_activity *a);
/* Ends it where it failed, or where the operation that it began goes on beside
 * the thread: it does not appear in the trace, and the phase stays. */
void plait_activity_drop(const struct plait_activity *a);

/* Goes into a phase that has no end of its own, such as a part of a step: what
 * follows it, messages and sums, belongs to it until another begins. */
void plait_activity_phase(const struct plait_listeners *to,
                          enum plait_phase phase);
/* Until something else begins, this rank opens `path`: a server that does not
 * answer may keep it in there, and the others name it and the file. */
void plait_activity_file(const struct plait_listeners *to, const char *path);
/* What went on beside the thread from `begin` to `end`, for the trace alone. */
void plait_activity_beside(const struct plait_listeners *to, const char *track,
                           const char *name, double begin, double end);

#endif
