/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"
#include "topology/start/meeting.h"
#include "topology/start/port.h"
#include "topology/start/preflight.h"
#include "topology/start/scontrol.h"

/* How --preflight judges the tasks' measurements, and how tasks report them. */

enum { NODES = 4, RANKS = 8 };

/* Reports of a ring over nodes of two ranks, with some noise. */
static void fill(struct plait_preflight_report *reports)
{
    memset(reports, 0, RANKS * sizeof(*reports));
    for (int i = 0; i < RANKS; i++) {
        struct plait_preflight_report *r = &reports[i];

        snprintf(r->node, sizeof(r->node), "n%d", i / 2);
        r->node_rank = i / 2;
        r->product = 2e9 * (1 + 0.2 * (i % 3));
        r->memory = 4e9 * (1 - 0.1 * (i % 4));
        r->others = i == 1 ? 0.5 : 0;
        r->nedges = 2;
        r->edge[0] = (struct plait_preflight_edge){(i + 2) % RANKS, 1e8 + i};
        r->edge[1] = (struct plait_preflight_edge){(i + 6) % RANKS, 6e7 + i};
    }
}

static const struct plait_preflight_bound none;

static void check_judge(void)
{
    struct plait_preflight_report r[RANKS];
    char text[1024];
    int below[NODES];

    fill(r);
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 0 &&
           !*text,
       "noise is no fault");
    r[5].product = 5e8;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 1 &&
           strcmp(text, "n2: its cores are at 0.25 of the median (0.5 of 2 "
                        "GFLOP/s)") == 0,
       "slow cores of one rank: %s", text);
    fill(r);
    r[6].edge[0].rate = r[6].edge[1].rate = 1e7;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 0,
       "one of two ranks of a node sends slowly, the node does not");
    r[7].edge[0].rate = r[7].edge[1].rate = 2e7;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 1 &&
           strcmp(text, "n3: its link sends at 0.20 of the median (20 of 100 "
                        "MB/s)") == 0,
       "a node that sends slowly, and not those it sends to: %s", text);
    fill(r);
    r[0].edge[0].rate = r[1].edge[0].rate = 1e6;
    r[4].edge[1].rate = r[5].edge[1].rate = 1e6;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 1 &&
           strncmp(text, "n1: its link receives at 0.01", 29) == 0,
       "a node that receives slowly: %s", text);
    r[6].others = 1;
    snprintf(r[6].other, sizeof(r[6].other), "fold");
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 2 &&
           strstr(text, " MB/s); n3: other processes want its cores (1.0 "
                        "each; fold)"),
       "two nodes: %s", text);
    plait_preflight_judge(r, RANKS, &none, text, sizeof(text), below);
    ok(!below[0] && below[1] && !below[2] && below[3], "... by their numbers");
    ok(plait_preflight_judge(r, RANKS, &none, text, 100, NULL) == 2 &&
           strncmp(text, "n1: ", 4) == 0 &&
           strcmp(text + strlen(text) - 6, "); ...") == 0,
       "without room for both, the text says so: %s", text);
    plait_preflight_judge(r, RANKS, &none, text, 20, NULL);
    ok(strlen(text) < 20, "a short buffer is kept");
    fill(r);
    r[0].nedges = 0;
    ok(plait_preflight_judge(r, 1, &none, text, sizeof(text), NULL) == 0,
       "a rank alone is its own median");
}

/* Two foreign processes on the two cores of n1: in the first round both use one
 * core, in the second the other. */
static void check_calmest(void)
{
    struct plait_preflight_report r[RANKS];
    struct plait_preflight_calm calm[NODES];
    char text[1024];

    for (int i = 0; i < NODES; i++)
        calm[i].least = INFINITY;
    for (int round = 0; round < 2; round++) {
        fill(r);
        r[2 + round].others = 2;
        snprintf(r[2 + round].other, sizeof(r[0].other), "fold");
        r[6].others = round ? 0 : 2; /* another one, which ends */
        plait_preflight_keep_calmest(r, RANKS, calm);
    }
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 1 &&
           strcmp(text,
                  "n1: other processes want its cores (2.0 each; fold)") == 0,
       "others who move between the cores of a node: %s", text);
    fill(r);
    plait_preflight_keep_calmest(r, RANKS, calm);
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text), NULL) == 0,
       "... until they have gone");
}

