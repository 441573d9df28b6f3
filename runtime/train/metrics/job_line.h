/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_JOB_LINE_H
#define PLAIT_RUNTIME_TRAIN_METRICS_JOB_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One line that sums up a run. At the run's end it goes into the comment of its
 * Slurm job, which scontrol and squeue print, and sacct where the site stores
 * comments. */
struct plait_job_line {
    int64_t step, steps; /* done, and to do */
    bool images;         /* count images, not tokens */
    int restarts;
    /* NAN: not known */
    double loss;
    double per_s, mfu;
    double per_joule;
    double step_s, planned_s;
    double lost_s;
};

/* Slurm takes 1,023 characters. */
enum { PLAIT_JOB_COMMENT_SIZE = 1024 };

void plait_job_line_format(const struct plait_job_line *line, char *text,
                           size_t size);

/* The comment `old` (as the user gave it, "": none) followed by `line`, which
 * replaces the line of an earlier run in the same job. -1: it is too long. */
int plait_job_line_join(const char *old, const char *line,
                        char comment[PLAIT_JOB_COMMENT_SIZE]);

/* Write it into the comment of this process's job, if it has one. Errors are
 * ignored: a job must not fail because of its comment. */
void plait_job_line_write(const struct plait_job_line *line);

#endif
