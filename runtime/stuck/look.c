/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/stuck/look.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/base/hash.h"
#include "topology/base/text.h"

/* -- the record ---------------------------------------------------------- */

static void copy_group(const struct plait_record_group *from,
                       struct plait_stuck_group *to)
{
    memcpy(to->name, from->name, sizeof(to->name));
    to->name[sizeof(to->name) - 1] = '\0';
    to->first = from->first;
    to->size = from->size;
    to->index = from->index;
    for (int s = 0; s < PLAIT_NSERIES; s++)
        to->entered[s] = atomic_load(&from->entered[s]);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < PLAIT_RECORD_LAST; i++) {
            to->last[s][i].tag = atomic_load(&from->last[s][i].tag);
            to->last[s][i].bytes = atomic_load(&from->last[s][i].bytes);
        }
}

/* If the rank waits in several groups, take the wait that began last. */
static void copy_wait(const struct plait_record *record, int i, double now,
                      struct plait_stuck_rank *rank)
{
    const struct plait_record_group *g = &record->group[i];
    uint64_t tag = atomic_load(&g->waits);
    double age = now - atomic_load(&g->since);

    if (!tag || (rank->waits >= 0 && age > rank->wait_age))
        return;
    rank->waits = i;
    rank->in.tag = tag;
    rank->in.bytes = atomic_load(&g->bytes);
    rank->peer = atomic_load(&g->peer);
    rank->wait_age = age > 0 ? age : 0;
}

uint64_t plait_stuck_space(void)
{
    char boot[40];
    struct stat s;

    plait_stuck_read_line("/proc/sys/kernel/random/boot_id", boot,
                          sizeof(boot));
    if (stat("/proc/self/ns/pid", &s) < 0)
        s.st_ino = 0;
    return plait_hash_text(PLAIT_HASH_START, boot) + s.st_ino;
}

enum plait_stuck_state plait_stuck_state_of(int pid)
{
    char state = plait_stuck_process_state(pid);

    if (state == 'T' || state == 't')
        return PLAIT_STUCK_STOPPED;
    return state == 'X' || state == 'Z' ? PLAIT_STUCK_DEAD : PLAIT_STUCK_RUNS;
}

void plait_stuck_look(const struct plait_record *record,
                      struct plait_stuck_rank *rank)
{
    double now = plait_clock_now();
    int phase = atomic_load(&record->phase);
    int n = atomic_load(&record->ngroups);

    memset(rank, 0, sizeof(*rank));
    rank->rank = record->rank;
    rank->gpu = record->gpu;
    rank->pid = record->pid;
    snprintf(rank->host, sizeof(rank->host), "%.63s", record->host);
    rank->state = plait_stuck_state_of(record->pid);
    rank->phase = phase >= 0 && phase < PLAIT_NPHASES ? (enum plait_phase)phase
                                                      : PLAIT_PHASE_START;
    rank->phase_age = now - atomic_load(&record->phase_since);
    rank->idle = now - atomic_load(&record->moved);
    rank->step = atomic_load(&record->step);
    rank->unanswered = atomic_load(&record->unanswered);
    if (atomic_load(&record->blocked))
        snprintf(rank->where, sizeof(rank->where), "%.127s", record->where);
    else if (rank->phase == PLAIT_PHASE_OPEN)
        snprintf(rank->where, sizeof(rank->where), "%.127s", record->file);
    rank->waits = -1;
    rank->ngroups = n < 0                     ? 0
                    : n < PLAIT_RECORD_GROUPS ? n
                                              : PLAIT_RECORD_GROUPS;
    for (int i = 0; i < rank->ngroups; i++) {
        copy_group(&record->group[i], &rank->group[i]);
        copy_wait(record, i, now, rank);
    }
}

void plait_stuck_unknown(int rank, struct plait_stuck_rank *out)
{
    memset(out, 0, sizeof(*out));
    out->rank = rank;
    out->gpu = -1;
    out->state = PLAIT_STUCK_UNKNOWN;
    out->waits = -1;
}

