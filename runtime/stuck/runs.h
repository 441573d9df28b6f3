/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_RUNS_H
#define PLAIT_RUNTIME_STUCK_RUNS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/stuck/judge.h"

/* Runs of plait-train whose records can be read. */
struct plait_stuck_run {
    uint64_t id;
    char job[64]; /* "": none */
    int world;
    bool moved; /* something was done between two looks */
    int n;
    struct plait_stuck_rank *rank; /* [n] ascending by rank */
};

struct plait_stuck_runs {
    int n;
    struct plait_stuck_run *run;
};

/* Which processes: all of this user's, those of a job of Slurm's, those whose
 * working directory is `dir`, or process `pid` with all that descend from it.
 */
struct plait_stuck_which {
    const char *job, *dir;
    int pid;
};

/* Whether a process is one of them; the variables of its environment, each with
 * its NUL, that the caller frees (NULL: none, or not to be read); its parent,
 * 0: none. */
bool plait_stuck_is_wanted(int pid, const struct plait_stuck_which *which);
char *plait_stuck_environment(int pid, size_t *size);
int plait_stuck_parent(int pid);

/* Those of this machine, looked at twice, `seconds` apart. -1 with errno: out
 * of memory. */
int plait_stuck_runs_find(const struct plait_stuck_which *which, int seconds,
                          struct plait_stuck_runs *runs);
/* Their ranks as lines of text, and from such lines, added to those that are
 * there; lines of another form are passed over. */
void plait_stuck_runs_dump(const struct plait_stuck_runs *runs);
int plait_stuck_runs_read(const char *text, struct plait_stuck_runs *runs);
void plait_stuck_runs_clear(struct plait_stuck_runs *runs);

#endif
