/* SPDX-License-Identifier: Apache-2.0 */
/* plait run without a launcher: starts all tasks of the plan on this machine
 * and waits for them. */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/base/files.h"
#include "topology/cli/commands.h"
#include "topology/cli/run.h"

/* PATIENCE: seconds from SIGTERM to SIGKILL for tasks that outlive one that
 * failed. ONE_SIGNAL: signals within this time count as one, as timeout(1)
 * sends two at once. */
enum { PATIENCE = 10, ONE_SIGNAL = 1, LINE_MOST = 4096 };

/* With --label: one of a task's two outputs. */
struct stream {
    int fd, to; /* fd -1: at its end */
    size_t used;
    char line[LINE_MOST];
};

struct task {
    pid_t pid;    /* also its process group's id; 0: it has ended */
    bool stopped; /* by a signal */
    struct stream streams[2];
};

struct crew {
    struct run *run;
    pid_t self; /* of this process, for its children */
    struct task *tasks;
    int n, left, status;
    int good;           /* some task has ended with 0 */
    int signals;        /* signalfd */
    time_t deadline;    /* 0: no task is being ended */
    time_t asked;       /* when the user asked it to end; 0: not yet */
    bool failed;        /* one of the tasks has */
    bool killed;        /* tasks were killed at the deadline */
    int lost, lost_sig; /* rank that a signal killed first; 0: no signal has */
    int told[2];        /* with --elastic, the pipe of PLAIT_ENV_ENDED */
    struct pollfd *polls;
};

static time_t now(void)
{
    return (time_t)plait_clock_now();
}

/* SIGUSR1 and SIGUSR2 are for the user's program, not for the programs that it
 * starts. */
static void signal_all(const struct crew *crew, int sig)
{
    int own = sig == SIGUSR1 || sig == SIGUSR2;

    for (int i = 0; i < crew->n; i++)
        if (crew->tasks[i].pid)
            kill(own ? crew->tasks[i].pid : -crew->tasks[i].pid, sig);
}

/* One write a line, so that the lines of two tasks do not mix. */
static void print_line(int rank, const char *text, size_t size, int to)
{
    char line[LINE_MOST + 32];
    int n = snprintf(line, sizeof(line), "[%d] %.*s\n", rank, (int)size, text);

    plait_files_write(to, line, (size_t)n);
}

static void read_stream(int rank, struct stream *stream)
{
    ssize_t n =
        read(stream->fd, stream->line + stream->used, LINE_MOST - stream->used);
    char *start = stream->line, *end;

    if (n < 0 && errno == EINTR)
        return;
    stream->used += n > 0 ? (size_t)n : 0;
    while ((end = memchr(start, '\n',
                         stream->used - (size_t)(start - stream->line)))) {
        print_line(rank, start, (size_t)(end - start), stream->to);
        start = end + 1;
    }
    stream->used -= (size_t)(start - stream->line);
    memmove(stream->line, start, stream->used);
    if (stream->used && (n <= 0 || stream->used == LINE_MOST)) {
        print_line(rank, stream->line, stream->used, stream->to);
        stream->used = 0;
    }
    if (n <= 0) {
        close(stream->fd);
        stream->fd = -1;
    }
}

static void become_task(struct crew *crew, int local, int outputs[2][2])
{
    struct plait_error err;
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != crew->self)
        _exit(1);
    if (crew->told[1] >= 0)
        close(crew->told[1]);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (crew->run->label) {
        dup2(outputs[0][1], STDOUT_FILENO);
        dup2(outputs[1][1], STDERR_FILENO);
    }
    run_task(crew->run, local, &err);
    plait_cmd_failed("%s", err.text);
    _exit(1);
}

static int start_task(struct crew *crew, int local)
{
    struct task *task = &crew->tasks[local];
    int outputs[2][2] = {{-1, -1}, {-1, -1}};
    pid_t pid;

    if (crew->run->label &&
        (pipe2(outputs[0], O_CLOEXEC) || pipe2(outputs[1], O_CLOEXEC)))
        return -1;
    pid = fork();
    if (pid == 0)
        become_task(crew, local, outputs);
    for (int i = 0; i < 2; i++) {
        if (outputs[i][1] >= 0)
            close(outputs[i][1]);
        task->streams[i].fd = outputs[i][0];
        task->streams[i].to = i ? STDERR_FILENO : STDOUT_FILENO;
    }
    if (pid < 0)
        return -1;
    setpgid(pid, pid); /* in parent and child: whichever runs first */
    task->pid = pid;
    crew->left++;
    return 0;
}

/* Is this the status to exit with? Ranks that lose a peer can end before the
 * peer is seen to have died: then its status, by a signal that was not sent
 * from here, replaces theirs. */
static bool is_reason(const struct crew *crew, int status)
{
    return crew->status == 0 ||
           (crew->status < 128 && status > 128 && status != 128 + SIGTERM &&
            now() < crew->deadline);
}

