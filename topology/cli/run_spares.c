/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/base/files.h"
#include "topology/cli/commands.h"
#include "topology/cli/run.h"
#include "topology/start/meeting.h"
#include "topology/start/preflight.h"
#include "topology/start/request.h"

/* --spares in Slurm: srun has started tasks on all nodes. They are timed in a
 * separate plan; then the first task chooses the nodes to leave out, as the
 * plugin does, and all tasks join a plan for the remaining nodes, or end. With
 * --elastic nothing is timed, and the tasks of the last nodes wait. */

/* ---- the plan for the timing ---- */

/* Check the flags for the nodes without the spare ones. */
static int check_request(const struct run *run, int spares, int per_node,
                         struct plait_error *err)
{
    struct plait_job_request request;
    struct plait_layout layout;
    int rc = plait_job_request_open(&request, &run->options, run->site, err);

    if (rc == 0)
        rc = plait_job_request_resolve(&request,
                                       (run->place.nnodes - spares) * per_node,
                                       per_node, &layout, err);
    plait_job_request_close(&request);
    return rc;
}

static int check_nodes(const struct run *run, struct plait_error *err)
{
    const struct run_place *place = &run->place;
    int n = place->nnodes, spares = run->options.spares;

    if (spares >= n)
        return plait_errorf(err,
                            "--spares=%d leaves none of %d node%s; ask for %d "
                            "or more",
                            spares, n, n == 1 ? "" : "s", spares + 1);
    for (int i = 1; i < n; i++)
        if (place->tasks[i] != place->tasks[0])
            return plait_errorf(err,
                                "--spares=%d leaves out whole nodes: give "
                                "--nodes and --ntasks-per-node",
                                spares);
    return check_request(run, spares, place->tasks[0], err);
}

/* A pipeline over the nodes, in the order of their tasks: each has a neighbour
 * on two other nodes, so that all of their links are timed, and the first task
 * is RANK 0. */
int run_spares_plan(struct run *run, struct plait_error *err)
{
    const struct run_place *place = &run->place;
    struct plait_plan_request request = {
        .nnodes = place->nnodes,
        .nodes = (const char *const *)place->names,
        .tasks = place->tasks,
        .placement = PLAIT_PLACE_LINEAR,
    };

    if (check_nodes(run, err) < 0)
        return -1;
    plait_layout_init(&request.layout);
    request.layout.size[PLAIT_DP] = place->tasks[0];
    request.layout.size[PLAIT_PP] = place->nnodes;
    run->plan = plait_plan_create(&request, err);
    if (!run->plan)
        return -1;
    return run_plan_order(place, run->plan) < 0
               ? plait_errorf(err, "out of memory")
               : 0;
}

/* ---- the first task, once the nodes are timed ---- */

/* Mark the nodes below a bound, then the last ones. Returns how many are below
 * one. */
static int mark_nodes(const struct run *run, const int *below, int *out)
{
    int n = run->place.nnodes, bad = 0, all;

    for (int id = 0; id < n; id++) {
        out[id] = below[run->plan->node_rank[id]];
        bad += out[id];
    }
    all = bad;
    for (int id = n - 1; id >= 0 && all < run->spares; id--)
        if (!out[id]) {
            out[id] = 1;
            all++;
        }
    return bad;
}

int run_spares_keep(struct run *run, struct plait_error *err)
{
    size_t n = (size_t)run->place.nnodes;
    int *out;

    if (!run->seated || run->place.nnodes <= run->seated)
        return 0;
    if (check_nodes(run, err) < 0)
        return -1;
    out = calloc(n, sizeof(*out));
    if (!out)
        return plait_errorf(err, "out of memory");
    for (size_t id = (size_t)run->seated; id < n; id++)
        out[id] = 1;
    run_place_leave_out(&run->place, out);
    free(out);
    return 0;
}

static int plan_rest(struct run *run, const int *out, struct plait_error *err)
{
    run_place_leave_out(&run->place, out);
    run->spares = 0;
    return run_plan(run, err);
}

