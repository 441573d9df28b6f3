/* SPDX-License-Identifier: Apache-2.0 */
/* Claims folders and files for one run. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/train/claim_record.h"
#include "topology/base/clock.h"

enum lock {
    LOCKED,
    DENIED, /* another process has it, perhaps one of the same run */
    UNKNOWN /* the file system has no locks */
};

struct plait_claim {
    char *path, *what;
    int fd;
    enum lock held;
    struct plait_claim_record record;
    pthread_t thread;
    bool beats; /* the thread runs */
    int tid;    /* 0: it has not begun yet */
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ended;
};

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
            fd = plait_claim_record_open(path, O_RDWR);
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

/* -- whether another run is alive ----------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return *a && !strcmp(a, b);
}

/* What became of a run that may be dead. */
enum fate {
    DEAD,
    ALIVE,
    GONE /* its lock file is gone: it has ended */
};

static void say_wait(const struct plait_claim *c,
                     const struct plait_claim_record *r, bool any,
                     double patience)
{
    const struct plait_claimer *me = &c->record.by;
    char who[240] = "another process", line[PLAIT_CLAIM_SAID];

    if (!me->waits)
        return;
    if (any)
        plait_claim_record_describe(r, who, sizeof(who));
    snprintf(line, sizeof(line),
             "%.300s: %s%s; waiting up to %.0f s to see whether it still does",
             c->what, who, any ? ", trained there" : " may train there",
             patience);
    me->waits(me->arg, line);
}

/* Whether the record is written again within the patience. A lock that becomes
 * free was that of a run that has ended. */
static enum fate watch_record(struct plait_claim *c,
                              const struct plait_claim_record *first, bool any)
{
    const struct timespec moment = {0, 200 * 1000 * 1000};
    const struct plait_claimer *me = &c->record.by;
    double patience = c->held == DENIED ? me->denied_s : me->patience_s;
    double until = plait_clock_now() + patience;
    struct plait_claim_record now;

    say_wait(c, first, any, patience);
    while (plait_clock_now() < until) {
        nanosleep(&moment, NULL);
        if (me->waits)
            me->waits(me->arg, NULL);
        if (!is_there(c->fd, c->path))
            return GONE;
        if (plait_claim_record_read(c->path, &now) == PLAIT_CLAIM_RECORD &&
            (!any || now.beat != first->beat || now.by.run != first->by.run))
            return ALIVE;
        if (c->held == DENIED && lock_file(c->fd) == LOCKED) {
            c->held = LOCKED;
            return DEAD;
        }
    }
    return DEAD;
}

/* What became of the run of the record, if there is `any`. */
static enum fate find_fate(struct plait_claim *c,
                           const struct plait_claim_record *r, bool any)
{
    const struct plait_claimer *me = &c->record.by;

    if (any && same_text(r->by.boot, me->boot)) {
        bool shown = same_text(r->by.pids, me->pids);

        /* A live run may be without the lock until its next beat. */
        if (c->held == DENIED || (shown && plait_claim_record_runs(r)))
            return ALIVE;
        /* Processes of other users may be hidden. */
        if (c->held == LOCKED || (shown && r->by.user == me->user))
            return DEAD;
    }
    if (any && (r->by.run == me->dead || plait_claim_record_restarted(r, me)))
        return DEAD;
    /* Another machine's lock may not reach this one, and that of a machine that
     * has failed may stay for a while. */
    return watch_record(c, r, any);
}

static int refuse(const char *what, const struct plait_claim_record *r,
                  bool any, struct plait_error *err)
{
    char who[300] = "another process";

    if (any)
        plait_claim_record_describe(r, who, sizeof(who));
    errno = EBUSY;
    return plait_errorf(err,
                        "%s: another run trains there: %s; wait for its end, "
                        "stop it, or name another place for this run "
                        "(checkpoint.dir, log.metrics)",
                        what, who);
}

/* Says why nobody can claim it. */
static int leave_unclaimed(const struct plait_claim *c, const char *why,
                           char said[PLAIT_CLAIM_SAID])
{
    snprintf(
        said, PLAIT_CLAIM_SAID,
        "%.300s: it cannot be claimed, as %.300s %s; this run goes on, and "
        "another one that writes there is not refused",
        c->what, c->path, why);
    return -1;
}

/* 0: this run may have it. 1: look again. -1: it may not. */
static int judge(struct plait_claim *c, struct plait_claimer *me,
                 char said[PLAIT_CLAIM_SAID], struct plait_error *err)
{
    struct plait_claim_record before;
    enum plait_claim_content content =
        plait_claim_record_read(c->path, &before);
    bool any = content == PLAIT_CLAIM_RECORD;
    enum fate fate;
    char who[240];

    if (any && before.by.run == me->run)
        return 0;
    fate = find_fate(c, &before, any);
    if (fate == ALIVE) {
        any = plait_claim_record_read(c->path, &before) == PLAIT_CLAIM_RECORD;
        return refuse(c->what, &before, any, err);
    }
    if (fate == GONE || !is_there(c->fd, c->path))
        return 1;
    if (content == PLAIT_CLAIM_OTHER)
        return leave_unclaimed(c, "is no lock file of plait-train's", said);
    if (!any)
        return 0;
    me->dead = before.by.run;
    plait_claim_record_describe(&before, who, sizeof(who));
    snprintf(said, PLAIT_CLAIM_SAID,
             "%.300s: %s, trained there and has ended without a word; this run "
             "takes its place",
             c->what, who);
    return 0;
}

