/* SPDX-License-Identifier: Apache-2.0 */
/* What a lock file says: who trains there. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/claim_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/stuck/look.h"

#define PATIENCE_S 20
/* Longer than the 90 s after which an NFSv4 server gives up the locks of a
 * machine that has failed. */
#define DENIED_S 150
#define BEAT_S 5
#define RECORD_MOST 1024

/* -- who ------------------------------------------------------------------ */

/* When a process began, in ticks since the boot; 0: there is no such one, or it
 * has ended and its parent has not asked for that yet. */
static double start_of(int pid)
{
    char path[64], text[1024], *at, state = 'X';
    double started = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    plait_stuck_read_line(path, text, sizeof(text));
    at = strrchr(text, ')'); /* the name in () may have a ')' itself */
    if (at)
        sscanf(at + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %*d %*d %lf",
               &state, &started);
    return strchr("ZXx", state) ? 0 : started;
}

bool plait_claim_record_runs(const struct plait_claim_record *r)
{
    double started = start_of(r->by.pid);

    return started > 0 && started == r->by.started;
}

void plait_claim_self(struct plait_claimer *me)
{
    const char *job = getenv("SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");
    const char *restarts = getenv("SLURM_RESTART_COUNT");

    memset(me, 0, sizeof(*me));
    gethostname(me->host, sizeof(me->host) - 1);
    plait_stuck_read_line("/proc/sys/kernel/random/boot_id", me->boot,
                          sizeof(me->boot));
    me->boot[strcspn(me->boot, "\n")] = '\0';
    if (readlink("/proc/self/ns/pid", me->pids, sizeof(me->pids) - 1) < 0)
        me->pids[0] = '\0';
    if (job)
        snprintf(me->job, sizeof(me->job), "%s%s%s", job, step ? "." : "",
                 step ? step : "");
    me->restarts = restarts ? atoi(restarts) : 0;
    me->pid = (int)getpid();
    me->user = (int64_t)geteuid();
    me->started = start_of(me->pid);
    me->patience_s = PATIENCE_S;
    me->denied_s = DENIED_S;
    me->beat_s = BEAT_S;
}

void plait_claim_record_describe(const struct plait_claim_record *r, char *text,
                                 size_t size)
{
    time_t since = (time_t)r->since;
    struct tm tm;
    char at[32] = "";

    if (localtime_r(&since, &tm))
        strftime(at, sizeof(at), "%Y-%m-%d %H:%M:%S", &tm);
    snprintf(text, size, "process %d on %.80s%s%.40s, since %s", r->by.pid,
             r->by.host, *r->by.job ? ", job " : "", r->by.job, at);
}

/* -- the record ----------------------------------------------------------- */

static void copy_text(char *to, size_t size, const json_t *root,
                      const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));

    snprintf(to, size, "%s", text ? text : "");
}

static double number_of(const json_t *root, const char *key)
{
    return json_number_value(json_object_get(root, key));
}

int plait_claim_record_open(const char *path, int flags)
{
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 ||
        (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink < 2))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

enum plait_claim_content plait_claim_record_read(const char *path,
                                                 struct plait_claim_record *r)
{
    int fd = plait_claim_record_open(path, O_RDONLY);
    json_t *root =
        fd < 0 ? NULL : json_loadfd(fd, JSON_DISABLE_EOF_CHECK, NULL);
    const char *run = json_string_value(json_object_get(root, "run"));
    bool empty = fd >= 0 && lseek(fd, 0, SEEK_END) == 0;

    memset(r, 0, sizeof(*r));
    copy_text(r->by.host, sizeof(r->by.host), root, "host");
    copy_text(r->by.boot, sizeof(r->by.boot), root, "boot");
    copy_text(r->by.pids, sizeof(r->by.pids), root, "pids");
    copy_text(r->by.job, sizeof(r->by.job), root, "job");
    r->by.restarts = (int)number_of(root, "restarts");
    r->by.pid = (int)number_of(root, "pid");
    r->by.user = (int64_t)number_of(root, "user");
    r->by.started = number_of(root, "started");
    r->since = number_of(root, "since");
    r->beat = (int64_t)number_of(root, "beat");
    if (run)
        r->by.run = strtoull(run, NULL, 16);
    json_decref(root);
    if (fd < 0)
        return PLAIT_CLAIM_UNREAD;
    close(fd);
    if (r->by.run > 0 && r->by.pid > 0)
        return PLAIT_CLAIM_RECORD;
    return empty ? PLAIT_CLAIM_EMPTY : PLAIT_CLAIM_OTHER;
}

/* In one write, which others see as a whole or not at all. */
int plait_claim_record_write(int fd, struct plait_claim_record *r)
{
    char run[20], *text, line[RECORD_MOST];
    json_t *root;
    int n;

    r->beat++;
    snprintf(run, sizeof(run), "%016" PRIx64, r->by.run);
    root = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:f, s:f, s:s, s:I}",
                     "host", r->by.host, "boot", r->by.boot, "pids", r->by.pids,
                     "job", r->by.job, "restarts", r->by.restarts, "pid",
                     r->by.pid, "user", (json_int_t)r->by.user, "started",
                     r->by.started, "since", r->since, "run", run, "beat",
                     (json_int_t)r->beat);
    text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text)
        return -1;
    n = snprintf(line, sizeof(line), "%-700s\n", text);
    free(text);
    return n > 0 && n < RECORD_MOST && pwrite(fd, line, (size_t)n, 0) == n &&
                   fdatasync(fd) == 0
               ? 0
               : -1;
}

bool plait_claim_record_restarted(const struct plait_claim_record *r,
                                  const struct plait_claimer *me)
{
    size_t n = strcspn(me->job, ".");

    return n > 0 && strcspn(r->by.job, ".") == n &&
           !memcmp(r->by.job, me->job, n) && r->by.restarts < me->restarts;
}
