/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/stuck/ask_nodes.h"
#include "topology/base/capture.h"
#include "topology/base/hostlist.h"
#include "topology/base/text.h"

#define LINE "plait-stuck-node "

/* Time limits: for squeue; for the step, besides its two looks; for the other
 * nodes after the first has finished. */
enum { SLURM_S = 20, STEP_S = 120, LATE_S = 30 };

void plait_stuck_say_node(void)
{
    const char *name = getenv("SLURMD_NODENAME");

    if (name)
        printf(LINE "%s\n", name);
}

static bool has_line(const char *text, const char *name)
{
    size_t n = strlen(name);

    while ((text = strstr(text, LINE))) {
        text += sizeof(LINE) - 1;
        if (strncmp(text, name, n) == 0 && text[n] == '\n')
            return true;
    }
    return false;
}

int plait_stuck_list_silent(char *const *names, int n, const char *text,
                            char *silent, size_t size)
{
    const char *first = NULL;
    int missing = 0;

    for (int i = 0; i < n; i++)
        if (!has_line(text, names[i])) {
            first = first ? first : names[i];
            missing++;
        }
    snprintf(silent, size, "%s", first ? first : "");
    if (missing > 1)
        snprintf(silent, size, "%s and %d other%s", first, missing - 1,
                 missing > 2 ? "s" : "");
    plait_text_clean(silent);
    return missing;
}

/* The nodes of a running job; NULL: no such job, or no Slurm. */
static char **list_nodes(const char *job, int *n)
{
    char *argv[] = {(char *)"squeue", (char *)"-h", (char *)"-j", (char *)job,
                    (char *)"-tR",    (char *)"-o", (char *)"%N", NULL};
    struct plait_error err;
    size_t size = 0;
    int status = 0;
    char *text = plait_capture(argv, 0, SLURM_S, &size, &status);
    char **names = NULL;

    if (text)
        text[strcspn(text, "\n")] = '\0';
    if (text && status == 0 && *text)
        names = plait_hostlist_create(text, n, &err);
    free(text);
    return names;
}

/* If this runs inside a job, srun would take the job's variables as its
 * options, for example its number of tasks, and the plugin would take its
 * flags, which are not meant for this step. */
static void forget_job(void)
{
    static const char *const begin[] = {"SLURM_", "SLURMD_", "_SLURM_", "PMI",
                                        "SRUN_"};
    char name[256];

    for (char **e = environ; e && *e;) {
        size_t n = strcspn(*e, "=");
        int known = 0;

        for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++)
            known |= strncmp(*e, begin[i], strlen(begin[i])) == 0;
        if (!known || n >= sizeof(name) ||
            strncmp(*e, "SLURM_CONF=", 11) == 0) {
            e++;
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)n, *e);
        unsetenv(name);
    }
}

/* Returns the output of srun and of all nodes. */
static char *run_step(const char *job, int nodes, int seconds)
{
    char jobid[64], count[32], look[32], late[32], self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *argv[] = {(char *)"srun",
                    (char *)"--overlap",
                    (char *)"-Q",
                    (char *)"--ntasks-per-node=1",
                    (char *)"--mpi=none",
                    (char *)"--cpu-bind=none",
                    jobid,
                    count,
                    late,
                    self,
                    (char *)job,
                    (char *)"--dump",
                    look,
                    NULL};
    size_t size = 0;
    int status = 0;

    self[n > 0 ? n : 0] = '\0';
    snprintf(jobid, sizeof(jobid), "--jobid=%.40s", job);
    snprintf(count, sizeof(count), "--nodes=%d", nodes);
    snprintf(late, sizeof(late), "--wait=%d", LATE_S);
    snprintf(look, sizeof(look), "--wait=%d", seconds);
    forget_job();
    return plait_capture(argv, 1, STEP_S + seconds, &size, &status);
}

/* No node answered: the last line of srun's output has the reason. */
static const char *find_reason(char *text)
{
    char *end = text + strlen(text), *line;

    while (end > text && end[-1] == '\n')
        *--end = '\0';
    line = strrchr(text, '\n');
    return *text ? line ? line + 1 : text : "srun gave no reason";
}

int plait_stuck_ask_nodes(const char *job, int seconds,
                          struct plait_stuck_runs *runs,
                          struct plait_stacks *stacks, char *silent,
                          size_t size, struct plait_error *err)
{
    int n = 0, rc = 1;
    char **names = list_nodes(job, &n), *text;

    *silent = '\0';
    if (!names)
        return 0;
    text = run_step(job, n, seconds);
    if (!text)
        rc = plait_errorf(err, "job %.40s: cannot ask its nodes: srun: %s", job,
                          strerror(errno));
    else if (plait_stuck_list_silent(names, n, text, silent, size) == n)
        rc = plait_errorf(err, "job %.40s: cannot ask its nodes: %.300s", job,
                          find_reason(text));
    else if (plait_stuck_runs_read(text, runs) < 0 ||
             plait_stacks_read(text, stacks) < 0)
        rc = plait_errorf(err, "out of memory");
    free(text);
    plait_hostlist_destroy(names, n);
    return rc;
}
