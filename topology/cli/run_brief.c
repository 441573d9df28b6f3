/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "topology/base/files.h"
#include "topology/base/guests.h"
#include "topology/base/secret.h"
#include "topology/cli/credential.h"
#include "topology/cli/run.h"
#include "topology/start/meeting.h"
#include "topology/start/port.h"
#include "topology/start/scontrol.h"

/* How the tasks of a step in Slurm learn its plan and its secret. Only one of
 * them, task 0 of node 0, asks Slurm's controller. It sends the plan to the
 * first task of each other node at one of the ports of run_list_ports(), or at
 * the user's own MASTER_PORT. Such a task draws a token, and seals it in a
 * credential of munge, which Slurm itself uses: only a process of the same user
 * can read it, and both sides then prove by it who they are. The first task of
 * a node sends the plan to the other tasks there by a socket of this machine,
 * whose peer the system identifies. All tasks must have come before any goes
 * on, so that no program of a task connects to the user's own MASTER_PORT while
 * the tasks still meet there. Else MASTER_PORT is one that RANK 0's node has
 * found free, and comes with the plan. Where there is no munge, the first task
 * of each node asks Slurm. */

/* Time limits in seconds. QUIET: without another task that reports. ANSWER: for
 * the answer to come. PART: for the others to close their connections. */
enum { QUIET = 60, ANSWER = 300, PART = 5 };

struct briefing {
    struct run *run;
    struct credentials *credentials;
    char from[256];    /* where the secret comes from, or why there is none */
    char refused[128]; /* why a request was refused, "": none was */
    char text[RUN_BRIEF_SIZE], sealed[PLAIT_MEETING_ANSWER];
    int port_fd; /* holds the port at which the tasks meet, -1: none */
};

/* ---- the secret ---- */

/* The secret is the user's own, or a new one where it can be passed on
 * safely. */
static int make_secret(struct briefing *b, int shared, struct plait_error *err)
{
    struct run *run = b->run;
    char *secret = run->seats.launch.secret;

    if (shared && (plait_secret_create(secret, PLAIT_SECRET_SIZE) < 0 ||
                   plait_secret_create(run->token, sizeof(run->token)) < 0))
        return plait_errorf(err, "no random numbers: %s", strerror(errno));
    return 0;
}

/* A secret that the user gave to each task of the step is kept. */
static int take_own_secret(struct run *run, struct plait_error *err)
{
    const char *given = getenv(PLAIT_ENV_SECRET);

    if (!given || !*given)
        return 0;
    if (plait_launch_check_secret(given, err) < 0)
        return -1;
    snprintf(run->seats.launch.secret, PLAIT_SECRET_SIZE, "%s", given);
    return 0;
}

static void show_secret(const struct briefing *b)
{
    const char *given = getenv(PLAIT_ENV_SECRET);

    run_secret_show(b->run, given && *given ? "as it was set" : b->from);
}

/* 1: the nodes of the step authenticate each other by munge, whose socket is in
 * `socket`; 0: they do not; -1: error. */
static int find_munge(struct briefing *b, char *socket, size_t size,
                      struct plait_error *err)
{
    int munge;

    snprintf(b->from, sizeof(b->from), "made here");
    if (b->run->place.nnodes == 1)
        return 0;
    snprintf(b->from, sizeof(b->from), "--rendezvous=none");
    if (!b->run->options.rendezvous)
        return 0;
    munge = plait_scontrol_munge(socket, size, err);
    if (munge > 0)
        snprintf(b->from, sizeof(b->from), "handed over by munge");
    else
        snprintf(b->from, sizeof(b->from), "Slurm uses %.40s, not munge",
                 socket);
    return munge;
}

/* ---- the task that asks Slurm ---- */

/* Is it the first task of node index + 1 of this step? */
static int check_request(void *arg, int index, const char *text,
                         char token[PLAIT_MEETING_TOKEN])
{
    struct briefing *b = arg;
    char found[CREDENTIAL_TEXT];
    struct run_request request;
    struct plait_error err;

    /* It may have been read before: by another step at one of the ports. Who
     * only repeats it does not know the token. */
    if (credentials_open(b->credentials, text, 1, found, sizeof(found), &err) ==
        0) {
        if (run_request_parse(found, b->run->place.jobid, index + 1,
                              &request) == 0) {
            memcpy(token, request.token, sizeof(request.token));
            b->run->ports[index + 1] = request.port;
            return 1;
        }
        plait_errorf(&err, "a task of another step");
    }
    snprintf(b->refused, sizeof(b->refused), "%.120s", err.text);
    return 0;
}

