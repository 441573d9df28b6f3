/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/preflight.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "topology/start/meeting.h"

/* The tasks meet at MASTER_PORT, where each gives the address at which it
 * receives messages, and gets those of the others. Then they measure, and meet
 * again at a port that RANK 0 has named. If some node is below a bound, all
 * measure again, as a busy moment looks like a broken link. */

enum {
    ROUNDS = 3,
    MEET_SECONDS = 60,
    TEXT_MOST = 4096,
    HOST_MOST = PLAIT_PREFLIGHT_HOST,
    CONTACT_MOST = HOST_MOST + 32
};

struct flight {
    const struct plait_preflight *p;
    int rank, world, server; /* process that takes messages, -1: none */
    struct plait_preflight_contact self, *contacts;
    char master[HOST_MOST]; /* the address at which RANK 0 is reached */
    struct plait_preflight_report report;
    struct plait_preflight_report *reports; /* RANK 0: [world] */
    struct plait_preflight_calm *calm;      /* RANK 0: [world] */
    struct plait_preflight_node *nodes;     /* RANK 0: [world] */
    struct plait_health_counts counts;
    int gpu_port; /* where the tasks' plait-probes meet */
    bool looked;
    char answer[PLAIT_MEETING_ANSWER];
};

/* ---- this task's own address ---- */

/* The address of this machine from which RANK 0 is reached, in f->self, and
 * that of RANK 0. */
static int find_host(struct flight *f, sa_family_t *family)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *at = NULL;
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    int fd, rc = -1;

    if (getaddrinfo(f->p->launch->master_addr, "9", &hints, &at))
        return -1;
    fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &size) == 0)
        rc = getnameinfo((struct sockaddr *)&own, size, f->self.host, HOST_MOST,
                         NULL, 0, NI_NUMERICHOST) |
             getnameinfo(at->ai_addr, at->ai_addrlen, f->master, HOST_MOST,
                         NULL, 0, NI_NUMERICHOST);
    *family = (sa_family_t)at->ai_family;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(at);
    return rc ? -1 : 0;
}

static int open_server(struct flight *f)
{
    struct sockaddr_in6 any = {0}; /* room for either address family */
    socklen_t size = sizeof(any);
    sa_family_t family;
    int fd;

    if (find_host(f, &family) < 0)
        return -1;
    any.sin6_family = family;
    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&any,
             family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(any)) ||
        listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&any, &size)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    f->self.port = ntohs(any.sin6_port); /* same offset in both families */
    f->self.node_rank = f->p->launch->node_rank;
    f->self.gpu = plait_preflight_has_probe(f->p);
    f->server = plait_preflight_serve(f->p->token, fd);
    return f->server < 0 ? -1 : 0;
}

/* On RANK 0's node its host name may stand for a loopback address ("127.0.1.1"
 * in /etc/hosts), which means this node here. */
static void correct_contacts(struct flight *f)
{
    for (int i = 0; i < f->world; i++) {
        struct plait_preflight_contact *c = &f->contacts[i];

        if (c->node_rank != f->self.node_rank &&
            (strncmp(c->host, "127.", 4) == 0 || strcmp(c->host, "::1") == 0))
            memcpy(c->host, f->master, sizeof(c->host));
    }
}

/* ---- what is measured ---- */

static void add_edge(struct flight *f, int to)
{
    struct plait_preflight_report *r = &f->report;

    if (f->contacts[to].node_rank == f->self.node_rank)
        return;
    for (int i = 0; i < r->nedges; i++)
        if (r->edge[i].to == to)
            return;
    r->edge[r->nedges++] = (struct plait_preflight_edge){to, 0};
}

/* The neighbours in the planned rings that are on other nodes, in both
 * directions: that tells a node that sends slowly from one that receives
 * slowly. */
static void list_edges(struct flight *f)
{
    static const int axes[] = {PLAIT_TP, PLAIT_CP, PLAIT_DP, PLAIT_PP};
    const struct plait_layout *layout = &f->p->launch->layout;

    for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++) {
        int n = layout->size[axes[i]];

        for (int step = 1; step<n; step += n> 2 ? n - 2 : 1) {
            struct plait_coord c;

            plait_layout_coord(layout, f->rank, &c);
            c.at[axes[i]] = (c.at[axes[i]] + step) % n;
            add_edge(f, plait_layout_rank(layout, &c));
        }
    }
}