/* As judge(). *created: the lock file was not there. */
static int look(struct plait_claim *c, struct plait_claimer *me, bool *created,
                char said[PLAIT_CLAIM_SAID], struct plait_error *err)
{
    bool writable;
    struct stat st;
    int rc;

    if (c->fd >= 0)
        close(c->fd);
    c->fd = open_file(c->path, &c->held, created);
    if (*created)
        return 0;
    writable = c->fd >= 0;
    if (!writable && (errno == EACCES || errno == EPERM)) {
        c->fd = plait_claim_record_open(c->path, O_RDONLY);
        c->held = UNKNOWN;
    }
    if (c->fd < 0 && lstat(c->path, &st) < 0)
        return -1;
    if (c->fd < 0)
        return leave_unclaimed(c,
                               S_ISREG(st.st_mode) && st.st_nlink < 2
                                   ? "cannot be opened"
                                   : "is a link, a pipe or the like",
                               said);
    rc = judge(c, me, said, err);
    if (rc == 0 && !writable)
        return leave_unclaimed(c, "is another user's", said);
    return rc;
}

/* -- life ------------------------------------------------------------------ */

static bool is_own(const struct plait_claim *c,
                   const struct plait_claim_record *r)
{
    const struct plait_claimer *me = &c->record.by;

    return r->by.run == me->run && r->by.pid == me->pid &&
           !strcmp(r->by.host, me->host);
}

/* Another run has judged this one dead, as it was stopped for long: it must not
 * write any more. */
static void leave(const struct plait_claim *c)
{
    struct plait_claim_record now;
    char who[300] = "another process";

    if (plait_claim_record_read(c->path, &now) == PLAIT_CLAIM_RECORD)
        plait_claim_record_describe(&now, who, sizeof(who));
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
        plait_claim_record_write(fd, &c->record);
}

/* Of two processes of an elastic run the one that claimed last writes the
 * record; it gets the lock when the other ends. */
static void keep_record(struct plait_claim *c)
{
    struct plait_claim_record now;
    enum plait_claim_content content;

    if (!is_there(c->fd, c->path))
        make_again(c);
    if (c->held == DENIED)
        c->held = lock_file(c->fd);
    content = plait_claim_record_read(c->path, &now);
    if (content == PLAIT_CLAIM_UNREAD)
        return;
    if (content == PLAIT_CLAIM_RECORD && now.by.run != c->record.by.run)
        leave(c);
    /* Somebody may have emptied the file. */
    if (is_there(c->fd, c->path) &&
        (content != PLAIT_CLAIM_RECORD || is_own(c, &now)))
        plait_claim_record_write(c->fd, &c->record);
}

static void *beat(void *arg)
{
    struct plait_claim *c = arg;
    struct timespec until;

    pthread_mutex_lock(&c->lock);
    c->tid = gettid();
    pthread_cond_signal(&c->end);
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

int plait_claim_thread(struct plait_claim *c)
{
    if (!c || !c->beats)
        return 0;
    pthread_mutex_lock(&c->lock);
    while (c->tid == 0)
        pthread_cond_wait(&c->end, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return c->tid; /* it does not change any more */
}

int plait_claim_hold(struct plait_claim *c)
{
    pthread_mutex_lock(&c->lock);
    return c->fd;
}

void plait_claim_unhold(struct plait_claim *c)
{
    pthread_mutex_unlock(&c->lock);
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
    c->record =
        (struct plait_claim_record){.by = *me, .since = plait_clock_unix()};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->end, NULL);
    if (c->path && c->what)
        return c;
    destroy(c);
    return NULL;
}

struct plait_claim *plait_claim_take(const char *path, const char *what,
                                     struct plait_claimer *me,
                                     char said[PLAIT_CLAIM_SAID],
                                     struct plait_error *err)
{
    struct plait_claim *c = create(path, what, me);
    bool created = false;
    int rc = 1;

    err->text[0] = *said = '\0';
    if (!c)
        return NULL;
    for (int tries = 0; tries < 100 && rc > 0; tries++)
        rc = look(c, me, &created, said, err);
    if (rc == 0 && plait_claim_record_write(c->fd, &c->record) == 0) {
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

struct plait_claim *plait_claim_go_on(int fd, const struct plait_claimer *me)
{
    char name[40], path[PATH_MAX] = "";
    struct plait_claim *c = NULL;

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof(path) - 1) > 0 && is_there(fd, path))
        c = create(path, path, me);
    if (!c)
        return NULL;
    c->fd = fd;
    plait_claim_record_read(path, &c->record); /* its beats, and since when */
    c->record.by = *me;
    keep_record(c);
    start_beat(c);
    return c;
}

static void end_beat(struct plait_claim *c)
{
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_cond_signal(&c->end);
    pthread_mutex_unlock(&c->lock);
    if (c->beats)
        pthread_join(c->thread, NULL);
}

void plait_claim_drop(struct plait_claim *c)
{
    end_beat(c);
    destroy(c);
}

void plait_claim_release(struct plait_claim *c)
{
    struct plait_claim_record now;

    if (!c)
        return;
    end_beat(c);
    /* The name goes while the lock holds: who opened it before looks again. */
    if (is_there(c->fd, c->path) &&
        plait_claim_record_read(c->path, &now) == PLAIT_CLAIM_RECORD &&
        is_own(c, &now))
        unlink(c->path);
    destroy(c);
}