/* All links are equally slow compared with the plan. */
static void check_plan(void)
{
    static const char text[] = "gpu_type: cpu\n"
                               "gpu_types: {cpu: {nic_gbps: 1, "
                               "oversubscription: 2}}\n"
                               "preflight: {link: 0.25}\n";
    struct plait_preflight_report r[RANKS];
    struct plait_preflight_bound bound;
    struct plait_error err;
    struct plait_site *site =
        plait_site_parse("s", text, sizeof(text) - 1, &err);
    char said[1024];

    bound = plait_preflight_bound(site);
    ok(bound.link == 5e8 && bound.least == 0.25, "what the site plans");
    fill(r);
    ok(plait_preflight_judge(r, RANKS, &bound, said, sizeof(said), NULL) ==
               NODES &&
           strncmp(said,
                   "n0: its link sends at 0.20 of the plan (100 of 500 MB/s), "
                   "its link receives at 0.20 of the plan",
                   95) == 0 &&
           strstr(said, "; n3: its link sends at 0.20 of the plan"),
       "links that are slow alike: %s", said);
    bound.least = 0.19;
    ok(plait_preflight_judge(r, RANKS, &bound, said, sizeof(said), NULL) == 0,
       "... are not below a lower bound");
    r[6].edge[0].rate = r[6].edge[1].rate = 1e7;
    r[7].edge[0].rate = r[7].edge[1].rate = 2e7;
    ok(plait_preflight_judge(r, RANKS, &bound, said, sizeof(said), NULL) == 2 &&
           strstr(said, "n0: its link receives at 0.12 of the plan") &&
           strstr(said, "; n3: its link sends at 0.20 of the median"),
       "the median is looked at first: %s", said);
    plait_site_destroy(site);
    bound = plait_preflight_bound(NULL);
    ok(bound.least == 0, "no site, no bound");
}

static void say(void *arg, const char *text)
{
    (void)arg;
    printf("# %s\n", text);
    fflush(stdout);
}

static int fly(int rank, int port, const char *token)
{
    struct plait_launch launch = {.rank = rank, .world_size = NODES};
    struct plait_preflight p = {
        .launch = &launch, .node = "here", .token = token, .say = say};

    plait_layout_init(&launch.layout);
    launch.layout.size[PLAIT_DP] = NODES;
    launch.node_rank = rank;
    launch.nnodes = NODES;
    launch.master_port = port;
    snprintf(launch.master_addr, sizeof(launch.master_addr), "127.0.0.1");
    return plait_preflight_run(&p);
}

/* Four ranks that believe to be four nodes. On a busy machine they may report
 * that other processes want their cores: either way all agree. */
static void check_run(void)
{
    int port = 61003 + (int)getpid() % 1000, hold, status, go = 0, ends = 0;
    pid_t pids[NODES];

    hold = plait_master_port_take(&port);
    fflush(stdout);
    for (int i = 0; i < NODES; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(100 + fly(i, port, "0123456789abcdef0123456789abcdef"));
    }
    for (int i = 0; i < NODES; i++) {
        waitpid(pids[i], &status, 0);
        go += WIFEXITED(status) && WEXITSTATUS(status) == 99;
        ends += WIFEXITED(status) &&
                WEXITSTATUS(status) == 100 + (i ? 0 : PLAIT_PREFLIGHT_EXIT);
    }
    ok(go == NODES || ends == NODES, "four ranks agree: %d go, %d end", go,
       ends);
    close(hold);
}

static void check_link(void)
{
    struct plait_error err;
    /* A listener that expects such a measurement. */
    struct plait_meeting *meeting = plait_meeting_create(1, "x", NULL, &err);
    double rate = 0;

    ok(plait_preflight_measure_link("127.0.0.1", plait_meeting_port(meeting),
                                    "y", &rate) < 0 &&
           rate == 0,
       "who does not answer has no rate");
    plait_meeting_destroy(meeting);
}

/* A connection that ends before it has shown the token is dropped. */
static void check_guest(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd, pid;
    socklen_t size = sizeof(at);
    struct timeval most = {.tv_sec = 30};
    char byte;

    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 9) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        perror("a listener");
    fflush(stdout);
    pid = plait_preflight_serve("token", listener);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    ok(connect(fd, (struct sockaddr *)&at, size) == 0 &&
           shutdown(fd, SHUT_WR) == 0 && recv(fd, &byte, 1, 0) == 0,
       "a guest that ends without the token is dropped");
    close(fd);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- who may join a meeting ---- */

static int check_said(void *arg, int index, const char *text)
{
    (void)arg;
    return index == 1 && strcmp(text, "a member") == 0;
}

/* Joins a meeting in a child process, which ends with 0 if the answer is
 * "well". */
static pid_t come(int port, int index, const char *text)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct plait_meeting_place place = {
            .host = "127.0.0.1", .token = "known", .port = port};
        char *answer = malloc(PLAIT_MEETING_ANSWER);
        struct plait_error err;

        for (int fd = 3; fd < 64; fd++) /* do not keep the listener open */
            close(fd);
        _exit(!answer ||
              plait_meeting_join(&place, index, text, 60, answer, &err) < 0 ||
              strcmp(answer, "well") != 0);
    }
    return pid;
}

/* On one machine, where a name serves as well as a port. Connections that send
 * nothing are dropped, the oldest first. */