static int choose(void *arg, const char *text, const int *below, char *heard,
                  size_t size)
{
    struct run *run = arg;
    int n = run->place.nnodes, spares = run->spares, rc = -1, bad;
    int *out = calloc((size_t)n, sizeof(*out));
    struct plait_error err;

    if (!out)
        return -1;
    bad = mark_nodes(run, below, out);
    if (bad > spares) {
        plait_cmd_failed("preflight: %.400s; --spares=%d is not enough", text,
                         spares);
        free(out);
        return -1;
    }
    if (bad)
        plait_cmd_failed("preflight: %s; left out", text);
    if (plan_rest(run, out, &err) < 0)
        plait_cmd_failed("%s", err.text);
    else if (run_chosen_print(out, n, run->master, run_find_port(run, out),
                              run->code, heard, size) < 0)
        plait_cmd_failed("the plan is too long for --spares");
    else
        rc = 0;
    free(out);
    return rc;
}

/* ---- all tasks ---- */

/* Run the preflight in a child process, which is bound as the task to be timed;
 * this process is not bound yet. */
static void fly(struct run *run, int fd)
{
    char *heard = calloc(1, PLAIT_MEETING_ANSWER);
    struct plait_preflight how = {.choose = choose, .arg = run, .heard = heard};
    struct plait_error err;
    int status = 1;

    if (!heard)
        _exit(1);
    if (run_sit(run, run->place.local, &err) < 0)
        plait_cmd_failed("%s", err.text);
    else
        status = run_preflight(run, run->place.local, &how);
    if (status < 0)
        _exit(plait_files_write(fd, heard, strlen(heard)) < 0);
    _exit(status);
}

static size_t read_all(int fd, char *text, size_t size)
{
    size_t used = 0;
    ssize_t n;

    do {
        n = read(fd, text + used, size - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    } while (n > 0 || (n < 0 && errno == EINTR));
    text[used] = '\0';
    return used;
}

/* -1, with RANK 0's answer in `heard`; or the exit status of the child. */
static int fly_apart(struct run *run, char *heard, struct plait_error *err)
{
    int fds[2], status = 0;
    pid_t self = getpid(), pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return plait_errorf(err, "--spares: %s", strerror(errno)) - 1;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == self)
            fly(run, fds[1]);
        _exit(1);
    }
    close(fds[1]);
    *heard = '\0';
    if (pid > 0)
        read_all(fds[0], heard, PLAIT_MEETING_ANSWER);
    close(fds[0]);
    if (pid < 0)
        return plait_errorf(err, "--spares: %s", strerror(errno)) - 1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (*heard)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int adopt(struct run *run, const char *heard, struct plait_error *err)
{
    struct run_chosen chosen;

    if (run_chosen_parse(heard, run->place.id, &chosen) < 0)
        return plait_errorf(err, "--spares: RANK 0 has told no plan");
    run->over = chosen.left_out;
    run->spares = 0;
    run->options.preflight = 0;
    if (run->over)
        return 0;
    free(run->code);
    run->code = strdup(chosen.code);
    run->place.id = chosen.id;
    run->port = chosen.port;
    memcpy(run->master, chosen.master, sizeof(run->master));
    return run->code ? run_plan_adopt(run, err)
                     : plait_errorf(err, "out of memory");
}

int run_spares(struct run *run, struct plait_error *err)
{
    char *heard = malloc(PLAIT_MEETING_ANSWER);
    int status = -2, rc = -1;

    if (!heard)
        return plait_errorf(err, "out of memory");
    if (!*run->token)
        plait_errorf(err, "run: --spares goes with tasks that know each other "
                          "by munge");
    else
        status = fly_apart(run, heard, err);
    if (status >= 0) {
        run->over = 1;
        run->status = status;
        rc = 0;
    } else if (status == -1) {
        rc = adopt(run, heard, err);
    }
    free(heard);
    return rc;
}
