/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/stuck/runs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/stuck/look.h"
#include "runtime/stuck/wire.h"

#define LINE "plait-stuck-rank"

/* More than the kernel gives a new process, and than any run has. */
enum { ENVIRONMENT_MOST = 8 << 20, RANKS_MOST = 1 << 17 };

/* -- lists --------------------------------------------------------------- */

static struct plait_stuck_run *find_run(struct plait_stuck_runs *runs,
                                        uint64_t id, unsigned owner,
                                        const char *job, int world)
{
    struct plait_stuck_run *more;

    for (int i = 0; i < runs->n; i++)
        if (runs->run[i].id == id && runs->run[i].owner == owner)
            return &runs->run[i];
    more = realloc(runs->run, (size_t)(runs->n + 1) * sizeof(*more));
    if (!more)
        return NULL;
    runs->run = more;
    more += runs->n++;
    memset(more, 0, sizeof(*more));
    more->id = id;
    more->owner = owner;
    more->world = world;
    snprintf(more->job, sizeof(more->job), "%.63s", job);
    plait_stuck_clean_word(more->job);
    return more;
}

/* Insert by rank; a rank that is listed already stays as it is. */
static int add_rank(struct plait_stuck_run *run,
                    const struct plait_stuck_rank *rank)
{
    struct plait_stuck_rank *more =
        realloc(run->rank, (size_t)(run->n + 1) * sizeof(*more));
    int at = run->n;

    if (!more)
        return -1;
    run->rank = more;
    while (at > 0 && more[at - 1].rank > rank->rank)
        at--;
    if (at > 0 && more[at - 1].rank == rank->rank)
        return 0;
    memmove(&more[at + 1], &more[at], (size_t)(run->n - at) * sizeof(*more));
    more[at] = *rank;
    run->n++;
    return 0;
}

void plait_stuck_runs_clear(struct plait_stuck_runs *runs)
{
    for (int i = 0; i < runs->n; i++)
        free(runs->run[i].rank);
    free(runs->run);
    runs->run = NULL;
    runs->n = 0;
}

/* -- processes ----------------------------------------------------------- */

unsigned plait_stuck_owner(int pid)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d", pid);
    return stat(path, &st) == 0 ? st.st_uid : (unsigned)-1;
}

int plait_stuck_parent(int pid)
{
    char path[64], line[512], *at = NULL, state;
    int parent = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (f && fgets(line, sizeof(line), f))
        at = strrchr(line, ')');
    if (!at || sscanf(at + 1, " %c %d", &state, &parent) != 2)
        parent = 0;
    if (f)
        fclose(f);
    return parent;
}

static bool descends_from(int pid, int from)
{
    while (pid > 1 && pid != from)
        pid = plait_stuck_parent(pid);
    return pid == from;
}

static bool works_in(int pid, const char *dir)
{
    char path[64], cwd[PATH_MAX], real[PATH_MAX];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/cwd", pid);
    n = readlink(path, cwd, sizeof(cwd) - 1);
    cwd[n > 0 ? n : 0] = '\0';
    return realpath(dir, real) && !strcmp(cwd, real);
}

char *plait_stuck_environment(int pid, size_t *size)
{
    char path[64], *text = NULL, *more;
    size_t n = 0, got = 1;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    f = fopen(path, "re");
    while (f && got > 0 && n < ENVIRONMENT_MOST &&
           (more = realloc(text, n + 4097))) {
        text = more;
        got = fread(text + n, 1, 4096, f);
        n += got;
        text[n] = '\0';
    }
    if (f)
        fclose(f);
    *size = n;
    return text;
}

/* Whether the process's environment has NAME=value. */
static bool has_variable(int pid, const char *entry)
{
    size_t size = 0;
    char *text = plait_stuck_environment(pid, &size);
    bool found = false;

    for (size_t at = 0; !found && at < size; at += strlen(text + at) + 1)
        found = !strcmp(text + at, entry);
    free(text);
    return found;
}

bool plait_stuck_is_wanted(int pid, const struct plait_stuck_which *which)
{
    char entry[64];

    if (which->owned && plait_stuck_owner(pid) != which->owner)
        return false;
    if (which->job) {
        snprintf(entry, sizeof(entry), "SLURM_JOB_ID=%.40s", which->job);
        return has_variable(pid, entry);
    }
    if (which->dir)
        return works_in(pid, which->dir);
    return which->pid <= 0 || descends_from(pid, which->pid);
}

/* -- looking ------------------------------------------------------------- */

/* A copy of the record that a process has open. */
struct seen {
    struct plait_record record;
    int pid, fd;
    unsigned owner;
};

/* False: it has none. */
static bool see(int pid, struct seen *seen)
{
    static const char name[] = "/memfd:" PLAIT_RECORD_FILE;
    char path[64], to[64];
    bool found = false;
    struct dirent *e;
    DIR *dir;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    dir = opendir(path);
    while (dir && !found && (e = readdir(dir))) {
        n = readlinkat(dirfd(dir), e->d_name, to, sizeof(to) - 1);
        to[n > 0 ? n : 0] = '\0';
        if (strncmp(to, name, sizeof(name) - 1) != 0)
            continue;
        seen->fd = atoi(e->d_name);
        found = plait_record_copy(pid, seen->fd, &seen->record) == 0;
    }
    if (dir)
        closedir(dir);
    seen->pid = pid;
    seen->owner = plait_stuck_owner(pid);
    return found;
}

