/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* on_exit, RTLD_DEFAULT */
#include "spank_plugin/agree.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "spank_plugin/slurm_api.h"
#include "topology/base/secret.h"
#include "topology/base/thread.h"
#include "topology/layout/launch.h"
#include "topology/start/meeting.h"
#include "topology/start/meeting_line.h"

/* srun's side. A thread of srun listens for the nodes and ends with one answer
 * to all of them:
 *   - "go PORT", when every node has said "ok" or "note" (which is also shown
 *     to the user). PORT is the free one that RANK 0's node has taken.
 *   - "stop", when a node has said "no", has given srun up, or has been silent
 *     for too long. Then one line on srun's stderr names the node and the
 *     reason, and the number of other nodes that say the like, and srun says
 *     nothing more: what Slurm would print of the failed tasks hides the
 *     reason.
 * A node without the plugin never reports. It is found out by Slurm's own news
 * that all tasks have been started, as nodes with the plugin start none before
 * they have the answer. Its tasks run already, without a plan, so the step is
 * killed and srun's status is not 0.
 *
 * The thread shares with srun only `answer`, which it sets, and `ends`, which
 * is set when srun exits; finish() waits for the thread then, so that the
 * status of srun follows from the answer. */

/* GIVE_UP: seconds without news after which srun gives the step up, as Slurm
 * itself does with a launch. LATE: after which a node that has started its
 * tasks and not reported lacks the plugin. TICK: how often srun looks. */
enum { GIVE_UP = 600, LATE = 5, TICK = 1 };
/* As many names are in the line that refuses a step. */
enum { NAMES_MOST = 10 };

/* What srun's answer was. UNPLANNED: it has refused a step some of whose tasks
 * have started all the same. */
enum { OPEN, WENT, REFUSED, UNPLANNED };

struct plait_agreement {
    struct plait_meeting *meeting; /* NULL: srun itself refuses the step */
    slurm_step_id_t id;
    pthread_t thread;
    pid_t pid; /* srun's */
    atomic_int answer;
    atomic_int ends; /* 1: srun is about to exit */
    int nnodes;
    char *nodes[];
};

/* The one that srun's end is watched for. */
static struct plait_agreement *watched;

void plait_agreement_be_silent(void)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    dup2(fd, STDERR_FILENO);
    close(fd);
}

/* It has neither reported nor given srun up. */
static bool is_silent(const struct plait_agreement *a, int node)
{
    return !plait_meeting_said(a->meeting, node) &&
           !plait_meeting_gave_up(a->meeting, node);
}

/* The lowest node whose message begins with `kind` (NULL: that is silent), or
 * -1. *count: how many such nodes there are. */
static int find_said(const struct plait_agreement *a, const char *kind,
                     int *count)
{
    int lowest = -1;

    *count = 0;
    for (int i = a->nnodes - 1; i >= 0; i--) {
        const char *said = plait_meeting_said(a->meeting, i);

        if (kind ? said && strncmp(said, kind, strlen(kind)) == 0
                 : is_silent(a, i)) {
            lowest = i;
            ++*count;
        }
    }
    return lowest;
}

static void tell_user(int is_error, const char *node, const char *text,
                      int others)
{
    char more[48] = "";

    if (others)
        snprintf(more, sizeof(more), " (on %d other node%s too)", others,
                 others == 1 ? "" : "s");
    if (is_error)
        slurm_error("plait: %s: %s%s", node, text, more);
    else
        slurm_info("plait: %s: %s%s", node, text, more);
    if (is_error)
        plait_agreement_be_silent();
}

static void refuse(struct plait_agreement *a, const char *node,
                   const char *text, int others)
{
    tell_user(1, node, text, others);
    atomic_store(&a->answer, REFUSED);
    plait_meeting_answer(a->meeting, "stop");
}

static void let_go(struct plait_agreement *a)
{
    int count, note = find_said(a, "note ", &count), port = 0, text = 0;
    char answer[32];

    if (note >= 0) {
        sscanf(plait_meeting_said(a->meeting, note), "note %*d %n", &text);
        tell_user(0, a->nodes[note],
                  plait_meeting_said(a->meeting, note) + text, count - 1);
    }
    for (int i = 0; i < a->nnodes && !port; i++)
        sscanf(plait_meeting_said(a->meeting, i), "%*s %d", &port);
    snprintf(answer, sizeof(answer), "go %d", port);
    atomic_store(&a->answer, WENT);
    plait_meeting_answer(a->meeting, answer);
}

