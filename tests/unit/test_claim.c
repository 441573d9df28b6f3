/* SPDX-License-Identifier: Apache-2.0 */
/* One run at a time has a folder: runs of one machine, runs of other machines
 * whose locks do not reach this one, and runs that have ended without a
 * word. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/train/claim_record.h"
#include "tap.h"
#include "temp_path.h"
#include "topology/base/clock.h"

static char dir[TEMP_PATH], path[TEMP_PATH + 16];
static char waited[PLAIT_CLAIM_SAID]; /* what was said before a wait */
static int waits;                     /* such lines */

static void pause_ms(int ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

static void note_wait(void *arg, const char *line)
{
    (void)arg;
    if (!line)
        return;
    waits++;
    snprintf(waited, sizeof(waited), "%s", line);
}

static struct plait_claimer somebody(uint64_t run)
{
    struct plait_claimer me;

    plait_claim_self(&me);
    me.run = run;
    me.patience_s = me.denied_s = 1.5;
    me.beat_s = 1;
    me.waits = note_wait;
    return me;
}

static void write_as(struct plait_claimer r, int beat)
{
    struct plait_claim_record record = {.by = r, .since = 1, .beat = beat - 1};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    record.by.run = 0xaa;
    if (fd < 0 || plait_claim_record_write(fd, &record) < 0)
        diag("%s: %s", path, strerror(errno));
    close(fd);
}

/* What a run of another machine has left there. */
static void write_other(const char *job, int restarts, int beat)
{
    struct plait_claimer r = {
        .host = "node7", .boot = "other", .restarts = restarts, .pid = 12};

    snprintf(r.job, sizeof(r.job), "%s", job);
    write_as(r, beat);
}

/* Whether a run gets in; `says` must be in what it is told (NULL: nothing is
 * said). It leaves again. */
static bool takes(struct plait_claimer *me, const char *says)
{
    struct plait_error err;
    char taken[PLAIT_CLAIM_SAID];
    struct plait_claim *c = plait_claim_take(path, "ck", me, taken, &err);
    bool good;

    diag("%s%s", taken, err.text);
    good = c && (says ? strstr(taken, says) != NULL : !*taken);
    plait_claim_release(c);
    return good && access(path, F_OK) < 0;
}

static bool gets_in(struct plait_claimer me, const char *says)
{
    return takes(&me, says);
}

static bool is_refused(struct plait_claimer me, const char *says)
{
    struct plait_error err;
    char taken[PLAIT_CLAIM_SAID];
    struct plait_claim *c = plait_claim_take(path, "ck", &me, taken, &err);
    bool refused = !c && errno == EBUSY && strstr(err.text, says);

    diag("%s%s", taken, err.text);
    plait_claim_release(c);
    return refused;
}

/* A process that claims the folder and stays until it is killed. */
static pid_t start_other(uint64_t run)
{
    pid_t pid = fork();
    struct plait_claimer me;
    struct plait_error err;
    char taken[PLAIT_CLAIM_SAID];

    if (pid > 0) {
        while (access(path, F_OK) < 0)
            pause_ms(10);
        pause_ms(200);
        return pid;
    }
    me = somebody(run);
    plait_claim_take(path, "ck", &me, taken, &err);
    for (;;)
        pause();
}

static void end_other(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void one_machine(void)
{
    pid_t pid;

    ok(gets_in(somebody(1), NULL), "a free one is claimed and left free");
    pid = start_other(2);
    ok(is_refused(somebody(3), "ck: another run trains there: process "),
       "while a run has it, another one is refused");
    kill(pid, SIGSTOP);
    ok(is_refused(somebody(3), "another run trains there"),
       "also while that one is stopped");
    end_other(pid);
    ok(gets_in(somebody(3), "has ended without a word"),
       "one that was killed loses it, which is said");
}

/* The rank that takes over in an elastic run is another process of the same
 * run. */
static void same_run(void)
{
    struct plait_claimer me = somebody(9);
    pid_t pid = start_other(9);
    struct plait_error err;
    char taken[PLAIT_CLAIM_SAID];
    struct plait_claim *c = plait_claim_take(path, "ck", &me, taken, &err);

    ok(c && !*taken, "another process of the same run gets in without a word");
    end_other(pid);
    pause_ms(1500);
    ok(is_refused(somebody(10), "another run trains there"),
       "and keeps it when the first one is killed");
    unlink(path);
    pause_ms(1500);
    ok(access(path, F_OK) == 0 &&
           is_refused(somebody(10), "another run trains there"),
       "also when somebody removes the file");
    plait_claim_release(c);
    ok(access(path, F_OK) < 0, "and leaves it free");
}

static int64_t count_beats(void)
{
    struct plait_claim_record now = {.beat = -1};

    plait_claim_record_read(path, &now);
    return now.beat;
}

/* The process runs its program again, which begins to write at once. */
static void next_life(void)
{
    struct plait_claimer me = somebody(12);
    struct plait_error err;
    char taken[PLAIT_CLAIM_SAID];
    struct plait_claim *c = plait_claim_take(path, "ck", &me, taken, &err);
    int64_t before;
    int fd = dup(plait_claim_hold(c)); /* as the exec leaves it */

    pause_ms(1500);
    before = count_beats();
    ok(before == 1, "nothing is written while it is held");
    plait_claim_unhold(c);
    plait_claim_drop(c);
    before = count_beats();
    c = plait_claim_go_on(fd, &me);
    ok(c && count_beats() > before, "the next life writes at once");
    before = count_beats();
    pause_ms(1500);
    ok(count_beats() > before &&
           is_refused(somebody(13), "another run trains there"),
       "and goes on");
    plait_claim_drop(c);
    ok(access(path, F_OK) == 0, "its claim leaves the file");
    unlink(path);
}

static void other_machine(void)
{
    struct plait_claimer me = somebody(11);
    pid_t pid;

    write_other("", 0, 3);
    ok(gets_in(me, "process 12 on node7"),
       "a record of another machine that stays as it is is taken over");
    write_other("", 0, 3);
    pid = fork();
    if (pid == 0) {
        pause_ms(700);
        write_other("", 0, 4);
        _exit(0);
    }
    ok(is_refused(me, "process 12 on node7"),
       "one that is written again is not");
    waitpid(pid, NULL, 0);
    me.patience_s = 1000;
    snprintf(me.job, sizeof(me.job), "77.0");
    me.restarts = 2;
    write_other("77.0", 1, 3);
    ok(gets_in(me, "job 77.0"),
       "a job that Slurm has started again does not wait for itself");
    close(creat(path, 0666));
    me.patience_s = 1.5;
    ok(gets_in(me, NULL), "an empty file is taken over");
}

/* What somebody else has put there in place of a lock file is left as it is. */
static void planted(void)
{
    struct plait_claimer me = somebody(21);
    struct plait_error err;
    struct stat st;
    char other[sizeof(path)], taken[PLAIT_CLAIM_SAID];

    snprintf(other, sizeof(other), "%s/other", dir);
    close(creat(other, 0666));
    ok(symlink(other, path) == 0 &&
           !plait_claim_take(path, "ck", &me, taken, &err) && !*err.text &&
           stat(other, &st) == 0 && st.st_size == 0,
       "a link to another file is not followed");
    unlink(path);
    ok(link(other, path) == 0 &&
           !plait_claim_take(path, "ck", &me, taken, &err) && !*err.text &&
           stat(other, &st) == 0 && st.st_size == 0,
       "nor is a second name of another file taken");
    unlink(path);
    ok(mkfifo(path, 0666) == 0 &&
           !plait_claim_take(path, "ck", &me, taken, &err) && !*err.text,
       "a pipe does not hold the run");
    unlink(path);
    unlink(other);
}

/* A process that has the file locked, as one of another machine does whose
 * locks reach this one. It writes its record again after write_ms, -1: never,
 * and ends after end_ms. */
static pid_t lock_other(int write_ms, int end_ms)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int locked[2];
    char byte = 0;
    pid_t pid;
    int fd;

    write_other("77.0", 0, 3);
    if (pipe(locked) < 0)
        return -1;
    pid = fork();
    if (pid > 0) {
        close(locked[1]);
        if (read(locked[0], &byte, 1) != 1)
            diag("the other process has no lock");
        close(locked[0]);
        return pid;
    }
    fd = open(path, O_RDWR);
    if (fcntl(fd, F_OFD_SETLK, &whole) == 0 && write(locked[1], "x", 1) != 1)
        _exit(1);
    if (write_ms >= 0) {
        pause_ms(write_ms);
        write_other("77.0", 0, 4);
        end_ms -= write_ms;
    }
    pause_ms(end_ms);
    _exit(0);
}

static void other_lock(void)
{
    struct plait_claimer me = somebody(31);
    double begin;
    pid_t pid;

    me.patience_s = 0.5;
    me.denied_s = 5;
    pid = lock_other(1500, 60000);
    ok(is_refused(me, "process 12 on node7"),
       "another machine's run that has the lock may be slow to write");
    ok(strstr(waited, "ck: process 12 on node7, job 77.0") &&
           strstr(waited, "trained there; waiting up to 5 s"),
       "the wait is announced");
    end_other(pid);
    unlink(path);
    me.denied_s = 60;
    pid = lock_other(-1, 700);
    begin = plait_clock_now();
    ok(gets_in(me, "process 12 on node7") && plait_clock_now() - begin < 30,
       "when the lock becomes free that run is dead");
    waitpid(pid, NULL, 0);
}

static void waits_once(void)
{
    struct plait_claimer me = somebody(33);
    double begin;
    pid_t pid;

    write_other("", 0, 3);
    waits = 0;
    ok(takes(&me, "ended without a word") && waits == 1,
       "a run is seen to be dead");
    me.patience_s = 60;
    write_other("", 0, 3);
    begin = plait_clock_now();
    ok(takes(&me, "ended without a word") && waits == 1 &&
           plait_clock_now() - begin < 30,
       "and not waited for again where it has left another file");
    me = somebody(34);
    me.patience_s = 60;
    write_other("", 0, 3);
    pid = fork();
    if (pid == 0) {
        pause_ms(700);
        unlink(path);
        _exit(0);
    }
    begin = plait_clock_now();
    ok(gets_in(me, NULL) && plait_clock_now() - begin < 30,
       "a run that ends in order meanwhile leaves it free at once");
    waitpid(pid, NULL, 0);
}

/* A process that is there but has no lock: it is between two beats. */
static void without_lock(void)
{
    struct plait_claimer me = somebody(41), other = me;
    pid_t pid;

    write_as(other, 3);
    ok(is_refused(me, "process "), "a live process without the lock has it");
    other.started++;
    write_as(other, 3);
    ok(gets_in(me, "process "), "a later process of its number is not it");
    pid = fork();
    if (pid == 0) {
        plait_claim_self(&other);
        write_as(other, 3);
        _exit(0);
    }
    pause_ms(300);
    ok(gets_in(me, "process "), "nor one that has ended and is not waited for");
    waitpid(pid, NULL, 0);
}

/* In place of the user of a file that this process cannot write: root gives up
 * the right to write all files. */
static void be_user(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data) < 0)
        return;
    data[0].effective &= ~(1U << CAP_DAC_OVERRIDE);
    syscall(SYS_capset, &head, data);
}

