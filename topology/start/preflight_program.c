/* SPDX-License-Identifier: Apache-2.0 */
/* Starts programs from a preflight, each with all that it starts in a process
 * group of its own, so that all of them can be ended where they take too long.
 * Slurm may not find such a group when it ends the step: so one more process
 * stays with them, and ends them once the task is gone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "topology/start/preflight.h"

static void end_group(int signal)
{
    (void)signal;
    kill(0, SIGKILL);
}

/* End as the program has ended. */
static void pass_on(int status)
{
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 127);
}

/* The program has no other file of the task. */
static void set_files(const struct plait_preflight_program *program)
{
    long most = sysconf(_SC_OPEN_MAX);
    int null = open("/dev/null", O_RDWR);

    dup2(program->in >= 0 ? program->in : null, STDIN_FILENO);
    dup2(program->out >= 0 ? program->out : null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    for (int fd = 3; fd < (most > 0 && most < 65536 ? most : 65536); fd++)
        close(fd);
}

static void guard(const struct plait_preflight_program *program, pid_t task)
{
    sigset_t none;
    int status = 0;
    pid_t pid;

    setpgid(0, 0);
    signal(SIGTERM, end_group);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != task)
        _exit(127);
    set_files(program);
    pid = fork();
    if (pid == 0) {
        signal(SIGTERM, SIG_DFL);
        execve(program->path, program->argv, program->env);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0)
        _exit(127);
    pass_on(status);
}

int plait_preflight_start(const struct plait_preflight_program *program)
{
    pid_t task = getpid(), pid = fork();

    if (pid == 0)
        guard(program, task);
    /* Here too: it may be ended before it has run. */
    if (pid > 0)
        setpgid(pid, pid);
    return (int)pid;
}

/* The leader may end before what it has started, which may still hold a GPU. */
void plait_preflight_end(int group)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    pid_t rc = 0;

    kill(-(pid_t)group, SIGKILL);
    for (int i = 0; i < 50; i++) {
        if (rc == 0)
            rc = waitpid((pid_t)group, NULL, WNOHANG);
        if (rc < 0 && errno == EINTR)
            rc = 0;
        if (rc != 0 && kill(-(pid_t)group, 0) < 0)
            break;
        nanosleep(&pause, NULL);
    }
}