static void measure(struct flight *f)
{
    bool first = !f->looked;

    f->looked = true;
    if (first) {
        plait_preflight_look(f->p->launch, &f->counts, &f->report);
        plait_preflight_probe_gpu(f->p, f->gpu_port, f->contacts, &f->report);
    }
    plait_preflight_measure_node(&f->report);
    for (int i = 0; i < f->report.nedges; i++) {
        struct plait_preflight_edge *edge = &f->report.edge[i];
        const struct plait_preflight_contact *to = &f->contacts[edge->to];

        plait_preflight_measure_link(to->host, to->port, f->p->token,
                                     &edge->rate);
    }
    if (first)
        plait_preflight_look_again(f->p->launch, &f->counts, &f->report);
}

/* ---- the meetings ---- */

static void say(const struct flight *f, const char *text)
{
    char line[TEXT_MOST + 64];

    snprintf(line, sizeof(line), "preflight: %s", text);
    f->p->say(f->p->arg, line);
}

/* What is no verdict: --node-spares reads the line of that one. */
static void warn(const struct flight *f, const struct plait_error *err)
{
    char line[sizeof(err->text) + 32];

    snprintf(line, sizeof(line), PLAIT_PREFLIGHT_WARNING "%s", err->text);
    f->p->say(f->p->arg, line);
}

/* The text after its first word. That word names the meeting in which something
 * is said, so that it does not count in another one. NULL: the first word is
 * not `word`. */
static const char *after(const char *text, const char *word)
{
    size_t size = strlen(word);

    return strncmp(text, word, size) == 0 && text[size] == ' ' ? text + size + 1
                                                               : NULL;
}

/* In the host: wait for all others. -1, after printing which one has not
 * come. */
static int wait_all(struct flight *f, struct plait_meeting *meeting)
{
    char text[128];
    int missing = 0;

    if (f->world == 1 || plait_meeting_wait(meeting, MEET_SECONDS) == 1)
        return 0;
    while (missing < f->world - 1 && plait_meeting_said(meeting, missing))
        missing++;
    snprintf(text, sizeof(text), "rank %d has sent nothing for %d seconds",
             missing + 1, MEET_SECONDS);
    say(f, text);
    return -1;
}

/* By keeping the port, another user's process can make the preflight fail, but
 * do nothing else: it cannot prove to be the host. */
static struct plait_meeting *open_meeting(struct flight *f, int port)
{
    uint16_t ports[2] = {(uint16_t)port, (uint16_t)port};
    int members = f->world > 1 ? f->world - 1 : 1;
    struct plait_meeting *meeting;
    struct plait_error err;

    meeting =
        plait_meeting_create(members, f->p->token, port ? ports : NULL, &err);
    if (!meeting)
        say(f, err.text);
    return meeting;
}

static int read_contacts(struct flight *f, const char *text)
{
    int n;

    for (int rank = 0; rank < f->world; rank++, text += n) {
        n = plait_preflight_read_contact(text, f->p->launch->nnodes,
                                         &f->contacts[rank]);
        if (n < 0)
            return -1;
    }
    return *text ? -1 : 0;
}

/* Write where each task receives messages, behind the ports of the next meeting
 * and of the tasks' plait-probes. */
static int list_contacts(struct flight *f, struct plait_meeting *meeting,
                         int port)
{
    size_t used = (size_t)snprintf(f->answer, sizeof(f->answer),
                                   "contacts2 %d,%d", port, f->gpu_port);
    size_t list = used;

    for (int i = 0; i < f->world; i++) {
        char own[CONTACT_MOST];
        const char *text = own;
        size_t room = sizeof(f->answer) - used;
        int n;

        plait_preflight_print_contact(&f->self, own, sizeof(own));
        if (i &&
            !(text = after(plait_meeting_said(meeting, i - 1), "contact2"))) {
            say(f, "the nodes have different versions of Plait; install one "
                   "on all");
            return -1;
        }
        n = snprintf(f->answer + used, room, " %.100s", text);
        if ((size_t)n >= room - 1) {
            say(f, "too many tasks for a preflight; leave it out");
            return -1;
        }
        used += (size_t)n;
    }
    if (read_contacts(f, f->answer + list) == 0)
        return 0;
    say(f, "a task gave no address for messages");
    return -1;
}