/* Tries to claim a file that cannot be written; another process writes its
 * record again where `beats`. Whether that is refused, or said to be
 * impossible. */
static bool reads_only(struct plait_claimer r, bool beats, bool refused)
{
    struct plait_claimer me = somebody(51);
    int status = 1;
    pid_t pid;

    unlink(path);
    write_as(r, 3);
    chmod(path, 0444);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        struct plait_error err;
        char said[PLAIT_CLAIM_SAID];
        struct plait_claim *c;

        be_user();
        c = plait_claim_take(path, "ck", &me, said, &err);
        _exit(c ? 1 : refused ? !*err.text : !strstr(said, "another user's"));
    }
    pause_ms(700);
    if (beats) {
        chmod(path, 0644);
        write_as(r, 4);
    }
    waitpid(pid, &status, 0);
    unlink(path);
    return status == 0;
}

static void other_user(void)
{
    struct plait_claimer r = somebody(0);

    ok(reads_only(r, false, true),
       "a live run of another user, whose file cannot be written, has it");
    r.pid = 1 << 30;
    ok(reads_only(r, false, false), "a dead one's file is left, with a line");
    snprintf(r.pids, sizeof(r.pids), "pid:[1]");
    ok(reads_only(r, true, true),
       "a process of another container is not seen: its record tells");
    r = somebody(0);
    r.pid = 1 << 30;
    r.user++;
    ok(reads_only(r, true, true), "so it is with other users' processes");
}