static void check_here(void)
{
    struct plait_meeting_place place = {.token = "known", .patience = 60};
    struct plait_meeting *meeting;
    struct plait_error err;
    static char said[PLAIT_MEETING_ANSWER];
    int status = 1, held[300];
    pid_t pid;

    snprintf(place.here, sizeof(place.here), "plait-test-%d", (int)getpid());
    meeting = plait_meeting_create_here(1, "known", place.here, &err);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        struct sockaddr_un at;
        socklen_t size = plait_meeting_address(place.here, &at);

        for (int i = 0; i < 300; i++) {
            held[i] = socket(AF_UNIX, SOCK_STREAM, 0);
            if (connect(held[i], (struct sockaddr *)&at, size) < 0)
                _exit(2);
        }
        _exit(plait_meeting_join(&place, 0, "", 60, said, &err) < 0 ||
              strcmp(said, "well") != 0 || recv(held[0], said, 1, 0) != 0);
    }
    ok(meeting && plait_meeting_wait(meeting, 60) == 1,
       "a member comes behind 300 silent guests");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... hears the answer, and the oldest guest has gone");
    plait_meeting_destroy(meeting);
    place.patience = 0;
    ok(plait_meeting_join(&place, 0, "", 1, said, &err) < 0,
       "nobody is there: %s", err.text);
}

static void check_strangers(void)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(2, "known", NULL, &err);
    int port = plait_meeting_port(meeting), status[2];
    pid_t pid[2];

    plait_meeting_check(meeting, check_said, NULL);
    fflush(stdout);
    pid[0] = come(port, 0, "a member");
    ok(plait_meeting_wait(meeting, 1) == 0 && !plait_meeting_said(meeting, 0),
       "who does not pass the check is no member");
    waitpid(pid[0], &status[0], 0);
    ok(status[0] != 0, "... and hears nothing");
    pid[1] = come(port, 1, "a member");
    ok(plait_meeting_wait(meeting, 5) == 0 && plait_meeting_said(meeting, 1),
       "who does, is");
    plait_meeting_close(meeting);
    waitpid(come(port, 1, "a member"), &status[0], 0);
    ok(status[0] != 0, "after the close nobody can come");
    plait_meeting_answer(meeting, "well");
    plait_meeting_part(meeting, 60);
    waitpid(pid[1], &status[1], 0);
    ok(status[1] == 0, "the member hears the answer");
    plait_meeting_destroy(meeting);
}

/* A member gives up a host that sends nothing, but waits for one that gives
 * signs of life. */
static void check_quiet(void)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(2, "known", NULL, &err);
    struct plait_meeting_place place = {
        .host = "127.0.0.1", .token = "known", .quiet = 3};
    static char said[PLAIT_MEETING_ANSWER];
    int status = 1, count = 9;
    pid_t pid;

    place.port = plait_meeting_port(meeting);
    ok(plait_meeting_join(&place, 0, "", 60, said, &err) < 0 && errno == ETIME,
       "no sign of life: %s", err.text);
    ok(plait_meeting_keep(meeting, 1) == 0 &&
           plait_meeting_wait(meeting, 1) == 0 &&
           plait_meeting_left(meeting, &count) == 0 && count == 1,
       "the host knows which member has left");
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(plait_meeting_join(&place, 1, "", 60, said, &err) < 0 ||
              strcmp(said, "well") != 0);
    ok(plait_meeting_wait(meeting, 60) == 1, "a member comes");
    sleep(6);
    ok(plait_meeting_left(meeting, &count) == 0 && count == 1,
       "... and stays while there are signs");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... which are no answer");
    plait_meeting_destroy(meeting);
}

static void check_munge(void)
{
    static const struct {
        const char *text, *socket;
        int rc;
    } cases[] = {
        {"AuthInfo = socket=/run/m,cred_expire=20\nAuthType  = auth/munge\n",
         "/run/m", 1},
        {"AuthInfo = cred_expire=20,socket=/m\nAuthType=auth/munge", "/m", 1},
        {"A = socket=/m\nAuthInfo = (null)\nAuthType = auth/munge\n", "", 1},
        {"AuthInfo = use_client_ids\nAuthType = auth/munge\nX = socket=/m", "",
         1},
        {"AuthAltTypes = auth/munge\nAuthType = auth/slurm\n", "auth/slurm", 0},
        {"AuthInfo = socket=/a/longer/path/than/that\nAuthType = auth/munge",
         NULL, -1},
        {"ClusterName = here\n", NULL, -1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char socket[16] = "";
        struct plait_error err;
        int rc = plait_scontrol_parse_munge(cases[i].text, socket,
                                            sizeof(socket), &err);

        ok(rc == cases[i].rc &&
               (rc < 0 || strcmp(socket, cases[i].socket) == 0),
           "Slurm's authentication, case %zu: %d %s", i, rc, socket);
    }
}

int main(void)
{
    check_strangers();
    check_here();
    check_quiet();
    check_munge();
    check_judge();
    check_calmest();
    check_plan();
    check_run();
    check_link();
    check_guest();
    return done_testing();
}