static int gather_reports(struct flight *f, struct plait_meeting *meeting)
{
    f->reports[0] = f->report;
    for (int i = 1; i < f->world; i++) {
        const char *text = after(plait_meeting_said(meeting, i - 1), "report");

        if (!text || plait_preflight_read_report(text, f->world,
                                                 f->contacts[i].node_rank,
                                                 &f->reports[i]) < 0) {
            say(f, "a task sent a report that cannot be true");
            return -1;
        }
    }
    plait_preflight_keep_calmest(f->reports, f->world, f->calm);
    return 0;
}

/* What the tasks are to receive is written behind "go ". */
static int choose(struct flight *f, const char *text, int nodes)
{
    int *below = calloc((size_t)nodes, sizeof(*below)), rc;

    if (!below)
        return -1;
    for (int i = 0; i < nodes; i++)
        below[i] = f->nodes[i].why[0] != '\0';
    memcpy(f->answer, "go ", 4);
    rc = f->p->choose(f->p->arg, text, below, f->answer + 3,
                      sizeof(f->answer) - 3);
    free(below);
    if (rc < 0)
        return -1;
    if (f->p->heard)
        strcpy(f->p->heard, f->answer + 3);
    return 1;
}

/* A fault of a device is not measured again, as it stays. */
static bool may_pass(const struct flight *f, int nodes)
{
    for (int i = 0; i < nodes; i++)
        if (f->nodes[i].slow)
            return true;
    return false;
}

/* RANK 0, after each round: 1 go, 0 again, -1 stop. */
static int conclude(struct flight *f, int round)
{
    int nodes, bad;
    char text[TEXT_MOST];
    struct plait_error err;

    nodes = plait_preflight_judge_nodes(f->reports, f->world, &f->p->bound,
                                        f->nodes);
    bad = plait_preflight_list(f->nodes, nodes, text, sizeof(text));
    strcpy(f->answer, "go");
    if (bad && round < ROUNDS && may_pass(f, nodes))
        return 0;
    if (plait_preflight_hand_on(f->p, f->nodes, nodes, &err) < 0)
        warn(f, &err);
    plait_preflight_list_notes(f->nodes, nodes, err.text, sizeof(err.text));
    if (err.text[0])
        warn(f, &err);
    if (f->p->choose)
        return choose(f, text, nodes);
    if (bad)
        say(f, text);
    return bad ? -1 : 1;
}

static int lead_rounds(struct flight *f, struct plait_meeting *meeting)
{
    int verdict = 0;

    for (int round = 1; verdict == 0 && meeting; round++) {
        struct plait_meeting *next = NULL;
        char answer[32] = "stop";

        measure(f);
        verdict = wait_all(f, meeting) < 0 || gather_reports(f, meeting) < 0
                      ? -1
                      : conclude(f, round);
        if (verdict == 0 && !(next = open_meeting(f, 0)))
            verdict = -1;
        if (verdict == 0)
            snprintf(answer, sizeof(answer), "again %d",
                     plait_meeting_port(next));
        plait_meeting_answer(meeting, verdict > 0 ? f->answer : answer);
        plait_meeting_destroy(meeting);
        meeting = next;
    }
    return verdict > 0 ? 0 : -1;
}

/* A port that is free now, for plait-probe, which takes one of those behind it
 * where it is no longer. 0: there is none. */
static int find_gpu_port(struct flight *f)
{
    struct plait_meeting *meeting = open_meeting(f, 0);
    int port = meeting ? plait_meeting_port(meeting) : 0;

    plait_meeting_destroy(meeting);
    return port;
}

/* The first meeting is closed last: the others have then left it, and its
 * port is free at once. */
