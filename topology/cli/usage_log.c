/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* timegm */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "topology/cli/usage.h"

/* slurmd's log: "[2026-11-29T08:01:43.751] [1234.0] plait: step 1234.0 of uid
 * 1001: --tp=8 --dp=4, 32 tasks on 4 nodes", also with what syslog, journalctl
 * or a parallel shell puts in front. */

/* Seconds by which the clocks of a step's nodes may differ. A job that was put
 * back into the queue has a step of the same name later than that. */
enum { SAME_STEP_S = 60 };

/* The seconds of "+02:00", "-0500" or "Z" before UTC; 0: there is none. */
static bool read_zone(const char *text, int64_t *seconds)
{
    int hours, minutes;

    text += strspn(text, ".,0123456789"); /* parts of a second */
    *seconds = 0;
    if (*text == 'Z')
        return true;
    if ((*text != '+' && *text != '-') ||
        (sscanf(text + 1, "%2d:%2d", &hours, &minutes) != 2 &&
         sscanf(text + 1, "%2d%2d", &hours, &minutes) != 2))
        return false;
    *seconds = (hours * 60 + minutes) * 60 * (*text == '-' ? -1 : 1);
    return true;
}

/* "2026-11-29T08:01:43" and what may follow; USAGE_UNDATED: it is none. */
static int64_t read_time(const char *text)
{
    struct tm tm = {.tm_isdst = -1};
    int64_t zone;
    int n = 0;

    if (!isdigit((unsigned char)*text) ||
        sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon,
               &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 6)
        return USAGE_UNDATED;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    if (read_zone(text + n, &zone))
        return (int64_t)timegm(&tm) - zone;
    return (int64_t)mktime(&tm);
}

/* The first time in the `n` bytes before the message. */
static int64_t find_time(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t time;

        if (i > 0 && isalnum((unsigned char)line[i - 1]))
            continue;
        time = read_time(line + i);
        if (time != USAGE_UNDATED)
            return time;
    }
    return USAGE_UNDATED;
}

/* "--tp=8 --dp=4": the axes that are not named are 1. Returns what follows, or
 * NULL. */
static const char *read_sizes(const char *text, int size[PLAIT_NAXES])
{
    for (int a = 0; a < PLAIT_NAXES; a++)
        size[a] = 1;
    while (strncmp(text, "--", 2) == 0) {
        int found = 0;

        for (int a = 0; a < PLAIT_NAXES && !found; a++) {
            size_t n = strlen(plait_axis_names[a]);
            char *end;

            found = strncmp(text + 2, plait_axis_names[a], n) == 0 &&
                    text[n + 2] == '=' && isdigit((unsigned char)text[n + 3]);
            if (!found)
                continue;
            size[a] = (int)strtol(text + n + 3, &end, 10);
            text = end + (*end == ' ');
        }
        if (!found)
            return NULL;
    }
    return text;
}

/* What stands between the start of a line and slurmd's message is slurmd's or
 * syslog's: a message of which the text is a part ends otherwise. */
static const char *find_message(const char *line)
{
    static const char mark[] = "plait: step ";
    const char *at = strstr(line, mark);

    if (!at || at == line)
        return at;
    if ((at - line >= 2 && strncmp(at - 2, "] ", 2) == 0) ||
        (at - line >= 3 && strncmp(at - 3, "]: ", 3) == 0))
        return at;
    return NULL;
}

/* Whether the line is that of a planned step. */
static bool read_step(const char *line, struct usage_step *step)
{
    const char *at = find_message(line);
    int n = 0;

    if (!at)
        return false;
    memset(step, 0, sizeof(*step));
    step->elapsed = USAGE_UNKNOWN;
    if (sscanf(at, "plait: step %10u.%10u of uid %10u: %n", &step->job,
               &step->step, &step->uid, &n) != 3 ||
        n == 0)
        return false;
    step->time = find_time(line, (size_t)(at - line));
    at = read_sizes(at + n, step->size);
    n = 0;
    if (!at || sscanf(at, ", %9d tasks on %9d nodes%n", &step->tasks,
                      &step->nodes, &n) != 2)
        return false;
    at += n;
    step->preflight = strncmp(at, ", a preflight", 13) == 0;
    at += step->preflight ? 13 : 0;
    return n > 0 && step->tasks > 0 && step->nodes > 0 &&
           at[strspn(at, "\r\n")] == '\0';
}

int usage_add_line(struct usage *usage, const char *line)
{
    struct usage_step step;

    if (!read_step(line, &step))
        return 0;
    if (usage->since != USAGE_UNDATED && step.time == USAGE_UNDATED) {
        usage->undated++;
        return 0;
    }
    if (usage->since != USAGE_UNDATED && step.time < usage->since)
        return 0;
    if (usage->n == usage->room) {
        size_t room = usage->room ? 2 * usage->room : 256;
        struct usage_step *more =
            realloc(usage->steps, room * sizeof(*usage->steps));

        if (!more)
            return -1;
        usage->steps = more;
        usage->room = room;
    }
    usage->steps[usage->n++] = step;
    return 0;
}

int usage_add_file(struct usage *usage, FILE *file)
{
    size_t size = 0;
    char *line = NULL;
    int rc = 0;

    errno = 0;
    while (rc == 0 && getline(&line, &size, file) >= 0)
        rc = usage_add_line(usage, line);
    free(line);
    return rc < 0 || ferror(file) ? -1 : 0;
}

static int compare(const void *a, const void *b)
{
    const struct usage_step *x = a, *y = b;

    if (x->job != y->job)
        return x->job < y->job ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->time > y->time) - (x->time < y->time);
}

static bool is_same(const struct usage_step *a, const struct usage_step *b)
{
    if (a->job != b->job || a->step != b->step || a->uid != b->uid)
        return false;
    return a->time == USAGE_UNDATED || b->time - a->time <= SAME_STEP_S;
}

void usage_merge(struct usage *usage)
{
    size_t kept = 0;

    if (usage->n)
        qsort(usage->steps, usage->n, sizeof(*usage->steps), compare);
    for (size_t i = 0; i < usage->n; i++)
        if (kept == 0 || !is_same(&usage->steps[kept - 1], &usage->steps[i]))
            usage->steps[kept++] = usage->steps[i];
    usage->n = kept;
}

void usage_clear(struct usage *usage)
{
    for (size_t i = 0; i < usage->n; i++) {
        free(usage->steps[i].user);
        free(usage->steps[i].account);
    }
    free(usage->steps);
    usage->steps = NULL;
    usage->n = usage->room = 0;
}

int usage_parse_since(const char *text, int64_t now, int64_t *since,
                      struct plait_error *err)
{
    long days;
    char unit, end[128];
    int n = snprintf(end, sizeof(end), "%sT00:00:00", text);

    if (sscanf(text, "%6ld%c%n", &days, &unit, &n) == 2 && !text[n] &&
        days >= 0 && (unit == 'd' || unit == 'h')) {
        *since = now - days * (unit == 'd' ? 86400 : 3600);
        return 0;
    }
    *since = USAGE_UNDATED;
    if (strlen(text) == strlen("2026-11-01"))
        *since = read_time(end);
    else if (strlen(text) == strlen("2026-11-01T08:00:00"))
        *since = read_time(text);
    if (*since != USAGE_UNDATED)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "usage: --since=%.40s: must be a date, as 2026-11-01 "
                        "or 2026-11-01T08:00:00, or a time before now, as 7d "
                        "or 12h",
                        text);
}