/* A sum that changes whenever the rank does anything. */
static uint64_t progress_of(const struct plait_record *record)
{
    double since = atomic_load(&record->phase_since);
    uint64_t sum;

    memcpy(&sum, &since, sizeof(sum));
    sum += (uint64_t)atomic_load(&record->step);
    for (int i = 0; i < PLAIT_RECORD_GROUPS; i++)
        for (int s = 0; s < PLAIT_NSERIES; s++)
            sum += atomic_load(&record->group[i].entered[s]);
    return sum;
}

static int see_all(const struct plait_stuck_which *which, struct seen **seen)
{
    DIR *dir = opendir("/proc");
    struct seen *more, one;
    struct dirent *e;
    int n = 0;

    *seen = NULL;
    while (dir && (e = readdir(dir))) {
        int pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;

        if (pid <= 0 || !plait_stuck_is_wanted(pid, which) || !see(pid, &one))
            continue;
        more = realloc(*seen, (size_t)(n + 1) * sizeof(*more));
        if (!more)
            break;
        *seen = more;
        memcpy(&more[n++], &one, sizeof(one));
    }
    if (dir)
        closedir(dir);
    return n;
}

/* A rank as it is sent from node to node, so that what a process of any user
 * wrote into its record is checked once and in one place. */
static int check_rank(struct plait_stuck_rank *rank)
{
    unsigned char bytes[PLAIT_STUCK_WIRE_MOST];
    int n = plait_stuck_pack(rank, bytes, sizeof(bytes));

    return n < 0 ? -1 : plait_stuck_unpack(bytes, (size_t)n, rank);
}

/* In another PID namespace the process has another number than its record
 * says. Of a process that has ended meanwhile the first copy is left. */
static int add_seen(const struct seen *s, struct plait_stuck_runs *runs)
{
    struct plait_record now;
    const struct plait_record *record = &s->record;
    struct plait_stuck_rank rank;
    struct plait_stuck_run *run;
    char where[sizeof(rank.where)];

    if (plait_record_copy(s->pid, s->fd, &now) == 0 &&
        now.run == s->record.run && now.rank == s->record.rank)
        record = &now;
    plait_stuck_look(record, &rank);
    rank.pid = s->pid;
    rank.state = plait_stuck_state_of(s->pid);
    plait_stuck_where_any(s->pid, where, sizeof(where));
    if (where[0])
        memcpy(rank.where, where, sizeof(where));
    if (check_rank(&rank) < 0)
        return 0;
    run = find_run(runs, record->run, s->owner, record->job, record->world);
    if (!run || add_rank(run, &rank) < 0)
        return -1;
    run->moved |= progress_of(record) != progress_of(&s->record);
    return 0;
}

int plait_stuck_runs_find(const struct plait_stuck_which *which, int seconds,
                          struct plait_stuck_runs *runs)
{
    struct seen *seen;
    int n = see_all(which, &seen), rc = 0;

    if (n > 0)
        sleep((unsigned)seconds);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = add_seen(&seen[i], runs);
    free(seen);
    return rc;
}

/* -- lines --------------------------------------------------------------- */

void plait_stuck_runs_dump(const struct plait_stuck_runs *runs)
{
    unsigned char bytes[PLAIT_STUCK_WIRE_MOST];

    for (int i = 0; i < runs->n; i++)
        for (int k = 0; k < runs->run[i].n; k++) {
            const struct plait_stuck_run *run = &runs->run[i];
            int n = plait_stuck_pack(&run->rank[k], bytes, sizeof(bytes));

            if (n < 0)
                continue;
            printf(LINE " %016" PRIx64 " %d %d %s ", run->id, run->world,
                   run->moved, run->job[0] ? run->job : "-");
            for (int b = 0; b < n; b++)
                printf("%02x", bytes[b]);
            printf("\n");
        }
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static int read_bytes(const char *text, struct plait_stuck_rank *rank)
{
    unsigned char bytes[PLAIT_STUCK_WIRE_MOST];
    size_t n = 0;

    while (n < sizeof(bytes) && digit_of(text[2 * n]) >= 0 &&
           digit_of(text[2 * n + 1]) >= 0) {
        bytes[n] = (unsigned char)(digit_of(text[2 * n]) << 4 |
                                   digit_of(text[2 * n + 1]));
        n++;
    }
    return plait_stuck_unpack(bytes, n, rank);
}

int plait_stuck_runs_read(const char *text, struct plait_stuck_runs *runs)
{
    for (int n = 0; text && *text && n < RANKS_MOST;
         text = strchr(text, '\n')) {
        struct plait_stuck_rank rank;
        struct plait_stuck_run *run;
        int world, moved, at = 0;
        char job[64];
        uint64_t id;

        text += *text == '\n';
        if (sscanf(text, LINE " %" SCNx64 " %d %d %63s %n", &id, &world, &moved,
                   job, &at) < 4 ||
            at == 0 || read_bytes(text + at, &rank) < 0)
            continue;
        run = find_run(runs, id, geteuid(), strcmp(job, "-") ? job : "", world);
        if (!run || add_rank(run, &rank) < 0)
            return -1;
        run->moved |= moved != 0;
        n++;
    }
    return 0;
}