static int lead(struct flight *f)
{
    struct plait_meeting *first = open_meeting(f, f->p->launch->master_port),
                         *next = first ? open_meeting(f, 0) : NULL;
    int rc = -1;

    f->gpu_port = next ? find_gpu_port(f) : 0;
    f->reports = calloc((size_t)f->world, sizeof(*f->reports));
    f->calm = calloc((size_t)f->world, sizeof(*f->calm));
    f->nodes = calloc((size_t)f->world, sizeof(*f->nodes));
    for (int i = 0; f->calm && i < f->world; i++)
        f->calm[i].least = INFINITY;
    if (next && f->reports && f->calm && f->nodes && wait_all(f, first) == 0 &&
        list_contacts(f, first, plait_meeting_port(next)) == 0) {
        plait_meeting_answer(first, f->answer);
        list_edges(f);
        rc = lead_rounds(f, next);
    } else {
        plait_meeting_destroy(next);
    }
    plait_meeting_destroy(first);
    free(f->nodes);
    free(f->calm);
    free(f->reports);
    return rc;
}

static int join(struct flight *f, int port, const char *text)
{
    struct plait_meeting_place place = {.port = port, .patience = MEET_SECONDS};
    struct plait_error err;

    snprintf(place.host, sizeof(place.host), "%s", f->p->launch->master_addr);
    snprintf(place.token, sizeof(place.token), "%s", f->p->token);
    if (plait_meeting_join(&place, f->rank - 1, text, 2 * MEET_SECONDS,
                           f->answer, &err) == 0)
        return 0;
    /* If RANK 0 has left, or something else is in its place, it has printed
     * why. That it cannot be reached, one task prints. */
    if (f->rank == 1 && errno != ECONNRESET && errno != EPROTO)
        say(f, err.text);
    return -1;
}

/* 0 go; 1 stop, and RANK 0 has printed why; -1 this task fails. */
static int follow(struct flight *f)
{
    char text[PLAIT_MEETING_SAID];
    int port, at = 0;

    /* Builds that say other things here have words with other numbers. */
    memcpy(text, "contact2 ", 10);
    plait_preflight_print_contact(&f->self, text + 9, sizeof(text) - 9);
    if (join(f, f->p->launch->master_port, text) < 0)
        return -1;
    if (sscanf(f->answer, "contacts2 %9d,%9d%n", &port, &f->gpu_port, &at) !=
            2 ||
        read_contacts(f, f->answer + at) < 0)
        return -1;
    correct_contacts(f);
    list_edges(f);
    for (;;) {
        measure(f);
        memcpy(text, "report ", 8);
        plait_preflight_print_report(&f->report, text + 7, sizeof(text) - 7);
        if (join(f, port, text) < 0)
            return -1;
        if (strncmp(f->answer, "go ", 3) == 0 && f->p->heard)
            strcpy(f->p->heard, f->answer + 3);
        if (strncmp(f->answer, "go", 2) == 0)
            return 0;
        if (sscanf(f->answer, "again %d", &port) != 1)
            return 1;
    }
}

int plait_preflight_run(const struct plait_preflight *preflight)
{
    struct flight *f = calloc(1, sizeof(*f));
    int rc = -1;

    if (!f)
        return PLAIT_PREFLIGHT_EXIT;
    f->p = preflight;
    f->rank = preflight->launch->rank;
    f->world = preflight->launch->world_size;
    f->server = -1;
    f->contacts = calloc((size_t)f->world, sizeof(*f->contacts));
    snprintf(f->report.node, sizeof(f->report.node), "%s", preflight->node);
    f->report.node_rank = preflight->launch->node_rank;
    if (!f->contacts || open_server(f) < 0)
        say(f, "cannot listen for messages");
    else
        rc = f->rank == 0 ? lead(f) : follow(f);
    if (f->rank == 0 && rc < 0)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    if (f->server > 0) {
        kill((pid_t)f->server, SIGKILL);
        waitpid((pid_t)f->server, NULL, 0);
    }
    free(f->contacts);
    free(f);
    return rc == 0 ? -1 : rc > 0 ? 0 : PLAIT_PREFLIGHT_EXIT;
}
