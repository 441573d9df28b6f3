/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_RUNS_H
#define PLAIT_RUNTIME_STUCK_RUNS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/stuck/judge.h"

/* Runs of plait-train whose records can be read. */
struct plait_stuck_run {
    uint64_t id;
    unsigned owner; /* user: what others say belongs to another run */
    char job[64];   /* "": none */
    int world;
    bool moved; /* some rank made progress between the two looks */
    int n;
    struct plait_stuck_rank *rank; /* [n] ascending by rank */
};

struct plait_stuck_runs {
    int n;
    struct plait_stuck_run *run;
};

/* Selects processes: those of a Slurm job, those whose working directory is
 * `dir`, process `pid` with its descendants, or if none is set, all that this
 * user may read. */
struct plait_stuck_which {
    const char *job, *dir;
    int pid;
    bool owned; /* only those of user `owner`: anybody can name any job */
    unsigned owner;
};

/* The user of a process; -1: there is no such process. */
unsigned plait_stuck_owner(int pid);

/* Whether a process is selected; its environment as NUL-terminated entries,
 * which the caller frees (NULL: unreadable); its parent, 0: none. */
bool plait_stuck_is_wanted(int pid, const struct plait_stuck_which *which);
char *plait_stuck_environment(int pid, size_t *size);
int plait_stuck_parent(int pid);

/* Finds the runs on this machine and looks at them twice, `seconds` apart. -1
 * with errno: out of memory. */
int plait_stuck_runs_find(const struct plait_stuck_which *which, int seconds,
                          struct plait_stuck_runs *runs);
/* Print the ranks as lines of text; read such lines and add their ranks. Other
 * lines are ignored. */
void plait_stuck_runs_dump(const struct plait_stuck_runs *runs);
int plait_stuck_runs_read(const char *text, struct plait_stuck_runs *runs);
void plait_stuck_runs_clear(struct plait_stuck_runs *runs);

#endif