static void other_content(void)
{
    struct plait_claimer me = somebody(61);
    char said[PLAIT_CLAIM_SAID], what[301];
    struct plait_error err;
    struct plait_claim *c;
    struct stat st;
    FILE *out;

    c = plait_claim_take(path, "ck", &me, said, &err);
    ok(c && truncate(path, 0) == 0, "a lock file is emptied");
    pause_ms(2500);
    ok(stat(path, &st) == 0 && st.st_size > 0 &&
           is_refused(somebody(62), "process "),
       "and written again");
    plait_claim_release(c);
    ok(symlink("notes", path) == 0 &&
           !plait_claim_take(path, "ck", &me, said, &err) &&
           strstr(said, "is a link"),
       "that a link is not followed is said");
    unlink(path);
    out = fopen(path, "w");
    if (!out || fputs("notes\n", out) < 0 || fclose(out) != 0)
        diag("%s: %s", path, strerror(errno));
    ok(!plait_claim_take(path, "ck", &me, said, &err) && !*err.text &&
           strstr(said, "no lock file of plait-train's") &&
           stat(path, &st) == 0 && st.st_size == 6,
       "a file that is none is left as it is");
    unlink(path);
    memset(what, 'x', 300);
    what[300] = '\0';
    write_other("", 0, 3);
    c = plait_claim_take(path, what, &me, said, &err);
    ok(c && strstr(said, what), "a long name is shown as a whole");
    plait_claim_release(c);
}

