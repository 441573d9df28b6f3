/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the trainers of a job on this machine by their environment, and where
 * each one is: the kernel's function, or Python's line by py-spy. */
#define _GNU_SOURCE
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/stuck/look.h"
#include "runtime/stuck/stacks.h"
#include "topology/base/capture.h"
#include "topology/layout/launch.h"

enum { PYTHON_S = 10 };

/* -- which processes are ranks -------------------------------------------- */

struct environment {
    char *text;
    size_t size;
};

static const char *get_variable(void *arg, const char *name)
{
    const struct environment *e = arg;
    size_t n = strlen(name);

    for (size_t at = 0; at < e->size; at += strlen(e->text + at) + 1)
        if (!strncmp(e->text + at, name, n) && e->text[at + n] == '=')
            return e->text + at + n + 1;
    return NULL;
}

/* Whether the number is of a step of tasks. A job's batch script and the like
 * have a negative number, which Slurm 26 prints as a large unsigned one. */
static bool is_step(const char *id)
{
    return id && isdigit((unsigned char)*id) &&
           strtoull(id, NULL, 10) < 0xfffffff0;
}

/* Rank and world size from torchrun, mpirun, PMI or srun. A batch script has
 * SLURM_PROCID too but is not a task of a step. */
static bool read_rank(struct environment *e, struct plait_stack *k)
{
    static const char *const names[][3] = {
        {"RANK", "WORLD_SIZE", ""},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ""},
        {"PMI_RANK", "PMI_SIZE", ""},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *rank = get_variable(e, names[i][0]);
        const char *world = get_variable(e, names[i][1]);

        if (!rank || !world ||
            (names[i][2][0] && !is_step(get_variable(e, names[i][2]))))
            continue;
        k->rank = atoi(rank);
        k->world = atoi(world);
        return k->rank >= 0 && k->world > k->rank;
    }
    return false;
}

static bool read_plan(struct environment *e, struct plait_stack *k)
{
    const char *job = get_variable(e, "SLURM_JOB_ID");
    const char *step = get_variable(e, "SLURM_STEP_ID");
    struct plait_launch launch;
    struct plait_error err;

    k->gpu = -1;
    if (plait_launch_decode(&launch, get_variable, e, &err) == 1) {
        k->rank = launch.rank;
        k->world = launch.world_size;
        k->gpu = launch.gpu;
        memcpy(k->size, launch.layout.size, sizeof(k->size));
        memcpy(k->at, launch.coord.at, sizeof(k->at));
        snprintf(k->job, sizeof(k->job), "%s", launch.jobid);
        return true;
    }
    if (job && is_step(step))
        snprintf(k->job, sizeof(k->job), "%.40s.%.20s", job, step);
    return read_rank(e, k);
}

static void read_program(int pid, char *name, size_t size)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    plait_stuck_read_line(path, name, size);
    name[strcspn(name, "\n")] = '\0';
    plait_stuck_clean_word(name);
}