static void end_others(struct crew *crew, int status)
{
    if (is_reason(crew, status))
        crew->status = status;
    if (crew->failed)
        return;
    crew->failed = true;
    if (!crew->deadline || crew->deadline > now() + PATIENCE)
        crew->deadline = now() + PATIENCE;
    signal_all(crew, SIGTERM);
}

/* The user asked the command to end: the tasks may still save what they have. A
 * second signal ends them at once. */
static void end_on_request(struct crew *crew)
{
    time_t at = now();

    if (!crew->asked) {
        crew->asked = at;
        if (!crew->deadline)
            crew->deadline = at + crew->run->grace;
    } else if (at > crew->asked + ONE_SIGNAL) {
        crew->deadline = at;
    }
}

/* SIGKILL also ends stopped tasks, which no other signal does. */
static void kill_left(struct crew *crew)
{
    char ranks[60] = "";
    size_t used = 0;

    for (int i = 0; i < crew->n && used < sizeof(ranks) - 20; i++)
        if (crew->tasks[i].pid)
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, "%s%d",
                                     used ? ", " : "",
                                     crew->run->seats.first_rank + i);
    if (crew->left && !crew->killed && crew->asked)
        plait_cmd_failed("run: rank%s %s%s still there %lld s after the first "
                         "signal: killed",
                         crew->left > 1 ? "s" : "", ranks,
                         crew->left > 1 ? " are" : " is",
                         (long long)(now() - crew->asked));
    crew->killed |= crew->left > 0;
    signal_all(crew, SIGKILL);
}

/* With --elastic the other tasks may go on without one that failed, and
 * succeed. */
static void take_status(struct crew *crew, int status)
{
    crew->good |= status == 0;
    if (status && !crew->run->elastic)
        end_others(crew, status);
    else if (crew->run->elastic)
        crew->status = crew->good ? 0 : status;
}

/* Wake ranks that a signal stopped and that the others went on without: they
 * would never end otherwise, and end by themselves once they see that. */
static void wake_left(struct crew *crew)
{
    if (!crew->run->elastic || !crew->good || crew->left == 0 || crew->deadline)
        return;
    for (int i = 0; i < crew->n; i++)
        if (crew->tasks[i].pid && !crew->tasks[i].stopped)
            return;
    signal_all(crew, SIGCONT);
    crew->deadline = now() + PATIENCE;
}

/* Did a signal end this task that was not sent from here? Those of end_others()
 * and kill_left() are, and what the user sent to end all of them. */
static bool is_killed(const struct crew *crew, int status)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    if (!sig || crew->killed || (crew->failed && sig == SIGTERM))
        return false;
    return !crew->asked ||
           (sig != SIGTERM && sig != SIGINT && sig != SIGHUP && sig != SIGQUIT);
}

static void note_end(struct crew *crew, int local, int status)
{
    if (!crew->lost_sig && is_killed(crew, status)) {
        crew->lost = crew->run->seats.first_rank + local;
        crew->lost_sig = WTERMSIG(status);
    }
}

/* A rank that a signal has killed cannot say so, and the others know of its end
 * at most, not of the signal. They may end before it does: a peer's sockets
 * close before its parent can see that it has ended. With --elastic the others
 * may have gone on. */
static void tell_lost(const struct crew *crew)
{
    if (!crew->lost_sig || (crew->run->elastic && crew->good))
        return;
    plait_cmd_failed("run: rank %d was killed by signal %d (%s)", crew->lost,
                     crew->lost_sig, strsignal(crew->lost_sig));
}

/* With --elastic ranks that still meet would wait for the one that has ended;
 * those that have met go on. */
static void tell_ended(struct crew *crew, int local, int status)
{
    char text[80];
    int n = snprintf(text, sizeof(text), "rank %d ended with status %d",
                     crew->run->seats.first_rank + local,
                     WIFEXITED(status) ? WEXITSTATUS(status) : 0);

    if (crew->told[1] < 0)
        return;
    if (WIFEXITED(status)) /* else see tell_lost() */
        plait_files_write(crew->told[1], text, (size_t)n);
    close(crew->told[1]);
    crew->told[1] = -1;
}

static void reap(struct crew *crew)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        bool ended = WIFEXITED(status) || WIFSIGNALED(status);

        for (int i = 0; i < crew->n; i++)
            if (crew->tasks[i].pid == pid && ended) {
                note_end(crew, i, status);
                tell_ended(crew, i, status);
                crew->tasks[i].pid = 0;
                crew->left--;
                if (status)
                    kill(-pid, SIGTERM); /* the processes that it has started */
            } else if (crew->tasks[i].pid == pid) {
                crew->tasks[i].stopped = WIFSTOPPED(status);
            }
        if (ended)
            take_status(crew, WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                                  : WEXITSTATUS(status));
    }
    wake_left(crew);
}

static void read_signal(struct crew *crew)
{
    struct signalfd_siginfo info;

    if (read(crew->signals, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGCHLD) {
        reap(crew);
        return;
    }
    signal_all(crew, (int)info.ssi_signo);
    if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT ||
        info.ssi_signo == SIGHUP || info.ssi_signo == SIGQUIT)
        end_on_request(crew);
}