/* Four processes at once, again and again: never two of them get in. Who is in
 * stays until all have tried. */
static void races(void)
{
    int tried[2], stay[2], rounds = 0;
    char byte;

    for (int round = 0; round < 20; round++) {
        int n = 0;

        if (pipe(tried) < 0 || pipe(stay) < 0)
            break;
        for (int i = 0; i < 4; i++) {
            if (fork() == 0) {
                struct plait_claimer me = somebody(100 + (uint64_t)i);
                struct plait_error err;
                char said[PLAIT_CLAIM_SAID];

                close(stay[1]);
                byte =
                    plait_claim_take(path, "ck", &me, said, &err) ? 'x' : '-';
                _exit(write(tried[1], &byte, 1) != 1 ||
                      read(stay[0], &byte, 1) != 0);
            }
        }
        close(tried[1]);
        close(stay[0]);
        for (int i = 0; i < 4 && read(tried[0], &byte, 1) == 1; i++)
            n += byte == 'x';
        close(stay[1]);
        while (wait(NULL) > 0)
            ;
        close(tried[0]);
        rounds += n == 1;
        unlink(path);
    }
    ok(rounds == 20, "of four at once one gets in: %d of 20 times", rounds);
}

int main(void)
{
    if (!mkdtemp(temp_path(dir, "claim")))
        return 99;
    snprintf(path, sizeof(path), "%s/.running", dir);
    one_machine();
    same_run();
    next_life();
    other_machine();
    planted();
    other_lock();
    waits_once();
    without_lock();
    other_user();
    other_content();
    races();
    rmdir(dir);
    return done_testing();
}
