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
    FILE *out;
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

struct plait_trace *plait_trace_create(const char *dir, int rank,
                                       struct plait_error *err)
{
    struct plait_trace *trace = calloc(1, sizeof(*trace));
    char path[4096];

    if (!trace) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    snprintf(path, sizeof(path), "%s/rank-%05d.json", dir, rank);
    if (mkdir(dir, 0777) == 0 || errno == EEXIST)
        trace->out = fopen(path, "we");
    if (!trace->out) {
        plait_errorf(err, "log.profile: %s: %s", path, strerror(errno));
        free(trace);
        return NULL;
    }
    trace->rank = rank;
    trace->zero = plait_trace_now();
    fprintf(trace->out,
            "[{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
            "\"args\":{\"name\":\"rank %d\"}}",
            rank, rank);
    return trace;
}

void plait_trace_destroy(struct plait_trace *trace)
{
    int saved = errno;

    if (!trace)
        return;
    fputs("]\n", trace->out);
    fclose(trace->out);
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
    fprintf(trace->out,
            ",\n{\"ph\":\"b\",\"cat\":\"%s\",\"id\":%" PRIu64
            ",\"pid\":%d,\"name\":\"%s\",\"ts\":%.1f}",
            track, ++trace->asyncs, trace->rank, name, micros(trace, start));
    fprintf(trace->out,
            ",\n{\"ph\":\"e\",\"cat\":\"%s\",\"id\":%" PRIu64
            ",\"pid\":%d,\"name\":\"%s\",\"ts\":%.1f}",
            track, trace->asyncs, trace->rank, name, micros(trace, end));
}
