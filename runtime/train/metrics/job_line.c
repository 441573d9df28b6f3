/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* asprintf */
#include "config.h"

#include "runtime/train/metrics/job_line.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/capture.h"
#include "topology/base/text.h"

#define MARK "plait-train: "
#define BETWEEN " | "
#define RECORD '\036' /* before what squeue says of a job */

enum { SECONDS = 10 }; /* that slurmctld may take */

void plait_job_line_format(const struct plait_job_line *line, char *text,
                           size_t size)
{
    const char *what = line->images ? "images" : "tokens";
    struct plait_text out = {text, size, 0};

    plait_text_add(&out, MARK "step %" PRId64 " of %" PRId64, line->step,
                   line->steps);
    if (isfinite(line->loss))
        plait_text_add(&out, ", loss %.4g", line->loss);
    if (isfinite(line->per_s))
        plait_text_add(&out, ", %.4g %s/s", line->per_s, what);
    if (isfinite(line->mfu))
        plait_text_add(&out, ", MFU %.1f %%", 100 * line->mfu);
    if (isfinite(line->per_joule))
        plait_text_add(&out, ", %.3g %s/J", line->per_joule, what);
    if (isfinite(line->step_s))
        plait_text_add(&out, ", %.3g s a step", line->step_s);
    if (isfinite(line->planned_s) && isfinite(line->step_s))
        plait_text_add(&out, " (plan %.3g)", line->planned_s);
    plait_text_add(&out, ", %d restart%s", line->restarts,
                   line->restarts == 1 ? "" : "s");
    if (isfinite(line->lost_s))
        plait_text_add(&out, ", %.0f s lost", fmax(line->lost_s, 0));
}

/* The length of what the user wrote: the comment without an earlier run's
 * line. */
static size_t own_length(const char *old)
{
    const char *mark = strstr(old, MARK);
    size_t n = mark ? (size_t)(mark - old) : strlen(old);

    if (mark && n >= strlen(BETWEEN) &&
        !strncmp(mark - strlen(BETWEEN), BETWEEN, strlen(BETWEEN)))
        n -= strlen(BETWEEN);
    while (n && isspace((unsigned char)old[n - 1]))
        n--;
    return n;
}

int plait_job_line_join(const char *old, const char *line,
                        char comment[PLAIT_JOB_COMMENT_SIZE])
{
    size_t own = own_length(old);
    int n;

    if (own >= PLAIT_JOB_COMMENT_SIZE)
        return -1;
    n = snprintf(comment, PLAIT_JOB_COMMENT_SIZE, "%.*s%s%s", (int)own, old,
                 own ? BETWEEN : "", line);
    return n < PLAIT_JOB_COMMENT_SIZE ? 0 : -1;
}

static int run(char *const argv[], char **text)
{
    size_t size;
    int status = -1;

    *text = plait_capture(argv, 0, SECONDS, &size, &status);
    return *text && status == 0 ? 0 : -1;
}

/* The job's comment in what squeue says of one or more jobs: the number of a
 * job array or of a heterogeneous job means all of it. *name is what means this
 * job alone, as 12_3 or 12+0. NULL: the job is not among them. */
static char *find_comment(char *said, const char *job, char **name)
{
    char *at = strchr(said, RECORD), *next, *number, *comment;

    for (; at; at = next) {
        next = strchr(at + 1, RECORD);
        if (next)
            *next = '\0';
        comment = at + 1;
        number = strsep(&comment, " ");
        *name = strsep(&comment, " ");
        if (comment && strcmp(number, job) == 0)
            return strcmp(comment, "(null)\n") == 0 ? strchr(comment, '\0')
                                                    : comment;
    }
    return NULL;
}

void plait_job_line_write(const struct plait_job_line *line)
{
    char comment[PLAIT_JOB_COMMENT_SIZE], text[PLAIT_JOB_COMMENT_SIZE];
    char *job = getenv("SLURM_JOB_ID"), *jobs = NULL, *set = NULL,
         *update = NULL, *said = NULL, *old, *name;
    char format[] = {RECORD, '%', 'A', ' ', '%', 'i', ' ', '%', 'k', '\0'};

    if (!job || !*job)
        return;
    if (run((char *[]){"squeue", "-h", "-j", job, "-o", format, NULL}, &jobs) <
        0)
        goto error;
    old = find_comment(jobs, job, &name);
    if (!old)
        goto error;
    plait_job_line_format(line, text, sizeof(text));
    if (plait_job_line_join(old, text, comment) < 0)
        goto error;
    if (asprintf(&set, "Comment=%s", comment) < 0)
        set = NULL;
    if (asprintf(&update, "JobId=%s", name) < 0)
        update = NULL;
    if (set && update)
        run((char *[]){"scontrol", "update", update, set, NULL}, &said);
error:
    free(jobs);
    free(said);
    free(set);
    free(update);
}
