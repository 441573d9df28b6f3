/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/trace/trace.h"
#include "topology/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACKS_MOST 32

struct plait_trace {
    FILE *out; /* NULL: only the profile is kept */
    char *path;
    int failure; /* errno of the first write that failed */
    struct plait_profile *profile;
    int rank;
    double zero; /* times in the file count from here */
    int ntracks;
    char track[TRACKS_MOST][32];
    uint64_t asyncs;
};

static void __attribute__((format(printf, 2, 3)))
write_event(struct plait_trace *trace, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (vfprintf(trace->out, fmt, ap) < 0 && !trace->failure)
        trace->failure = errno;
    va_end(ap);
}

/* Viewers take process and thread 0 for the idle task, so both count from 1. */
static int process_of(const struct plait_trace *trace)
{
    return trace->rank + 1;
}

/* Remove the files that an earlier run with more ranks has left. */
static void remove_older(const char *dir, int rank, int ranks)
{
    char path[4096];

    do {
        rank += ranks;
        snprintf(path, sizeof(path), "%s/rank-%05d.json", dir, rank);
    } while (unlink(path) == 0);
}

static int open_file(struct plait_trace *trace, const char *dir, int ranks,
                     struct plait_error *err)
{
    if (asprintf(&trace->path, "%s/rank-%05d.json", dir, trace->rank) < 0) {
        trace->path = NULL;
        return plait_errorf(err, "out of memory");
    }
    if (mkdir(dir, 0777) == 0 || errno == EEXIST)
        trace->out = fopen(trace->path, "we");
    if (!trace->out)
        return plait_errorf(err, "log.profile: %s: %s", trace->path,
                            strerror(errno));
    remove_older(dir, trace->rank, ranks);
    write_event(trace,
                "[{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
                "\"args\":{\"name\":\"rank %d\"}}",
                process_of(trace), trace->rank);
    return 0;
}

struct plait_trace *plait_trace_create(const char *dir, int rank, int ranks,
                                       struct plait_profile *profile,
                                       struct plait_error *err)
{
    struct plait_trace *trace = calloc(1, sizeof(*trace));

    if (!trace) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    trace->rank = rank;
    trace->profile = profile;
    trace->zero = plait_clock_now();
    if (dir && open_file(trace, dir, ranks, err) < 0) {
        free(trace->path);
        free(trace);
        return NULL;
    }
    return trace;
}

int plait_trace_close(struct plait_trace *trace, struct plait_error *err)
{
    int saved = errno, rc = 0;

    if (!trace)
        return 0;
    if (trace->out) {
        write_event(trace, "]\n");
        if (fclose(trace->out) != 0 && !trace->failure)
            trace->failure = errno;
    }
    if (trace->failure)
        rc = plait_errorf(err, "log.profile: %s: %s", trace->path,
                          strerror(trace->failure));
    free(trace->path);
    free(trace);
    errno = saved;
    return rc;
}

/* The track's thread number, from 1. */
static int track_of(struct plait_trace *trace, const char *track)
{
    int i;

    for (i = 0; i < trace->ntracks; i++)
        if (!strcmp(trace->track[i], track))
            return i + 1;
    if (i == TRACKS_MOST)
        return TRACKS_MOST;
    snprintf(trace->track[i], sizeof(trace->track[i]), "%s", track);
    trace->ntracks++;
    write_event(
        trace,
        ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
        "\"args\":{\"name\":\"%s\"}}",
        process_of(trace), i + 1, track);
    return i + 1;
}

static double to_microseconds(const struct plait_trace *trace, double t)
{
    return (t - trace->zero) * 1e6;
}

void plait_trace_span(struct plait_trace *trace, const char *track,
                      const char *name, double start, double end)
{
    if (!trace)
        return;
    plait_profile_span(trace->profile, track, name, start, end - start);
    if (!trace->out)
        return;
    write_event(trace,
                ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\","
                "\"ts\":%.1f,\"dur\":%.1f}",
                process_of(trace), track_of(trace, track), name,
                to_microseconds(trace, start), (end - start) * 1e6);
}

static void put_async(struct plait_trace *trace, char phase, int tid,
                      const char *track, const char *name, double t)
{
    write_event(trace,
                ",\n{\"ph\":\"%c\",\"cat\":\"%s\",\"id\":%" PRIu64
                ",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%.1f}",
                phase, track, trace->asyncs, process_of(trace), tid, name,
                to_microseconds(trace, t));
}

void plait_trace_async(struct plait_trace *trace, const char *track,
                       const char *name, double start, double end)
{
    int tid;

    if (!trace)
        return;
    plait_profile_beside(trace->profile, track, name, end - start);
    if (!trace->out)
        return;
    tid = track_of(trace, track);
    trace->asyncs++;
    put_async(trace, 'b', tid, track, name, start);
    put_async(trace, 'e', tid, track, name, end);
}
