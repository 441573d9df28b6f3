/* SPDX-License-Identifier: Apache-2.0 */
/* Claims folders and files for one run. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "topology/base/clock.h"

#define PATIENCE_S 20
#define BEAT_S 5
#define RECORD_MOST 1024

enum lock {
    LOCKED,
    DENIED, /* another process has it, perhaps one of the same run */
    UNKNOWN /* the file system has no locks */
};

/* What a lock file says. */
struct record {
    struct plait_claimer by;
    double since; /* Unix time */
    int64_t beat; /* how often it was written */
};

struct plait_claim {
    char *path, *what;
    int fd;
    enum lock held;
    struct record record;
    pthread_t thread;
    bool beats; /* the thread runs */
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ended;
};

/* -- who ------------------------------------------------------------------ */

/* When a process began, in ticks since the boot; 0: there is no such one. */
static double start_of(int pid)
{
    char path[64], text[1024], *at;
    double started = 0;
    FILE *in;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    in = fopen(path, "re");
    if (in && fgets(text, sizeof(text), in) && (at = strrchr(text, ')')))
        sscanf(at + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %*d %*d %lf",
               &started);
    if (in)
        fclose(in);
    return started;
}

void plait_claim_self(struct plait_claimer *me)
{
    const char *job = getenv("SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    FILE *in = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(me, 0, sizeof(*me));
    gethostname(me->host, sizeof(me->host) - 1);
    if (in && fgets(me->boot, sizeof(me->boot), in))
        me->boot[strcspn(me->boot, "\n")] = '\0';
    if (in)
        fclose(in);
    if (job)
        snprintf(me->job, sizeof(me->job), "%s%s%s", job, step ? "." : "",
                 step ? step : "");
    me->restarts = restarts ? atoi(restarts) : 0;
    me->pid = (int)getpid();
    me->started = start_of(me->pid);
    me->patience_s = PATIENCE_S;
    me->beat_s = BEAT_S;
}

static void describe(const struct record *r, char *text, size_t size)
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

/* In a folder that others may write to, a link must not lead to another file of
 * this user's, and a pipe must not keep this process waiting. */
static int open_own(const char *path, int flags)
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

/* false: the file has no record, or not yet. It is opened anew, as a network
 * file system shows what others have written only then. */
static bool read_record(const char *path, struct record *r)
{
    int fd = open_own(path, O_RDONLY);
    json_t *root = json_loadfd(fd, JSON_DISABLE_EOF_CHECK, NULL);
    const char *run = json_string_value(json_object_get(root, "run"));

    if (fd >= 0)
        close(fd);
    memset(r, 0, sizeof(*r));
    copy_text(r->by.host, sizeof(r->by.host), root, "host");
    copy_text(r->by.boot, sizeof(r->by.boot), root, "boot");
    copy_text(r->by.job, sizeof(r->by.job), root, "job");
    r->by.restarts = (int)number_of(root, "restarts");
    r->by.pid = (int)number_of(root, "pid");
    r->by.started = number_of(root, "started");
    r->since = number_of(root, "since");
    r->beat = (int64_t)number_of(root, "beat");
    if (run)
        r->by.run = strtoull(run, NULL, 16);
    json_decref(root);
    return run && r->by.pid > 0;
}

/* In one write, which others see as a whole or not at all. */
static int write_record(int fd, struct record *r)
{
    char run[20], *text, line[RECORD_MOST];
    json_t *root;
    int n;

    r->beat++;
    snprintf(run, sizeof(run), "%016" PRIx64, r->by.run);
    root =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:s, s:I}", "host",
                  r->by.host, "boot", r->by.boot, "job", r->by.job, "restarts",
                  r->by.restarts, "pid", r->by.pid, "started", r->by.started,
                  "since", r->since, "run", run, "beat", (json_int_t)r->beat);
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

/* -- whether another run is alive ----------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return *a && !strcmp(a, b);
}

/* A job that Slurm has started again has ended before. */
static bool is_earlier_start(const struct record *r,
                             const struct plait_claimer *me)
{
    size_t n = strcspn(me->job, ".");

    return n > 0 && strcspn(r->by.job, ".") == n &&
           !memcmp(r->by.job, me->job, n) && r->by.restarts < me->restarts;
}

/* Whether the record is written again within the patience. */
static bool is_written(const char *path, const struct record *first, bool any,
                       const struct plait_claimer *me)
{
    const struct timespec moment = {0, 200 * 1000 * 1000};
    double until = plait_clock_now() + me->patience_s;
    struct record now;

    while (plait_clock_now() < until) {
        nanosleep(&moment, NULL);
        if (read_record(path, &now) &&
            (!any || now.beat != first->beat || now.by.run != first->by.run))
            return true;
    }
    return false;
}

/* Whether the run of the record, if there is `any`, is alive. */
static bool is_alive(const char *path, const struct record *r, bool any,
                     enum lock lock, const struct plait_claimer *me)
{
    if (any && same_text(r->by.boot, me->boot)) {
        if (lock == UNKNOWN)
            return start_of(r->by.pid) == r->by.started;
        return lock == DENIED;
    }
    if (any && is_earlier_start(r, me))
        return false;
    /* Another machine's lock may not reach this one, and that of a machine that
     * has failed may stay for a while. */
    return is_written(path, r, any, me);
}

/* -- the lock file -------------------------------------------------------- */

static enum lock lock_file(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
        return LOCKED;
    return errno == EAGAIN || errno == EACCES ? DENIED : UNKNOWN;
}

/* Whether `fd` is still the file of that name: who releases a claim removes
 * it. */
