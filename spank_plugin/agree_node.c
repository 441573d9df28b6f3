/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pipe2 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spank_plugin/agree.h"
#include "spank_plugin/remote.h"
#include "topology/start/meeting_line.h"

/* A node's side. slurmstepd reports to srun before it starts the tasks
 * (plait_agreement_call) and keeps the connection. Each task then waits for the
 * answer after it was forked (plait_agreement_hear): there a signal, such as
 * that of scancel, ends the wait, which it does not in slurmstepd. The first
 * task of the node reads the answer and passes it to the others through a pipe.
 * If it dies, the pipe closes and they stop. */

/* In slurmstepd no signal reaches a wait, and Slurm drains a node where a
 * cancelled step is still there after UnkillableStepTimeout, 60 seconds by
 * default: srun's kernel accepts a connection at once, and srun that runs
 * greets it at once. CONTAINED_MOST: with contain_spank slurm_spank_user_init()
 * runs in a process whose files the tasks do not inherit, so it has to wait for
 * the answer. */
enum { CALL_MOST = 10, CONTAINED_MOST = 45 };
/* A task waits as long as its job may run: srun's silence ends it, and so does
 * whoever cancels the step. */
enum { HEAR_MOST = 24 * 60 * 60 };

/* What the first task of a node tells the others; less than PIPE_BUF. */
struct word {
    enum plait_agreement_answer verdict;
    int port;
};

/* An address of the environment. Slurm writes numbers; a name, which only a
 * user can have put there, is not looked up: that can take minutes in
 * slurmstepd, where no signal ends it. */
static int get_address(spank_t spank, const char *name,
                       char host[PLAIT_MEETING_HOST])
{
    unsigned char number[16];

    if (plait_remote_get_env(spank, name, host, PLAIT_MEETING_HOST) < 0)
        return -1;
    return inet_pton(AF_INET, host, number) == 1 ||
                   inet_pton(AF_INET6, host, number) == 1
               ? 0
               : -1;
}

/* Where srun listens: at the address from which it launched the step. *version:
 * that of its meetings, PLAIT_MEETING_VERSION here. */
static int find_place(spank_t spank, struct plait_meeting_place *place,
                      int *version)
{
    char text[96];

    memset(place, 0, sizeof(*place));
    *version = 1;
    if (plait_remote_get_env(spank, PLAIT_ENV_AGREE, text, sizeof(text)) < 0 ||
        sscanf(text, "%5d:%64[0-9a-f]:%9d", &place->port, place->token,
               version) < 2)
        return -1;
    place->quiet = PLAIT_AGREE_QUIET;
    if (get_address(spank, "SLURM_LAUNCH_NODE_IPADDR", place->host) == 0)
        return 0;
    return get_address(spank, "SLURM_SRUN_COMM_HOST", place->host);
}

bool plait_agreement_exists(spank_t spank)
{
    struct plait_meeting_place place;
    int version;

    return find_place(spank, &place, &version) == 0;
}

static void close_at(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void plait_agreement_init(struct plait_agreement_call *call)
{
    memset(call, 0, sizeof(*call));
    call->fd = call->ends[0] = call->ends[1] = -1;
    call->pid = getpid();
    call->verdict = PLAIT_ALONE;
}

/* Where no answer came. */
static enum plait_agreement_answer judge_silence(void)
{
    return errno == ECONNRESET || errno == ETIME ? PLAIT_STOP : PLAIT_CUT;
}

/* Hear srun's answer at call->fd. */
static void hear(struct plait_agreement_call *call, int seconds)
{
    char *answer = malloc(PLAIT_MEETING_ANSWER);
    int fd = call->fd;

    call->fd = -1;
    call->verdict = PLAIT_CUT;
    if (!answer) {
        plait_errorf(&call->why, "out of memory");
        close(fd);
    } else if (plait_meeting_hear(&call->place, fd, seconds, answer,
                                  &call->why) < 0)
        call->verdict = judge_silence();
    else
        call->verdict =
            sscanf(answer, "go %5d", &call->port) == 1 ? PLAIT_GO : PLAIT_STOP;
    free(answer);
}

void plait_agreement_call(struct plait_agreement_call *call, spank_t spank,
                          const char *why, const char *note, int port)
{
    char text[PLAIT_MEETING_SAID];
    uint32_t node = 0;
    int version;

    if (find_place(spank, &call->place, &version) < 0)
        return;
    spank_get_item(spank, S_JOB_NODEID, &node);
    if (version < PLAIT_MEETING_VERSION) {
        /* srun prints it, and answers "stop" */
        plait_meeting_refuse_old(&call->place, (int)node,
                                 "no 0 its plait plugin is newer than that of "
                                 "srun's node; install one version on both");
        call->verdict = PLAIT_STOP;
        return;
    }
    if (why)
        snprintf(text, sizeof(text), "no 0 %s", why);
    else
        snprintf(text, sizeof(text), "%s %d %s", note ? "note" : "ok", port,
                 note ? note : "");
    call->port = port;
    call->verdict = PLAIT_WAIT;
    call->fd = plait_meeting_call(&call->place, (int)node, text, CALL_MOST,
                                  &call->why);
    if (call->fd < 0)
        call->verdict = judge_silence();
    else if (getpid() != call->pid)
        hear(call, CONTAINED_MOST);
    else if (pipe2(call->ends, O_CLOEXEC) < 0) {
        plait_errorf(&call->why, "no pipe: %s", strerror(errno));
        call->verdict = PLAIT_CUT;
    }
}

void plait_agreement_close(struct plait_agreement_call *call)
{
    if (!call->pid)
        return; /* never initialized */
    close_at(&call->fd);
    close_at(&call->ends[0]);
    close_at(&call->ends[1]);
}

/* The first task of the node: ask for the others too. */
static void tell_others(struct plait_agreement_call *call, int others)
{
    struct word word = {call->verdict, call->port};

    for (int i = 0; i < others; i++)
        if (write(call->ends[1], &word, sizeof(word)) < 0)
            break;
}

enum plait_agreement_answer
plait_agreement_hear(struct plait_agreement_call *call, int local, int tasks,
                     int *port, struct plait_error *err)
{
    struct word word = {PLAIT_STOP, 0};
    ssize_t n;

    if (call->verdict == PLAIT_WAIT && local == 0) {
        hear(call, HEAR_MOST);
        tell_others(call, tasks - 1);
    } else if (call->verdict == PLAIT_WAIT) {
        /* Ends when the first task has: nobody else keeps these two. */
        close_at(&call->ends[1]);
        close_at(&call->fd);
        do
            n = read(call->ends[0], &word, sizeof(word));
        while (n < 0 && errno == EINTR);
        call->verdict = n == (ssize_t)sizeof(word) ? word.verdict : PLAIT_STOP;
        call->port = word.port;
    }
    close_at(&call->ends[0]);
    close_at(&call->ends[1]);
    if (call->verdict == PLAIT_GO)
        *port = call->port;
    if (call->verdict == PLAIT_CUT)
        *err = call->why;
    return call->verdict;
}
