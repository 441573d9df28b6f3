/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/agree.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/secret.h"
#include "topology/base/thread.h"
#include "topology/layout/launch.h"
#include "topology/start/meeting.h"

/* CHECK: seconds without news after which srun checks whether a node lacks the
 * plugin. GIVE_UP: after which it gives the step up, as Slurm itself does with
 * a launch. */
enum { CHECK = 5, GIVE_UP = 600 };
/* The nodes that one check asks at most: each costs an RPC. */
enum { ASKED_MOST = 8 };
/* What a check finds, if it is not a node. */
enum { NONE = -1, NOT_YET = -2 };

struct plait_agreement {
    struct plait_meeting *meeting;
    slurm_step_id_t id;
    pthread_t thread;
    /* A check is a thread of its own: an RPC may take a minute, and a node that
     * reports meanwhile would take srun for stopped. */
    pthread_t asker;
    int asks; /* 1: the thread has been started, and not joined yet */
    int nasked, asked[ASKED_MOST];
    atomic_int stray;      /* its result */
    pthread_mutex_t voice; /* stderr is silenced during an RPC */
    int nnodes;
    char *nodes[];
};

void plait_agreement_be_silent(void)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    dup2(fd, STDERR_FILENO);
    close(fd);
}

/* The lowest node whose message begins with `kind` (NULL: that has sent none),
 * or -1. *count: how many such nodes there are. */
static int find_said(const struct plait_agreement *a, const char *kind,
                     int *count)
{
    int lowest = -1;

    *count = 0;
    for (int i = a->nnodes - 1; i >= 0; i--) {
        const char *said = plait_meeting_said(a->meeting, i);

        if (kind ? said && strncmp(said, kind, strlen(kind)) == 0 : !said) {
            lowest = i;
            ++*count;
        }
    }
    return lowest;
}

static void tell_user(struct plait_agreement *a, int is_error, const char *node,
                      const char *text, int others)
{
    char more[48] = "";

    if (others)
        snprintf(more, sizeof(more), " (on %d other node%s too)", others,
                 others == 1 ? "" : "s");
    pthread_mutex_lock(&a->voice);
    if (is_error)
        slurm_error("plait: %s: %s%s", node, text, more);
    else
        slurm_info("plait: %s: %s%s", node, text, more);
    if (is_error)
        plait_agreement_be_silent();
    pthread_mutex_unlock(&a->voice);
}

static void refuse(struct plait_agreement *a, const char *node,
                   const char *text, int others)
{
    tell_user(a, 1, node, text, others);
    plait_meeting_answer(a->meeting, "stop");
}

static void end_check(struct plait_agreement *a)
{
    if (a->asks)
        pthread_join(a->asker, NULL);
    a->asks = 0;
}

static void let_go(struct plait_agreement *a)
{
    int count, note = find_said(a, "note ", &count), port = 0, text = 0;
    char answer[32];

    end_check(a); /* what the tasks write to stderr must not be lost */
    if (note >= 0) {
        sscanf(plait_meeting_said(a->meeting, note), "note %*d %n", &text);
        tell_user(a, 0, a->nodes[note],
                  plait_meeting_said(a->meeting, note) + text, count - 1);
    }
    for (int i = 0; i < a->nnodes && !port; i++)
        sscanf(plait_meeting_said(a->meeting, i), "%*s %d", &port);
    snprintf(answer, sizeof(answer), "go %d", port);
    plait_meeting_answer(a->meeting, answer);
}

/* List the step's processes on a node. Slurm logs an error where a node has not
 * heard of the step yet; that is normal here, so stderr is silenced
 * meanwhile. */
static int ask_node(slurm_step_id_t step, const char *node,
                    job_step_pids_response_msg_t **message)
{
    int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3), rc;

    if (saved < 0)
        return -1;
    plait_agreement_be_silent();
    rc = slurm_job_step_get_pids(&step, (char *)node, message);
    dup2(saved, STDERR_FILENO);
    close(saved);
    return rc == SLURM_SUCCESS && *message ? 0 : -1;
}

/* Before a step daemon has made the step's container, Slurm lists the processes
 * of container 0: proctrack/linuxproc all processes, proctrack/pgid the
 * kernel's. Process 1 or 2, init or kthreadd, is among them and never a
 * task. */
static int is_of_step(const job_step_pids_t *pids)
{
    for (uint32_t i = 0; i < pids->pid_cnt; i++)
        if (pids->pid[i] <= 2)
            return 0;
    return pids->pid_cnt > 0;
}

/* Does Slurm know processes of the step on that node? */
static int has_tasks(struct plait_agreement *a, const char *node)
{
    job_step_pids_response_msg_t *message = NULL;
    job_step_pids_t *pids;
    int found = 0, rc;
    void *at;

    pthread_mutex_lock(&a->voice);
    rc = ask_node(a->id, node, &message);
    pthread_mutex_unlock(&a->voice);
    if (rc < 0)
        return 0;
    at = message->pid_list ? slurm_list_iterator_create(message->pid_list)
                           : NULL;
    while (at && (pids = slurm_list_next(at)))
        found |= is_of_step(pids);
    if (at)
        slurm_list_iterator_destroy(at);
    slurm_job_step_pids_response_msg_free(message);
    return found;
}

/* The thread of a check: find a node without the plugin, where Slurm has
 * started tasks though it has not reported to srun. (A node that still prepares
 * a container has no process yet.) */