/* Have all nodes started the step's tasks? srun says so to debuggers. A node
 * with the plugin reports before it starts its tasks. */
static bool all_started(void)
{
    const volatile int *state = dlsym(RTLD_DEFAULT, "MPIR_debug_state");

    return state && *state;
}

/* The silent nodes have started their tasks without a plan, or
 * are about to. */
static void refuse_silent(struct plait_agreement *a)
{
    char names[NAMES_MOST * 64] = "";
    size_t used = 0;
    int n = 0;

    for (int i = 0; i < a->nnodes; i++)
        if (is_silent(a, i) && n++ < NAMES_MOST)
            used += (size_t)snprintf(names + used, sizeof(names) - used,
                                     "%s%.60s", used ? ", " : "", a->nodes[i]);
    refuse(
        a, names,
        "started tasks without a plan: the plait plugin is missing there, or "
        "cannot reach srun; run plait doctor there",
        n > NAMES_MOST ? n - NAMES_MOST : 0);
    atomic_store(&a->answer, UNPLANNED);
    plait_slurm_kill_step(&a->id);
}

/* 1: a node has given srun up, and the user has been told so. */
static int refuse_left(struct plait_agreement *a)
{
    char text[128];
    int count, node = plait_meeting_left(a->meeting, &count);

    if (node < 0)
        return 0;
    snprintf(
        text, sizeof(text),
        "no longer waits: srun has been silent for %d seconds, or the node's "
        "step daemon has ended",
        PLAIT_AGREE_QUIET);
    refuse(a, a->nodes[node], text, count - 1);
    return 1;
}

/* 1: the nodes may start their tasks; 0: the user has been told why not. */
static bool conclude(struct plait_agreement *a, int late)
{
    int count, node = find_said(a, "no ", &count);

    if (node >= 0) {
        refuse(a, a->nodes[node],
               plait_meeting_said(a->meeting, node) + strlen("no 0 "),
               count - 1);
        return false;
    }
    node = find_said(a, NULL, &count);
    if (node >= 0 && late) {
        refuse_silent(a);
        return false;
    }
    if (refuse_left(a))
        return false;
    if (node >= 0)
        refuse(
            a, a->nodes[node],
            "has not reported within ten minutes that it can start its tasks",
            count - 1);
    else
        let_go(a);
    return node < 0;
}

/* Wait until all nodes have reported, or until it is clear that the step cannot
 * start. 1: that it is; -1: srun ends, or needs no answer any more. *late:
 * nodes that have started their tasks are silent. */
static int wait_for_nodes(struct plait_agreement *a, int *late)
{
    int quiet = 0, silent = 0, before = -1, left, missing, count, rc;

    while ((rc = plait_meeting_wait(a->meeting, TICK)) == 0) {
        find_said(a, NULL, &missing);
        quiet = missing == before ? quiet + TICK : 0;
        silent = missing == before && all_started() ? silent + TICK : 0;
        before = missing;
        left = plait_meeting_left(a->meeting, &count) >= 0;
        /* A silent node's task may have failed, and ended the waiting ones. */
        *late = missing && all_started() &&
                (silent >= LATE || left || atomic_load(&a->ends));
        if (find_said(a, "no ", &count) >= 0 || quiet >= GIVE_UP || *late ||
            left)
            return 1;
        if (atomic_load(&a->ends)) {
            errno = ECANCELED;
            return -1;
        }
    }
    return rc;
}

/* The thread. */
static void *host(void *arg)
{
    struct plait_agreement *a = arg;
    int late = 0, rc = wait_for_nodes(a, &late);
    int old = rc < 0 && errno == EPROTO ? plait_meeting_old(a->meeting) : -1;

    if (old >= 0)
        refuse(a, a->nodes[old],
               "its plait plugin is older than that of srun's node; install "
               "one version on both",
               0);
    else if (rc < 0)
        refuse_left(a);
    if (old < 0 && (rc < 0 || conclude(a, late))) {
        plait_meeting_cancel(a->meeting); /* no more signs of life */
        return NULL;
    }
    /* Answer the nodes that report late, too: they would wait for srun to end,
     * and srun for them. */
    for (rc = 0; rc == 0 && !atomic_load(&a->ends);
         rc = plait_meeting_wait(a->meeting, TICK))
        plait_meeting_answer(a->meeting, "stop");
    if (rc > 0)
        plait_meeting_answer(a->meeting, "stop");
    return NULL;
}

