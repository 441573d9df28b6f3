/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/start/preflight.h"

/* Measure the cores of a task. Times are the processor's, so that other
 * processes on the cores do not change them: those are counted separately. */

enum { SIDE = 96, TIMES = 12, COPIED = 8 << 20, PIDS_MOST = 65536 };

/* ---- other processes ---- */

struct process {
    int pid, parent, cpu;
    char state, name[16];
};

static int read_process(int pid, struct process *p)
{
    char path[64], line[1024], *end, *start;
    FILE *file;
    int ok;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (!file)
        return -1;
    ok = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    /* "1 (a name) R 0 ..", where the name may hold anything */
    start = ok ? strchr(line, '(') : NULL;
    end = start ? strrchr(line, ')') : NULL;
    if (!end || sscanf(end + 1, " %c %d", &p->state, &p->parent) != 2)
        return -1;
    p->pid = pid;
    *end = '\0';
    snprintf(p->name, sizeof(p->name), "%.15s", start + 1);
    p->cpu = -1;
    /* Field 39 is the processor; the state is the third. */
    for (int field = 2; field < 39 && (end = strchr(end + 1, ' ')); field++)
        if (field == 38)
            p->cpu = atoi(end + 1);
    return 0;
}

static int find_parent(const struct process *list, int n, int pid)
{
    for (int i = 0; i < n; i++)
        if (list[i].pid == pid)
            return list[i].parent;
    return 0;
}

/* Tasks of this step, and the processes they start, are descendants of the
 * launcher. */
static bool is_ours(const struct process *list, int n, int pid)
{
    int launcher = (int)getppid();

    for (int i = 0; i < 64 && pid > 1; i++) {
        if (pid == launcher || pid == (int)getpid())
            return true;
        pid = find_parent(list, n, pid);
    }
    return false;
}

static int list_processes(struct process *list, int most)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    while (dir && n < most && (entry = readdir(dir))) {
        int pid = atoi(entry->d_name);

        if (pid > 0 && read_process(pid, &list[n]) == 0)
            n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* How many other processes run, or wait to run, on a core of this task; `name`:
 * one of them. */
static int count_others(struct process *list, const cpu_set_t *cores,
                        char *name)
{
    int n = list_processes(list, PIDS_MOST), count = 0;

    for (int i = 0; i < n; i++) {
        int cpu = list[i].cpu;

        if (list[i].state != 'R' || cpu < 0 || cpu >= CPU_SETSIZE ||
            !CPU_ISSET((unsigned)cpu, cores) || is_ours(list, n, list[i].pid))
            continue;
        memcpy(name, list[i].name, sizeof(list[i].name));
        plait_preflight_clean_name(name);
        count++;
    }
    return count;
}

/* ---- products and copies ---- */

static void multiply(const float *a, const float *b, float *c)
{
    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k < SIDE; k++)
            for (int j = 0; j < SIDE; j++)
                c[i * SIDE + j] += a[i * SIDE + k] * b[k * SIDE + j];
}

static double time_product(float *m)
{
    double begin = plait_clock_thread();

    for (int i = 0; i < 4; i++)
        multiply(m, m + SIDE * SIDE, m + 2 * SIDE * SIDE);
    return plait_clock_thread() - begin;
}

static double time_copy(char *memory)
{
    double begin = plait_clock_thread();

    memcpy(memory, memory + COPIED, COPIED);
    return plait_clock_thread() - begin;
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void keep_best(double *best, double rate)
{
    if (rate > *best)
        *best = rate;
}

/* Measure in turns, so that a busy moment does not affect one figure alone. */
static void take_turns(struct plait_preflight_report *report, float *m,
                       char *memory, struct process *list)
{
    double begin = plait_clock_now();
    int counts[TIMES] = {0}, n = 0, cores;
    cpu_set_t set;
    char name[16] = "";

    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    cores = CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
    while (n < TIMES && (n < 5 || plait_clock_now() - begin < 1.0)) {
        keep_best(&report->product, 8.0 * SIDE * SIDE * SIDE / time_product(m));
        keep_best(&report->memory, COPIED / time_copy(memory));
        counts[n++] = count_others(list, &set, name);
    }
    qsort(counts, (size_t)n, sizeof(counts[0]), compare_ints);
    report->others = (double)counts[n / 2] / cores;
    memcpy(report->other, name, sizeof(report->other));
}

void plait_preflight_measure_node(struct plait_preflight_report *report)
{
    float *m = malloc(3 * SIDE * SIDE * sizeof(*m));
    char *memory = malloc(2 * COPIED);
    struct process *list = malloc(PIDS_MOST * sizeof(*list));

    if (m && memory && list) {
        for (int i = 0; i < 3 * SIDE * SIDE; i++)
            m[i] = (float)(i % 7) * 1e-3f;
        memset(memory, 1, 2 * COPIED);
        take_turns(report, m, memory, list);
    }
    free(m);
    free(memory);
    free(list);
}
