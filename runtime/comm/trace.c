/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_TRACKS 32

struct plait_trace {
    FILE *out; /* NULL: the profile alone */
    struct plait_profile *profile;
    int rank;
    double zero; /* the file's times count from here */
    int ntracks;
    char track[MAX_TRACKS][32];
    uint64_t asyncs;
};

double plait_trace_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static int open_file(struct plait_trace *trace, const char *dir,
                     struct plait_error *err)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/rank-%05d.json", dir, trace->rank);
    if (mkdir(dir, 0777) == 0 || errno == EEXIST)
        trace->out = fopen(path, "we");
    if (!trace->out)
        return plait_errorf(err, "log.profile: %s: %s", path, strerror(errno));
    fprintf(trace->out,
            "[{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
            "\"args\":{\"name\":\"rank %d\"}}",
            trace->rank, trace->rank);
    return 0;
}

struct plait_trace *plait_trace_create(const char *dir, int rank,
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
    trace->zero = plait_trace_now();
    if (dir && open_file(trace, dir, err) < 0) {
        free(trace);
        return NULL;
    }
    return trace;
}

void plait_trace_destroy(struct plait_trace *trace)
{
    int saved = errno;

    if (!trace)
        return;
    if (trace->out) {
        fputs("]\n", trace->out);
        fclose(trace->out);
    }
    free(trace);
    errno = saved;
}

/* Its number. */
static int track_of(struct plait_trace *trace, const char *track)
{
    int i;

    for (i = 0; i < trace->ntracks; i++)
        if (!strcmp(trace->track[i], track))
            return i;
    if (i == MAX_TRACKS)
        return MAX_TRACKS - 1;
    snprintf(trace->track[i], sizeof(trace->track[i]), "%s", track);
    trace->ntracks++;
    fprintf(trace->out,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
            "\"args\":{\"name\":\"%s\"}}",
            trace->rank, i, track);
    return i;
}

static double micros(const struct plait_trace *trace, double t)
{
    return (t - trace->zero) * 1e6;
}

void plait_trace_span(struct plait_trace *trace, const char *track,
                      const char *name, double start)
{
    double end = plait_trace_now();

    if (!trace)
        return;
    plait_profile_span(trace->profile, track, name, start, end - start);
    if (!trace->out)
        return;
    fprintf(trace->out,
            ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\","
            "\"ts\":%.1f,\"dur\":%.1f}",
            trace->rank, track_of(trace, track), name, micros(trace, start),
            (end - start) * 1e6);
}

void plait_trace_async(struct plait_trace *trace, const char *track,
                       const char *name, double start, double end)
{
    if (!trace)
        return;
    plait_profile_beside(trace->profile, track, name, end - start);
    if (!trace->out)
        return;
    fprintf(trace->out,
            ",\n{\"ph\":\"b\",\"cat\":\"%s\",\"id\":%" PRIu64
            ",\"pid\":%d,\"name\":\"%s\",\"ts\":%.1f}",
            track, ++trace->asyncs, trace->rank, name, micros(trace, start));
    fprintf(trace->out,
            ",\n{\"ph\":\"e\",\"cat\":\"%s\",\"id\":%" PRIu64
            ",\"pid\":%d,\"name\":\"%s\",\"ts\":%.1f}",
            track, trace->asyncs, trace->rank, name, micros(trace, end));
}