static void *ask(void *arg)
{
    struct plait_agreement *a = arg;
    int found = NONE;

    for (int i = 0; i < a->nasked && found == NONE; i++)
        if (has_tasks(a, a->nodes[a->asked[i]]))
            found = a->asked[i];
    atomic_store(&a->stray, found);
    return NULL;
}

/* Begin a check unless one is under way. What the last one has found: a node,
 * or NONE. */
static int find_stray(struct plait_agreement *a)
{
    int found = atomic_load(&a->stray);

    if (a->asks && found == NOT_YET)
        return NONE;
    end_check(a);
    if (found >= 0 && !plait_meeting_said(a->meeting, found))
        return found;
    a->nasked = 0;
    for (int i = 0; i < a->nnodes && a->nasked < ASKED_MOST; i++)
        if (!plait_meeting_said(a->meeting, i))
            a->asked[a->nasked++] = i;
    atomic_store(&a->stray, NOT_YET);
    a->asks = plait_thread_create(&a->asker, ask, a) == 0;
    return NONE;
}

/* 1: a node has given srun up, and the user has been told so. */
static int refuse_left(struct plait_agreement *a)
{
    char text[128];
    int count, node = plait_meeting_left(a->meeting, &count);

    if (node < 0)
        return 0;
    snprintf(text, sizeof(text),
             "no longer waits: it has heard nothing of srun for %d seconds, or "
             "its step daemon has ended",
             PLAIT_AGREE_QUIET);
    refuse(a, a->nodes[node], text, count - 1);
    return 1;
}

/* 1: the nodes may start their tasks; 0: the user has been told why not. */
static int conclude(struct plait_agreement *a, int stray)
{
    int count, node = find_said(a, "no ", &count);

    if (node >= 0) {
        refuse(a, a->nodes[node],
               plait_meeting_said(a->meeting, node) + strlen("no 0 "),
               count - 1);
        return 0;
    }
    if (refuse_left(a))
        return 0;
    node = find_said(a, NULL, &count);
    if (stray >= 0)
        refuse(a, a->nodes[stray],
               "its tasks started without a plan: it lacks Slurm's plait "
               "plugin (see plait doctor)",
               0);
    else if (node >= 0)
        refuse(a, a->nodes[node],
               "has not said in ten minutes that it can start its tasks",
               count - 1);
    else
        let_go(a);
    return stray < 0 && node < 0;
}

/* The thread: wait until all nodes have reported, or until it is clear that the
 * step cannot start, and answer them. */
static void *host(void *arg)
{
    struct plait_agreement *a = arg;
    int quiet = 0, before = -1, stray = NONE, missing, count, rc;

    while ((rc = plait_meeting_wait(a->meeting, CHECK)) == 0) {
        find_said(a, NULL, &missing);
        quiet = missing == before ? quiet + CHECK : CHECK;
        before = missing;
        if (find_said(a, "no ", &count) >= 0 || quiet >= GIVE_UP ||
            plait_meeting_left(a->meeting, &count) >= 0)
            break;
        stray = find_stray(a);
        if (stray >= 0)
            break;
    }
    if (rc < 0)
        refuse_left(a);
    if (rc < 0 || conclude(a, stray)) {
        plait_meeting_cancel(a->meeting); /* no more signs of life */
        return NULL;
    }
    /* Answer the nodes that report late, too: they would wait for srun to end,
     * and srun for them. */
    while ((rc = plait_meeting_wait(a->meeting, CHECK)) == 0)
        plait_meeting_answer(a->meeting, "stop");
    if (rc > 0)
        plait_meeting_answer(a->meeting, "stop");
    return NULL;
}

static void free_agreement(struct plait_agreement *a)
{
    plait_meeting_destroy(a->meeting);
    pthread_mutex_destroy(&a->voice);
    for (int i = 0; i < a->nnodes; i++)
        free(a->nodes[i]);
    free(a);
}

struct plait_agreement *plait_agreement_start(const slurm_step_id_t *id,
                                              const char *const *nodes,
                                              int nnodes,
                                              const uint16_t ports[2],
                                              struct plait_error *err)
{
    struct plait_agreement *a =
        calloc(1, sizeof(*a) + (size_t)nnodes * sizeof(a->nodes[0]));
    char token[33], text[64];

    if (!a) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    a->id = *id;
    a->stray = NONE;
    pthread_mutex_init(&a->voice, NULL);
    a->nnodes = nnodes;
    for (int i = 0; i < nnodes; i++)
        if (!(a->nodes[i] = strdup(nodes[i]))) {
            plait_errorf(err, "out of memory");
            goto error;
        }
    if (plait_secret_create(token, sizeof(token)) < 0) {
        plait_errorf(err, "cannot draw random bytes: %s", strerror(errno));
        goto error;
    }
    a->meeting = plait_meeting_create(nnodes, token, ports, err);
    if (!a->meeting)
        goto error;
    snprintf(text, sizeof(text), "%d:%s", plait_meeting_port(a->meeting),
             token);
    if (setenv(PLAIT_ENV_AGREE, text, 1) == 0 &&
        plait_meeting_keep(a->meeting, PLAIT_AGREE_SIGN) == 0 &&
        plait_thread_create(&a->thread, host, a) == 0)
        return a;
    plait_errorf(err, "cannot wait for the step's nodes: %s", strerror(errno));
error:
    free_agreement(a);
    return NULL;
}

void plait_agreement_end(struct plait_agreement *agreement)
{
    if (!agreement)
        return;
    plait_meeting_cancel(agreement->meeting);
    pthread_join(agreement->thread, NULL);
    end_check(agreement);
    free_agreement(agreement);
}