static int open_streams(const struct crew *crew)
{
    int n = 0;

    for (int i = 0; i < 2 * crew->n; i++)
        n += crew->tasks[i / 2].streams[i % 2].fd >= 0;
    return n;
}

/* Wait until all tasks have ended and all of their output is written. */
static void watch_tasks(struct crew *crew)
{
    while (crew->left || open_streams(crew)) {
        for (int i = 0; i < 2 * crew->n; i++)
            crew->polls[i] = (struct pollfd){
                crew->tasks[i / 2].streams[i % 2].fd, POLLIN, 0};
        crew->polls[2 * crew->n] = (struct pollfd){crew->signals, POLLIN, 0};
        if (poll(crew->polls, (nfds_t)(2 * crew->n + 1),
                 crew->deadline ? 1000 : -1) < 0 &&
            errno != EINTR)
            return;
        for (int i = 0; i < 2 * crew->n; i++)
            if (crew->polls[i].revents)
                read_stream(crew->run->seats.first_rank + i / 2,
                            &crew->tasks[i / 2].streams[i % 2]);
        if (crew->polls[2 * crew->n].revents)
            read_signal(crew);
        if (crew->deadline && now() >= crew->deadline)
            kill_left(crew);
        /* A grandchild may keep a pipe open for ever. */
        if (!crew->left && crew->deadline && now() >= crew->deadline)
            return;
    }
}

static int block_signals(void)
{
    static const int forwarded[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                    SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Whether execvp() would find the program; else, with errno, each task would
 * report it. */
static bool is_program(const char *name)
{
    const char *dir = getenv("PATH");
    char path[PATH_MAX];

    if (strchr(name, '/'))
        return access(name, X_OK) == 0;
    while (dir && *dir) {
        int n = (int)strcspn(dir, ":");

        snprintf(path, sizeof(path), "%.*s%s%s", n, dir, n ? "/" : "./", name);
        if (access(path, X_OK) == 0)
            return true;
        dir += n + (dir[n] == ':');
    }
    errno = ENOENT;
    return !dir;
}

/* A command of plait's, or a configuration, may stand where the program must.
 */
static int refuse_program(const char *word)
{
    const char *why = strerror(errno), *dot = strrchr(word, '.');
    char own[64];

    snprintf(own, sizeof(own), "plait-%.40s", word);
    if (!strchr(word, '/') && is_program(own))
        return plait_cmd_failed("cannot run %s: %s; did you mean %s?", word,
                                why, own);
    if (dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml")))
        return plait_cmd_failed("cannot run %s: it is no program; did you "
                                "mean plait-train %s?",
                                word, word);
    return plait_cmd_failed("cannot run %s: %s", word, why);
}

/* The tasks inherit the end to read. It stays open here: whoever writes to a
 * pipe that nobody reads gets a signal. */
static int open_told(struct crew *crew)
{
    char text[40];
    struct stat made;
    int fd[2];

    if (!crew->run->elastic)
        return 0;
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -1;
    crew->told[1] = fd[1];
    /* Scripts use the numbers below. */
    crew->told[0] = fcntl(fd[0], F_DUPFD, 10);
    close(fd[0]);
    if (crew->told[0] < 0 || fcntl(crew->told[0], F_SETFL, O_NONBLOCK) < 0 ||
        fstat(crew->told[0], &made) < 0)
        return -1;
    snprintf(text, sizeof(text), "%d:%llu", crew->told[0],
             (unsigned long long)made.st_ino);
    return setenv(PLAIT_ENV_ENDED, text, 1);
}

int run_alone(struct run *run)
{
    struct crew crew = {.run = run,
                        .self = getpid(),
                        .told = {-1, -1},
                        .n = run->place.tasks[0] + run->options.spares};
    int rc = PLAIT_EXIT_FAILED;

    if (!is_program(run->command[0]))
        return refuse_program(run->command[0]);
    crew.tasks = calloc((size_t)crew.n, sizeof(*crew.tasks));
    crew.polls = calloc((size_t)(2 * crew.n + 1), sizeof(*crew.polls));
    crew.signals = block_signals();
    if (!crew.tasks || !crew.polls || crew.signals < 0 ||
        open_told(&crew) < 0) {
        plait_cmd_failed("cannot watch over tasks: %s", strerror(errno));
        goto error;
    }
    plait_files_allow(2 * (size_t)crew.n);
    for (int i = 0; i < crew.n; i++)
        crew.tasks[i].streams[0].fd = crew.tasks[i].streams[1].fd = -1;
    fflush(stdout);
    for (int i = 0; i < crew.n && !crew.status; i++)
        if (start_task(&crew, i) < 0) {
            plait_cmd_failed("cannot start task %d: %s", i, strerror(errno));
            end_others(&crew, PLAIT_EXIT_FAILED);
        }
    watch_tasks(&crew);
    tell_lost(&crew);
    rc = crew.status;
error:
    if (crew.signals >= 0)
        close(crew.signals);
    for (int i = 0; i < 2; i++)
        if (crew.told[i] >= 0)
            close(crew.told[i]);
    free(crew.tasks);
    free(crew.polls);
    return rc;
}
