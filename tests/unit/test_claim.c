/* SPDX-License-Identifier: Apache-2.0 */
/* One run at a time has a folder: runs of one machine, runs of other machines
 * whose locks do not reach this one, and runs that have ended without a
 * word. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/train/claim.h"
#include "tap.h"
#include "temp_path.h"

static char dir[TEMP_PATH], path[TEMP_PATH + 16];

static void pause_ms(int ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

static struct plait_claimer somebody(uint64_t run)
{
    struct plait_claimer me;

    plait_claim_self(&me);
    me.run = run;
    me.patience_s = 1.5;
    me.beat_s = 1;
    return me;
}

/* What a run of another machine has left there. */
static void write_other(const char *job, int restarts, int beat)
{
    FILE *out = fopen(path, "r+");

    if (!out)
        out = fopen(path, "w");
    fprintf(out,
            "{\"host\":\"node7\",\"boot\":\"other\",\"job\":\"%s\","
            "\"restarts\":%d,\"pid\":12,\"started\":5.0,\"since\":1.0,"
            "\"run\":\"00000000000000aa\",\"beat\":%d}\n",
            job, restarts, beat);
    fclose(out);
}

/* Whether a run gets in; `says` must be in what it is told (NULL: nothing is
 * said). It leaves again. */
static bool gets_in(struct plait_claimer me, const char *says)
{
    struct plait_error err;
    char taken[400];
    struct plait_claim *c = plait_claim_take(path, "ck", &me, taken, &err);
    bool good;

    diag("%s%s", taken, err.text);
    good = c && (says ? strstr(taken, says) != NULL : !*taken);
    plait_claim_release(c);
    return good && access(path, F_OK) < 0;
}

static bool is_refused(struct plait_claimer me, const char *says)
{
    struct plait_error err;
    char taken[400];
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
    char taken[400];

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
    char taken[400];
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
    char other[sizeof(path)], taken[400];

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

/* Four processes at once, again and again: never two of them get in. */
static void races(void)
{
    int inside[2], most = 0, rounds = 0;
    char byte;

    for (int round = 0; round < 20; round++) {
        pid_t pids[4];
        int n = 0;

        if (pipe(inside) < 0)
            break;
        for (int i = 0; i < 4; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                struct plait_claimer me = somebody(100 + (uint64_t)i);
                struct plait_error err;
                char taken[400];

                if (plait_claim_take(path, "ck", &me, taken, &err) &&
                    write(inside[1], "x", 1) == 1)
                    pause_ms(300);
                _exit(0);
            }
        }
        close(inside[1]);
        for (int i = 0; i < 4; i++)
            waitpid(pids[i], NULL, 0);
        while (read(inside[0], &byte, 1) == 1)
            n++;
        close(inside[0]);
        most = n > most ? n : most;
        rounds += n == 1;
        unlink(path);
    }
    ok(most == 1 && rounds == 20, "of four at once one gets in: %d of 20 times",
       rounds);
}

int main(void)
{
    if (!mkdtemp(temp_path(dir, "claim")))
        return 99;
    snprintf(path, sizeof(path), "%s/.running", dir);
    one_machine();
    same_run();
    other_machine();
    planted();
    races();
    rmdir(dir);
    return done_testing();
}