/* The thread of a step that srun refuses: nodes with the plugin end it. */
static void *end_others(void *arg)
{
    struct plait_agreement *a = arg;
    struct timespec tick = {.tv_nsec = 100000000};
    int left = LATE * 10;

    while (left > 0 && !atomic_load(&a->ends)) {
        left -= all_started();
        nanosleep(&tick, NULL);
    }
    if (left == 0)
        plait_slurm_kill_step(&a->id);
    return NULL;
}

/* srun exits with its tasks' status, also where they have run without a plan
 * and ended before that was known: then it is not 0. Where srun has refused the
 * step it is 1: Slurm may have ended a task before that could. (glibc's exit()
 * may be called again here: what is left to do is done, and the new status
 * counts.) */
static void finish(int status, void *arg)
{
    struct plait_agreement *a = watched;
    int answer;

    (void)arg;
    if (!a || a->pid != getpid())
        return;
    watched = NULL;
    atomic_store(&a->ends, 1);
    pthread_join(a->thread, NULL);
    a->pid = 0;
    answer = atomic_load(&a->answer);
    if (answer == REFUSED ? status != 1 : answer != WENT && status == 0)
        exit(1);
}

static void free_agreement(struct plait_agreement *a)
{
    if (a->meeting)
        plait_meeting_destroy(a->meeting);
    for (int i = 0; i < a->nnodes; i++)
        free(a->nodes[i]);
    free(a);
}

static int start_thread(struct plait_agreement *a, void *(*run)(void *))
{
    static int registered;

    if (!registered && on_exit(finish, NULL) != 0)
        return -1;
    registered = 1;
    if (plait_thread_create(&a->thread, run, a) < 0)
        return -1;
    a->pid = getpid();
    watched = a;
    return 0;
}

/* Listen, and tell the nodes where. */
static int open_meeting(struct plait_agreement *a, const uint16_t ports[2],
                        struct plait_error *err)
{
    char token[33], text[64];

    if (plait_secret_create(token, sizeof(token)) < 0)
        return plait_errorf(err, "cannot draw random bytes: %s",
                            strerror(errno));
    a->meeting = plait_meeting_create(a->nnodes, token, ports, err);
    if (!a->meeting)
        return -1;
    snprintf(text, sizeof(text), "%d:%s:%d", plait_meeting_port(a->meeting),
             token, PLAIT_MEETING_VERSION);
    if (setenv(PLAIT_ENV_AGREE, text, 1) == 0 &&
        plait_meeting_keep(a->meeting, PLAIT_AGREE_SIGN) == 0 &&
        start_thread(a, host) == 0)
        return 0;
    return plait_errorf(err, "cannot wait for the step's nodes: %s",
                        strerror(errno));
}

struct plait_agreement *plait_agreement_start(const slurm_step_id_t *id,
                                              const char *const *nodes,
                                              int nnodes,
                                              const uint16_t ports[2],
                                              struct plait_error *err)
{
    struct plait_agreement *a =
        calloc(1, sizeof(*a) + (size_t)nnodes * sizeof(a->nodes[0]));

    if (!a) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    a->id = *id;
    a->nnodes = nnodes;
    for (int i = 0; i < nnodes; i++)
        if (!(a->nodes[i] = strdup(nodes[i]))) {
            plait_errorf(err, "out of memory");
            goto error;
        }
    if (open_meeting(a, ports, err) == 0)
        return a;
error:
    free_agreement(a);
    return NULL;
}

struct plait_agreement *plait_agreement_refuse(const slurm_step_id_t *id)
{
    struct plait_agreement *a = calloc(1, sizeof(*a));

    if (!a)
        return NULL;
    a->id = *id;
    a->answer = REFUSED;
    if (start_thread(a, end_others) == 0)
        return a;
    free(a);
    return NULL;
}

void plait_agreement_end(struct plait_agreement *agreement)
{
    if (!agreement)
        return;
    if (watched == agreement)
        watched = NULL;
    atomic_store(&agreement->ends, 1);
    if (agreement->meeting)
        plait_meeting_cancel(agreement->meeting);
    if (agreement->pid)
        pthread_join(agreement->thread, NULL);
    free_agreement(agreement);
}