static int print_plan(struct briefing *b, struct plait_error *err)
{
    const struct run *run = b->run;
    struct run_brief brief = {.code = run->code,
                              .port = run_find_port(run, NULL)};

    snprintf(brief.secret, sizeof(brief.secret), "%s",
             run->seats.launch.secret);
    snprintf(brief.token, sizeof(brief.token), "%s", run->token);
    snprintf(brief.master, sizeof(brief.master), "%s", run->master);
    return run_brief_print(&brief, run->place.jobid, b->text) < 0
               ? plait_errorf(err, "the plan is longer than %d characters",
                              RUN_BRIEF_SIZE)
               : 0;
}

/* `shared`: all other tasks of the step will get this plan. */
static int make_plan(struct briefing *b, int shared, struct plait_error *err)
{
    if (run_plan(b->run, err) < 0 || make_secret(b, shared, err) < 0)
        return -1;
    show_secret(b);
    return 0;
}

static int say_missing(const struct briefing *b,
                       const struct plait_meeting *meeting, const char *what,
                       struct plait_error *err)
{
    int index = 1;

    while (plait_meeting_said(meeting, index - 1))
        index++;
    b->run->only_here = 1;
    return plait_errorf(err,
                        "run: %s %d of %s has not asked for the plan of this "
                        "step in %d s%s%s",
                        what, index,
                        *what == 'n' ? b->run->place.jobid : b->run->place.host,
                        QUIET, *b->refused ? "; refused: " : "", b->refused);
}

/* Find a free port on this node, in case that RANK 0 is here: unless the user
 * gave one, or the tasks need none. */
static void take_port(struct run *run)
{
    int port = plait_master_port_start(run->place.job, run->place.step);

    if (!run->options.rendezvous ||
        plait_master_read_port(getenv(PLAIT_ENV_MASTER_PORT)))
        return;
    run->port_fd = plait_master_port_take(&port);
    if (run->port_fd >= 0)
        run->own_port = port;
}

/* What take_port() has found on each node will be in run->ports. */
static int list_ports(struct run *run, struct plait_error *err)
{
    run->ports = calloc((size_t)run->place.nnodes, sizeof(*run->ports));
    if (!run->ports)
        return plait_errorf(err, "out of memory");
    take_port(run);
    run->ports[run->place.id] = run->own_port;
    return 0;
}

/* The user's own port, or the first that no other step has reserved and nobody
 * listens at. Where all are reserved, which costs a process nothing, those
 * count at which nobody listens. */
static struct plait_meeting *listen_at(struct briefing *b, int own,
                                       struct plait_error *err)
{
    const struct run_place *place = &b->run->place;
    int ports[RUN_PORTS], members = place->nnodes - 1;
    struct plait_meeting *meeting = NULL;

    run_list_ports(place->job, place->step, ports);
    for (int i = 0; i < (own ? 1 : RUN_PORTS) && !meeting; i++) {
        int port = own ? own : ports[i];

        b->port_fd = plait_master_port_hold(port);
        if (b->port_fd >= 0)
            meeting =
                plait_meeting_create_at(members, place->jobid, &port, 1, err);
        if (!meeting && b->port_fd >= 0)
            close(b->port_fd);
    }
    if (meeting)
        return meeting;
    b->port_fd = -1;
    if (!own)
        meeting = plait_meeting_create_at(members, place->jobid, ports,
                                          RUN_PORTS, err);
    return meeting;
}

static struct plait_meeting *open_port(struct briefing *b,
                                       struct plait_error *err)
{
    int own = plait_master_read_port(getenv(PLAIT_ENV_MASTER_PORT));
    struct plait_meeting *meeting = listen_at(b, own, err);