/* -- /proc --------------------------------------------------------------- */

void plait_stuck_read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");

    line[0] = '\0';
    if (f && !fgets(line, (int)size, f))
        line[0] = '\0';
    if (f)
        fclose(f);
}

char plait_stuck_process_state(int pid)
{
    char path[64], line[512], *at;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    plait_stuck_read_line(path, line, sizeof(line));
    at = strrchr(line, ')'); /* the name in () may have a ')' itself */
    return at && at[1] == ' ' ? at[2] : 'X';
}

void plait_stuck_clean_word(char *text)
{
    plait_text_clean(text);
    for (; *text; text++)
        if (isspace((unsigned char)*text))
            *text = '_';
}

/* Copy a path from the memory of the process. */
static void read_path(int pid, unsigned long at, char *text, size_t size)
{
    struct iovec to = {text, size - 1}, from = {(void *)at, size - 1};
    ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

    /* The path may be at the end of a mapping, where a long read fails. */
    while (n < 0 && from.iov_len > 16) {
        to.iov_len = from.iov_len /= 2;
        n = process_vm_readv(pid, &to, 1, &from, 1, 0);
    }
    text[n > 0 ? n : 0] = '\0';
}

static const char *call_name(long number)
{
    switch (number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
        return "read";
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
        return "write";
    case SYS_fsync:
    case SYS_fdatasync:
        return "sync";
    case SYS_close:
        return "close";
    case SYS_getdents64:
        return "list";
    default:
        return NULL;
    }
}

/* The index of the call's argument that is a path, and the name of the call;
 * -1: it has no path. */
static int path_of(long number, const char **call)
{
    *call = number == SYS_openat ? "open" : "look-up";
    switch (number) {
    case SYS_openat:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_faccessat:
    case SYS_readlinkat:
        return 1;
#ifdef SYS_stat
    case SYS_stat:
    case SYS_lstat:
    case SYS_access:
        return 0;
#endif
    default:
        return -1;
    }
}

static void describe_file(int pid, int fd, const char *call, char *text,
                          size_t size)
{
    char path[64], name[100];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    n = readlink(path, name, sizeof(name) - 1);
    name[n > 0 ? n : 0] = '\0';
    if (strncmp(name, "socket:", 7) && strncmp(name, "anon_inode:", 11))
        snprintf(text, size, "%s of %s%s", call,
                 fd == 1   ? "standard output, "
                 : fd == 2 ? "standard error, "
                           : "",
                 name);
}

void plait_stuck_where(int pid, int tid, char *text, size_t size)
{
    char path[64], line[256], name[100];
    unsigned long arg[2] = {0, 0};
    const char *call;
    long number;
    int at;

    text[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
    plait_stuck_read_line(path, line, sizeof(line));
    if (sscanf(line, "%ld %lx %lx", &number, &arg[0], &arg[1]) != 3)
        return;
    at = path_of(number, &call);
    if (at >= 0) {
        read_path(pid, arg[at], name, sizeof(name));
        snprintf(text, size, "%s of %s", call, name);
    } else if (call_name(number)) {
        describe_file(pid, (int)arg[0], call_name(number), text, size);
    } else if (number == SYS_clock_nanosleep || number == SYS_nanosleep) {
        snprintf(text, size, "sleep");
    }
    plait_text_clean(text);
}

void plait_stuck_where_any(int pid, char *text, size_t size)
{
    char path[64];
    struct dirent *e;
    DIR *dir = NULL;

    plait_stuck_where(pid, pid, text, size);
    if (!text[0]) {
        snprintf(path, sizeof(path), "/proc/%d/task", pid);
        dir = opendir(path);
    }
    while (dir && !text[0] && (e = readdir(dir)))
        if (atoi(e->d_name) > 0) {
            plait_stuck_where(pid, atoi(e->d_name), text, size);
            /* Only threads in a file: the others may just be idle. */
            if (!strstr(text, " of /"))
                text[0] = '\0';
        }
    if (dir)
        closedir(dir);
}