static bool is_there(int fd, const char *path)
{
    struct stat a, b;

    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Open the file, lock it if possible. *created: it was not there. */
static int open_file(const char *path, enum lock *lock, bool *created)
{
    int fd;

    for (int tries = 0; tries < 100; tries++) {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        *created = fd >= 0;
        if (fd < 0 && errno == EEXIST)
            fd = open_own(path, O_RDWR);
        if (fd < 0 && errno == ENOENT && tries > 0)
            continue;
        if (fd < 0 && errno != ENOENT)
            return -1;
        if (fd < 0)
            continue;
        *lock = lock_file(fd);
        if (is_there(fd, path))
            return fd;
        close(fd);
    }
    return -1;
}

static int refuse(const char *what, const struct record *r, bool any,
                  struct plait_error *err)
{
    char who[300] = "another process";

    if (any)
        describe(r, who, sizeof(who));
    errno = EBUSY;
    return plait_errorf(err,
                        "%s: another run trains there: %s; wait for its end, "
                        "stop it, or name another place for this run",
                        what, who);
}

/* Whether this run may have it. */
static int judge(struct plait_claim *c, bool created, char taken[400],
                 struct plait_error *err)
{
    const struct plait_claimer *me = &c->record.by;
    struct record before;
    char who[240];
    bool any = !created && read_record(c->path, &before);

    if (created || (any && before.by.run == me->run))
        return 0;
    if (is_alive(c->path, &before, any, c->held, me)) {
        any = read_record(c->path, &before);
        return refuse(c->what, &before, any, err);
    }
    if (!any)
        return 0;
    describe(&before, who, sizeof(who));
    snprintf(taken, 400,
             "%.60s: %s, trained there and has ended without a word; this run "
             "takes its place",
             c->what, who);
    return 0;
}

/* -- life ------------------------------------------------------------------ */

static bool is_own(const struct plait_claim *c, const struct record *r)
{
    const struct plait_claimer *me = &c->record.by;

    return r->by.run == me->run && r->by.pid == me->pid &&
           !strcmp(r->by.host, me->host);
}

/* Another run has judged this one dead, as it was stopped for long: it must not
 * write any more. */
static void leave(const struct plait_claim *c)
{
    struct record now;
    char who[300] = "another process";

    if (read_record(c->path, &now))
        describe(&now, who, sizeof(who));
    fprintf(stderr,
            "plait-train: %s: another run has taken it over: %s; this one "
            "ends\n",
            c->what, who);
    _exit(1);
}

/* The user may have removed the file: then it is made again. */
static void make_again(struct plait_claim *c)
{
    enum lock lock;
    bool created;
    int fd = open_file(c->path, &lock, &created);

    if (fd < 0)
        return;
    close(c->fd);
    c->fd = fd;
    c->held = lock;
    if (created)
        write_record(fd, &c->record);
}

/* Of two processes of an elastic run the one that claimed last writes the
 * record; it gets the lock when the other ends. */
static void keep_record(struct plait_claim *c)
{
    struct record now;

    if (!is_there(c->fd, c->path))
        make_again(c);
    if (c->held == DENIED)
        c->held = lock_file(c->fd);
    if (!read_record(c->path, &now))
        return;
    if (now.by.run != c->record.by.run)
        leave(c);
    if (is_own(c, &now))
        write_record(c->fd, &c->record);
}

static void *beat(void *arg)
{
    struct plait_claim *c = arg;
    struct timespec until;

    pthread_mutex_lock(&c->lock);
    while (!c->ended) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (time_t)c->record.by.beat_s;
        until.tv_nsec += 1;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&c->end, &c->lock, &until) == ETIMEDOUT &&
            !c->ended)
            keep_record(c);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Signals are the main thread's. */
static void start_beat(struct plait_claim *c)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->beats = pthread_create(&c->thread, NULL, beat, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void destroy(struct plait_claim *c)
{
    int saved = errno;

    if (c->fd >= 0)
        close(c->fd);
    free(c->path);
    free(c->what);
    free(c);
    errno = saved;
}

/* Who made the file has it. Another process that has locked it in between
 * leaves as soon as it finds the record. */
static void await_lock(struct plait_claim *c)
{
    const struct timespec moment = {0, 10 * 1000 * 1000};

    for (int i = 0; i < 500 && c->held == DENIED; i++) {
        nanosleep(&moment, NULL);
        c->held = lock_file(c->fd);
    }
}

static struct plait_claim *create(const char *path, const char *what,
                                  const struct plait_claimer *me)
{
    struct plait_claim *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->fd = -1;
    c->path = strdup(path);
    c->what = strdup(what);
    c->record = (struct record){.by = *me, .since = plait_clock_unix()};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->end, NULL);
    if (c->path && c->what)
        return c;
    destroy(c);
    return NULL;
}

struct plait_claim *plait_claim_take(const char *path, const char *what,
                                     const struct plait_claimer *me,
                                     char taken[400], struct plait_error *err)
{
    struct plait_claim *c = create(path, what, me);
    bool created = false;
    int rc = -1;

    err->text[0] = *taken = '\0';
    if (!c)
        return NULL;
    c->fd = open_file(path, &c->held, &created);
    if (c->fd >= 0)
        rc = judge(c, created, taken, err);
    if (rc == 0 && write_record(c->fd, &c->record) == 0) {
        if (created)
            await_lock(c);
        start_beat(c);
        return c;
    }
    if (created)
        unlink(path);
    destroy(c);
    return NULL;
}

void plait_claim_release(struct plait_claim *c)
{
    struct record now;

    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_cond_signal(&c->end);
    pthread_mutex_unlock(&c->lock);
    if (c->beats)
        pthread_join(c->thread, NULL);
    /* The name goes while the lock holds: who opened it before looks again. */
    if (is_there(c->fd, c->path) && read_record(c->path, &now) &&
        is_own(c, &now))
        unlink(c->path);
    destroy(c);
}
