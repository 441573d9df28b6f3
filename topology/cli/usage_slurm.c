/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/cli/usage.h"
#include "topology/start/scontrol.h"

/* What plait usage asks of Slurm's commands. */

/* JOBS: so many a call of sacct, whose arguments have a limit. */
enum { SECONDS_MOST = 120, JOBS = 500, NUMBER = 12 };

char *usage_config(struct plait_error *err)
{
    static char scontrol[] = "scontrol", show[] = "show", config[] = "config";
    char *const argv[] = {scontrol, show, config, NULL};
    char why[256], *text = doctor_run(argv, SECONDS_MOST, why, sizeof(why));

    if (!text)
        plait_errorf(err, "scontrol show config: %s", why);
    return text;
}

void usage_setting(const char *config, const char *name, char *value,
                   size_t size)
{
    int n = 0;
    const char *at = plait_scontrol_value(config, name, &n);

    if (!at || (size_t)n >= size || strncmp(at, "(null)", 6) == 0)
        n = 0;
    snprintf(value, size, "%.*s", n, at ? at : "");
}

/* The fields of a line of `sacct -P`. */
enum { JOB, UID, USER, ACCOUNT, ELAPSED, START, FIELDS };

static bool split(char *line, char *fields[FIELDS])
{
    int n = 0;

    for (char *at = line; at && n < FIELDS; n++) {
        fields[n] = at;
        at = strchr(at, '|');
        if (at)
            *at++ = '\0';
    }
    return n == FIELDS;
}

static char *keep(const char *text)
{
    char *copy = *text ? strdup(text) : NULL;

    if (copy)
        plait_text_clean(copy);
    return copy;
}

/* The first step of the job in the sorted list. */
static size_t find_job(const struct usage *usage, unsigned job)
{
    size_t low = 0, high = usage->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (usage->steps[middle].job < job)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A job's own line: its steps' lines name neither user nor account. Whoever
 * else's number the log has for a step, it was not this job's. */
static void take_job(struct usage *usage, unsigned job, char *const fields[])
{
    unsigned uid = (unsigned)strtoul(fields[UID], NULL, 10);

    for (size_t i = find_job(usage, job);
         i < usage->n && usage->steps[i].job == job; i++) {
        struct usage_step *step = &usage->steps[i];

        if (step->uid != uid || step->known)
            continue;
        step->known = 1;
        step->user = keep(fields[USER]);
        step->account = keep(fields[ACCOUNT]);
    }
}

/* A step's line is for the run of it that began nearest. */
static void take_step(struct usage *usage, unsigned job, unsigned number,
                      char *const fields[])
{
    struct usage_step *best = NULL;
    int64_t start, apart = 0;

    if (usage_parse_since(fields[START], 0, &start, NULL) < 0)
        return; /* "Unknown": it has not begun */
    for (size_t i = find_job(usage, job);
         i < usage->n && usage->steps[i].job == job; i++) {
        struct usage_step *step = &usage->steps[i];
        int64_t d = step->time == USAGE_UNDATED ? 0 : step->time - start;

        d = d < 0 ? -d : d;
        if (step->step != number || (best && d >= apart) ||
            (step->elapsed != USAGE_UNKNOWN && d >= step->apart))
            continue;
        best = step;
        apart = d;
    }
    if (!best || !best->known)
        return;
    best->elapsed = strtoll(fields[ELAPSED], NULL, 10);
    best->apart = apart;
}

int usage_read_sacct(struct usage *usage, char *text)
{
    char *save = NULL;
    int known = 0;

    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char *fields[FIELDS], *end;
        unsigned job, step;

        if (!split(line, fields))
            continue;
        job = (unsigned)strtoul(fields[JOB], &end, 10);
        if (end == fields[JOB])
            continue;
        known++;
        if (*end == '\0')
            take_job(usage, job, fields);
        else if (sscanf(end, ".%10u", &step) == 1)
            take_step(usage, job, step, fields);
    }
    return known;
}

/* "1234,1235": the next JOBS jobs from step `i` on. Returns the step after. */
static size_t list_jobs(const struct usage *usage, size_t i, char *list,
                        size_t size)
{
    struct plait_text text = {list, size, 0};
    int n = 0;

    *list = '\0';
    for (; i < usage->n; i++) {
        if (n > 0 && usage->steps[i].job == usage->steps[i - 1].job)
            continue;
        if (n == JOBS)
            break;
        plait_text_add(&text, "%s%u", n ? "," : "", usage->steps[i].job);
        n++;
    }
    return i;
}

int usage_ask_sacct(struct usage *usage, struct plait_error *err)
{
    static char sacct[] = "sacct", flags[] = "-nPD", jobs[] = "-j",
                format[] = "--format=JobIDRaw,UID,User,Account,ElapsedRaw,"
                           "Start";
    char list[JOBS * NUMBER], why[256];
    char *const argv[] = {sacct, flags, format, jobs, list, NULL};
    size_t i = 0;

    /* Another form of times could not be read. */
    unsetenv("SLURM_TIME_FORMAT");
    while (i < usage->n) {
        char *text;

        i = list_jobs(usage, i, list, sizeof(list));
        text = doctor_run(argv, SECONDS_MOST, why, sizeof(why));
        if (!text)
            return plait_errorf(err, "sacct: %s", why);
        usage_read_sacct(usage, text);
        free(text);
    }
    return 0;
}
