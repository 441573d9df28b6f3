/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/view/timeline.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Limits, because traces may have gigabytes: the first steps, of a few
 * ranks. */
enum { STEPS_MOST = 200, RANKS_MOST = 16, SPANS_MOST = 1500, TRACKS_MOST = 64 };
/* More than a step has; a trace without steps must not fill the memory. */
enum { READ_MOST = 1 << 20 };

struct span {
    int track;
    char name[24];
    double begin, length;
};

struct trace {
    FILE *in;
    char *line;
    size_t room;
    char tracks[TRACKS_MOST][24]; /* by tid */
};

static int open_trace(struct trace *t, const char *dir, int rank)
{
    char path[PATH_MAX];
    struct stat st;

    memset(t, 0, sizeof(*t));
    snprintf(path, sizeof(path), "%s/rank-%05d.json", dir, rank);
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
        t->in = fopen(path, "re");
    return t->in ? 0 : -1;
}

static void close_trace(struct trace *t)
{
    if (t->in)
        fclose(t->in);
    free(t->line);
}

/* Parse a line of the file. 1: it is a span; 0: it is something else. */
static int take_line(struct trace *t, json_t *event, struct span *span)
{
    const char *ph = json_string_value(json_object_get(event, "ph"));
    const char *name = json_string_value(json_object_get(event, "name"));
    json_int_t tid = json_integer_value(json_object_get(event, "tid"));
    const char *track;

    if (!ph || !name || tid < 0 || tid >= TRACKS_MOST)
        return 0;
    if (*ph == 'M') {
        track = json_string_value(
            json_object_get(json_object_get(event, "args"), "name"));
        snprintf(t->tracks[tid], sizeof(t->tracks[0]), "%s",
                 track ? track : "");
        return 0;
    }
    if (*ph != 'X')
        return 0;
    span->track = (int)tid;
    snprintf(span->name, sizeof(span->name), "%.*s",
             (int)strcspn(name, " 0123456789"), name);
    span->begin = json_number_value(json_object_get(event, "ts"));
    span->length = json_number_value(json_object_get(event, "dur"));
    return 1;
}

/* The next span; 0 at the end of the file. */
static int next_span(struct trace *t, struct span *span)
{
    while (getline(&t->line, &t->room, t->in) > 0) {
        const char *text = t->line + (*t->line == '[');
        json_t *event = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
        int found = take_line(t, event, span);

        json_decref(event);
        if (found)
            return 1;
    }
    return 0;
}

static bool is_step(const struct trace *t, const struct span *s)
{
    return !strcmp(t->tracks[s->track], "run") && !strcmp(s->name, "step");
}

static int by_length(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The step that has the median length on rank 0; the first step, which warms
 * up, only if there is no other. -1: none. */
static int choose_step(const char *dir)
{
    double length[STEPS_MOST], sorted[STEPS_MOST];
    int n = 0, first;
    struct trace t;
    struct span s;

    if (open_trace(&t, dir, 0) < 0)
        return -1;
    while (n < STEPS_MOST && next_span(&t, &s))
        if (is_step(&t, &s))
            length[n++] = s.length;
    close_trace(&t);
    first = n > 1;
    memcpy(sorted, length, sizeof(sorted));
    qsort(sorted + first, n - first, sizeof(*sorted), by_length);
    for (int i = first; i < n; i++)
        if (length[i] == sorted[first + (n - first) / 2])
            return i;
    return -1;
}

/* The index of `text` in a list, to which it is added if it is missing. */
static int place_of(json_t *list, const char *text)
{
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        if (!strcmp(json_string_value(entry), text))
            return (int)i;
    }
    json_array_append_new(list, json_string(text));
    return (int)i;
}

static json_t *pack_spans(const struct trace *t, const struct span *spans,
                          int n, const struct span *step, json_t *tracks,
                          json_t *names)
{
    json_t *list = json_array();
    double shortest = n > SPANS_MOST ? step->length / SPANS_MOST : 0;

    for (int i = 0; i < n; i++) {
        if (spans[i].begin < step->begin || spans[i].length < shortest)
            continue;
        json_array_append_new(
            list, json_integer(place_of(tracks, t->tracks[spans[i].track])));
        json_array_append_new(list,
                              json_integer(place_of(names, spans[i].name)));
        json_array_append_new(
            list, json_integer((json_int_t)(spans[i].begin - step->begin)));
        json_array_append_new(list,
                              json_integer((json_int_t)(spans[i].length + 1)));
    }
    return list;
}

/* The spans of step number `wanted` on a rank; its length in *seconds. */
static json_t *read_rank(const char *dir, int rank, int wanted, double *seconds,
                         json_t *tracks, json_t *names)
{
    struct span *spans = NULL, s, *more;
    int n = 0, room = 0, steps = 0;
    json_t *list = NULL;
    struct trace t;

    if (open_trace(&t, dir, rank) < 0)
        return NULL;
    while (!list && n < READ_MOST && next_span(&t, &s)) {
        if (is_step(&t, &s)) {
            if (steps++ == wanted) {
                list = pack_spans(&t, spans, n, &s, tracks, names);
                *seconds = s.length * 1e-6;
            }
            n = 0;
            continue;
        }
        if (n == room) {
            room = room ? 2 * room : 256;
            more = realloc(spans, room * sizeof(*spans));
            if (!more)
                break;
            spans = more;
        }
        spans[n++] = s;
    }
    free(spans);
    close_trace(&t);
    return list;
}

static int count_ranks(const char *dir)
{
    struct trace t;
    int n = 0;

    while (open_trace(&t, dir, n) == 0) {
        close_trace(&t);
        n++;
    }
    return n;
}

json_t *plait_timeline(const char *dir)
{
    int step = choose_step(dir), nranks = count_ranks(dir), shown;
    json_t *tracks = json_array(), *names = json_array(), *ranks = json_array();
    double seconds = 0, longest = 0;

    shown = nranks < RANKS_MOST ? nranks : RANKS_MOST;
    for (int i = 0; step >= 0 && i < shown; i++) {
        int rank = (int)((long long)i * nranks / shown);
        json_t *spans = read_rank(dir, rank, step, &seconds, tracks, names);

        if (!spans)
            continue;
        longest = seconds > longest ? seconds : longest;
        json_array_append_new(
            ranks, json_pack("{s:i, s:o}", "rank", rank, "spans", spans));
    }
    if (json_array_size(ranks) > 0)
        return json_pack("{s:i, s:i, s:f, s:o, s:o, s:o}", "step", step + 1,
                         "of", nranks, "seconds", longest, "tracks", tracks,
                         "names", names, "ranks", ranks);
    json_decref(tracks);
    json_decref(names);
    json_decref(ranks);
    return NULL;
}