/* Programs between a launcher and a rank, and this program itself. */
static bool is_wrapper(const char *name)
{
    static const char *const names[] = {
        "sh",      "bash",         "dash",    "zsh",        "ksh",
        "csh",     "slurm_script", "tcsh",    "fish",       "env",
        "time",    "timeout",      "numactl", "taskset",    "nice",
        "ionice",  "stdbuf",       "srun",    "slurmstepd", "mpirun",
        "mpiexec", "plait",        "py-spy",  "plait-stuck"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* False: the process is not a rank. */
static bool describe(int pid, struct plait_stack *k)
{
    struct environment e = {0};
    bool is;

    memset(k, 0, sizeof(*k));
    k->pid = pid;
    k->owner = plait_stuck_owner(pid);
    read_program(pid, k->program, sizeof(k->program));
    if (!k->program[0] || is_wrapper(k->program))
        return false;
    gethostname(k->host, sizeof(k->host) - 1);
    e.text = plait_stuck_environment(pid, &e.size);
    is = e.text && read_plan(&e, k);
    plait_stuck_clean_word(k->job);
    free(e.text);
    return is;
}

/* A rank's children, such as the workers of a data loader, inherit its
 * variables. */
static bool has_parent(const struct plait_stacks *all,
                       const struct plait_stack *k)
{
    for (int up = plait_stuck_parent(k->pid); up > 1;
         up = plait_stuck_parent(up))
        for (int i = 0; i < all->n; i++)
            if (all->at[i].pid == up && all->at[i].rank == k->rank &&
                all->at[i].owner == k->owner)
                return true;
    return false;
}

/* List all processes with the variables of a rank; several may have the same
 * rank. */
static int list_processes(const struct plait_stuck_which *which,
                          struct plait_stacks *all)
{
    DIR *dir = opendir("/proc");
    struct plait_stack k, *more;
    struct dirent *e;
    int rc = 0;

    while (dir && rc == 0 && (e = readdir(dir))) {
        int pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;

        if (pid <= 0 || pid == getpid() || !plait_stuck_is_wanted(pid, which) ||
            !describe(pid, &k))
            continue;
        more = realloc(all->at, (size_t)(all->n + 1) * sizeof(*more));
        rc = more ? 0 : -1;
        all->at = more ? more : all->at;
        if (more)
            more[all->n++] = k;
    }
    if (dir)
        closedir(dir);
    return rc;
}

/* -- where they are -------------------------------------------------------- */

/* From the kernel function that it sleeps in; without one the process runs. */
static void look_at_kernel(const struct plait_stack *k, char *where,
                           size_t size, bool *waits)
{
    static const struct {
        const char *call, *words;
        bool waits;
    } calls[] = {{"poll", "waits for messages", true},
                 {"ep_", "waits for messages", true},
                 {"select", "waits for messages", true},
                 {"sk_wait", "waits for messages", true},
                 {"wait_woken", "waits for messages", true},
                 {"tcp_", "waits for messages", true},
                 {"unix_stream", "waits for messages", true},
                 {"futex", "waits for another thread", true},
                 {"pipe", "reads or writes a pipe", false},
                 {"nanosleep", "sleeps", false},
                 {"rpc_", "waits for a file server", false},
                 {"nfs", "waits for a file server", false},
                 {"fuse", "waits for a file server", false},
                 {"request_wait_answer", "waits for a file server", false},
                 {"wait4", "waits for a process", false},
                 {"do_wait", "waits for a process", false}};
    char path[64], call[64];

    snprintf(path, sizeof(path), "/proc/%d/wchan", k->pid);
    plait_stuck_read_line(path, call, sizeof(call));
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strstr(call, calls[i].call)) {
            snprintf(where, size, "%s", calls[i].words);
            *waits = calls[i].waits;
            return;
        }
    *waits = false;
    if (call[0] && strcmp(call, "0"))
        snprintf(where, size, "in %.60s of the kernel", call);
    else
        snprintf(where, size, "runs");
}

static int look_at_python(const struct plait_stack *k, char *where, size_t size,
                          bool *waits)
{
    char pid[16], *argv[] = {(char *)"py-spy",
                             (char *)"dump",
                             (char *)"--nonblocking",
                             (char *)"--full-filenames",
                             (char *)"--pid",
                             pid,
                             NULL};
    size_t n = 0;
    int status = 0, rc = -1;
    char *text = NULL;

    if (strncmp(k->program, "python", 6) && strncmp(k->program, "pt_", 3))
        return -1;
    snprintf(pid, sizeof(pid), "%d", k->pid);
    text = plait_capture(argv, 0, PYTHON_S, &n, &status);
    if (text && status == 0)
        rc = plait_stack_python(text, where, size, waits);
    free(text);
    return rc;
}

static void look(const struct plait_stack *k, char *where, size_t size,
                 bool *waits)
{
    char file[128], at[128];
    int python = look_at_python(k, at, sizeof(at), waits);

    plait_stuck_where(k->pid, k->pid, file, sizeof(file));
    if (python < 0 && file[0])
        *waits = false;
    else if (python < 0)
        look_at_kernel(k, at, sizeof(at), waits);
    if (python == 0 && file[0] && !*waits)
        snprintf(where, size, "%.100s, %.80s", at, file);
    else
        snprintf(where, size, "%.127s", python < 0 && file[0] ? file : at);
}

static void look_again(struct plait_stack *k)
{
    char where[sizeof(k->where)];
    bool waits = false;

    k->state = plait_stuck_state_of(k->pid);
    look(k, where, sizeof(where), &waits);
    k->moved = strcmp(where, k->where) != 0;
    memcpy(k->where, where, sizeof(where));
    k->waits = waits;
}

int plait_stacks_find(const struct plait_stuck_which *which, int seconds,
                      struct plait_stacks *stacks)
{
    struct plait_stacks all = {0};
    int rc = list_processes(which, &all);

    for (int i = 0; rc == 0 && i < all.n; i++) {
        struct plait_stack *k = &all.at[i];

        if (has_parent(&all, k))
            continue;
        look(k, k->where, sizeof(k->where), &k->waits);
        rc = plait_stacks_add(stacks, k);
    }
    plait_stacks_clear(&all);
    if (rc == 0 && stacks->n > 0)
        sleep((unsigned)seconds);
    for (int i = 0; rc == 0 && i < stacks->n; i++)
        look_again(&stacks->at[i]);
    return rc;
}