    b->run->only_here = !meeting;
    if (meeting)
        plait_meeting_check(meeting, check_request, b);
    else if (own)
        plait_errorf(err,
                     "port %d of %s is in use; set MASTER_PORT to a free one",
                     own, b->run->place.host);
    else
        plait_errorf(err,
                     "all %d ports at which the tasks of this step can meet on "
                     "%s are in use; set MASTER_PORT to a free one",
                     RUN_PORTS, b->run->place.host);
    return meeting;
}

/* Listen before Slurm is asked: the others do not wait for ever. */
static int lead(struct briefing *b, struct plait_error *err)
{
    struct plait_meeting *meeting = NULL;
    struct rlimit files;
    int known = getrlimit(RLIMIT_NOFILE, &files) == 0, rc = -1;

    plait_files_allow((size_t)b->run->place.nnodes + PLAIT_GUESTS_MOST);
    b->port_fd = -1;
    if (list_ports(b->run, err) == 0)
        meeting = open_port(b, err);
    if (meeting)
        rc = make_plan(b, 1, err);
    if (meeting && plait_meeting_wait(meeting, QUIET) != 1 && rc == 0)
        rc = say_missing(b, meeting, "node", err);
    if (meeting)
        plait_meeting_close(meeting);
    if (rc == 0)
        rc = print_plan(b, err);
    if (rc == 0)
        rc = credentials_seal(b->credentials, b->text, b->sealed,
                              sizeof(b->sealed), err);
    if (rc == 0) {
        plait_meeting_answer(meeting, b->sealed);
        plait_meeting_part(meeting, PART);
    }
    plait_meeting_destroy(meeting);
    if (b->port_fd >= 0)
        close(b->port_fd);
    if (known)
        setrlimit(RLIMIT_NOFILE, &files);
    return rc;
}

/* ---- the first tasks of the other nodes ---- */

static bool is_known(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &list);

    if (rc == 0)
        freeaddrinfo(list);
    return rc == 0;
}

/* Connect to node 0 by its name, or where that fails by the address that Slurm
 * has for it. */
static int ask_head(struct briefing *b, const char *token, const char *request,
                    struct plait_error *err)
{
    struct run_place *at = &b->run->place;
    int own = plait_master_read_port(getenv(PLAIT_ENV_MASTER_PORT));
    struct plait_meeting_place place = {.patience = QUIET};
    int ports[RUN_PORTS], rc = -1;

    run_list_ports(at->job, at->step, ports);
    place.port = own ? own : ports[0];
    place.others = ports + 1;
    place.nothers = own ? 0 : RUN_PORTS - 1;
    snprintf(place.token, sizeof(place.token), "%s", token);
    snprintf(place.host, sizeof(place.host), "%s", at->head);
    errno = ENOENT;
    if (is_known(at->head))
        rc = plait_meeting_join(&place, at->id - 1, request, ANSWER, b->sealed,
                                err);
    if (rc == 0 || errno == ECONNRESET)
        return rc;
    plait_scontrol_address(at->head, place.host, sizeof(place.host));
    return plait_meeting_join(&place, at->id - 1, request, ANSWER, b->sealed,
                              err);
}

static int follow(struct briefing *b, struct plait_error *err)
{
    struct run *run = b->run;
    char text[CREDENTIAL_TEXT], sealed[CREDENTIAL_SIZE];
    struct run_request request;
    struct plait_error why;

    run->only_here = 1;
    take_port(run);
    request.port = run->own_port;
    if (plait_secret_create(request.token, sizeof(request.token)) < 0)
        return plait_errorf(err, "no random numbers: %s", strerror(errno));
    run_request_print(&request, run->place.jobid, run->place.id, text,
                      sizeof(text));
    if (credentials_seal(b->credentials, text, sealed, sizeof(sealed), err) < 0)
        return -1;
    if (ask_head(b, request.token, sealed, &why) < 0) {
        /* Task 0 has printed why it left; that it cannot be reached, one task
         * prints. */
        run->said = errno == ECONNRESET || run->place.id != 1;
    } else if (credentials_open(b->credentials, b->sealed, 1, b->text,
                                sizeof(b->text), &why) == 0) {
        run->only_here = 0;
        return 0;
    }
    return plait_errorf(err, "run: no plan from node %.100s: %s",
                        run->place.head, why.text);
}

/* ---- the tasks of a node ---- */

/* The socket's name has the user, step and node. Where another user has taken
 * the name, the meeting takes a longer one: see meeting_listen.c. */
static void name_node(const struct run_place *place, char *name, size_t size)
{
    snprintf(name, size, "plait-run-%u-%.31s-%d", (unsigned)geteuid(),
             place->jobid, place->id);
}

static int ask_here(struct briefing *b, struct plait_error *err)
{
    const struct run_place *at = &b->run->place;
    struct plait_meeting_place place = {.patience = QUIET};
    struct plait_error why;
    int rc;

    name_node(at, place.here, sizeof(place.here));
    snprintf(place.token, sizeof(place.token), "%s", at->jobid);
    rc = plait_meeting_join(&place, at->local - 1, "", QUIET + ANSWER + QUIET,
                            b->sealed, &why);
    if (rc < 0) {
        b->run->only_here = 1;
        b->run->said = errno == ECONNRESET || at->local != 1;
        return plait_errorf(err, "run: no plan on node %.100s: %s", at->host,
                            why.text);
    }
    snprintf(b->text, sizeof(b->text), "%.*s", RUN_BRIEF_SIZE - 1, b->sealed);
    return 0;
}

static int find_plan(struct briefing *b, struct plait_error *err)
{
    char socket[256] = "";
    int munge = find_munge(b, socket, sizeof(socket), err);

    if (munge < 0)
        return -1;
    if (!munge) {
        int shared = b->run->place.nnodes == 1;

        return run_secret_lacks(b->run, b->from, err) < 0 ||
                       (shared && list_ports(b->run, err) < 0) ||
                       make_plan(b, shared, err) < 0
                   ? -1
                   : print_plan(b, err);
    }
    b->credentials = credentials_create(socket, err);
    if (!b->credentials)
        return -1;
    return b->run->place.id == 0 ? lead(b, err) : follow(b, err);
}

/* Wait for all tasks even without a plan: one that comes later would wait for
 * it. */
static int tell_here(struct briefing *b, struct plait_meeting *here, int rc,
                     struct plait_error *err)
{
    int all = plait_meeting_wait(here, QUIET) == 1;

    if (rc == 0 && !all) {
        *b->refused = '\0';
        rc = say_missing(b, here, "task", err);
    }
    if (rc == 0)
        plait_meeting_answer(here, b->text);
    return rc;
}

static int brief_node(struct briefing *b, struct plait_error *err)
{
    const struct run_place *place = &b->run->place;
    struct plait_meeting *here = NULL;
    char name[PLAIT_MEETING_HERE];
    int rc = 0;

    name_node(place, name, sizeof(name));
    if (place->here > 1) {
        here =
            plait_meeting_create_here(place->here - 1, place->jobid, name, err);
        b->run->only_here = !here;
        rc = here ? 0 : -1;
    }
    if (rc == 0)
        rc = find_plan(b, err);
    if (here)
        rc = tell_here(b, here, rc, err);
    plait_meeting_destroy(here);
    return rc;
}

/* ---- all ---- */

static int adopt(struct briefing *b, struct plait_error *err)
{
    struct run *run = b->run;
    struct run_brief brief;
    char *code;

    if (run_brief_parse(b->text, run->place.jobid, &brief) < 0 ||
        !(code = strdup(brief.code)))
        return plait_errorf(err, "run: the plan that was handed over is of "
                                 "another step");
    free(run->code);
    run->code = code;
    run->port = brief.port;
    memcpy(run->master, brief.master, sizeof(run->master));
    memcpy(run->token, brief.token, sizeof(run->token));
    memcpy(run->seats.launch.secret, brief.secret, sizeof(brief.secret));
    return take_own_secret(run, err) < 0 ? -1 : run_plan_adopt(run, err);
}

int run_brief(struct run *run, struct plait_error *err)
{
    struct briefing *b = calloc(1, sizeof(*b));
    int rc;

    if (!b)
        return plait_errorf(err, "out of memory");
    b->run = run;
    rc = run->place.local ? ask_here(b, err) : brief_node(b, err);
    if (rc == 0)
        rc = adopt(b, err);
    credentials_destroy(b->credentials);
    free(b);
    return rc;
}
