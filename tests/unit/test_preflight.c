/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
    struct plait_preflight_node nodes[RANKS];
    char text[1024];

    fill(r);
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 0 &&
           !*text,
       "noise is no fault");
    r[5].product = 5e8;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 1 &&
           strcmp(text, "n2: its cores are at 0.25 of the median (0.5 of 2 "
                        "GFLOP/s)") == 0,
       "slow cores of one rank: %s", text);
    fill(r);
    r[6].edge[0].rate = r[6].edge[1].rate = 1e7;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 0,
       "one of two ranks of a node sends slowly, the node does not");
    r[7].edge[0].rate = r[7].edge[1].rate = 2e7;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 1 &&
           strcmp(text, "n3: its link sends at 0.20 of the median (20 of 100 "
                        "MB/s)") == 0,
       "a node that sends slowly, and not those it sends to: %s", text);
    fill(r);
    r[0].edge[0].rate = r[1].edge[0].rate = 1e6;
    r[4].edge[1].rate = r[5].edge[1].rate = 1e6;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 1 &&
           strncmp(text, "n1: its link receives at 0.01", 29) == 0,
       "a node that receives slowly: %s", text);
    r[6].others = 1;
    snprintf(r[6].other, sizeof(r[6].other), "fold");
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 2 &&
           strstr(text, " MB/s); n3: other processes want its cores (1.0 "
                        "each; fold)"),
       "two nodes: %s", text);
    ok(plait_preflight_judge_nodes(r, RANKS, &none, nodes) == NODES &&
           !nodes[0].why[0] && nodes[1].slow && !nodes[2].slow && nodes[3].slow,
       "... by their numbers");
    ok(plait_preflight_judge(r, RANKS, &none, text, 100) == 2 &&
           strncmp(text, "n1: ", 4) == 0 &&
           strcmp(text + strlen(text) - 6, "); ...") == 0,
       "without room for both, the text says so: %s", text);
    plait_preflight_judge(r, RANKS, &none, text, 20);
    ok(strlen(text) < 20, "a short buffer is kept");
    fill(r);
    r[0].nedges = 0;
    ok(plait_preflight_judge(r, 1, &none, text, sizeof(text)) == 0,
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
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 1 &&
           strcmp(text,
                  "n1: other processes want its cores (2.0 each; fold)") == 0,
       "others who move between the cores of a node: %s", text);
    fill(r);
    plait_preflight_keep_calmest(r, RANKS, calm);
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 0,
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
    ok(plait_preflight_judge(r, RANKS, &bound, said, sizeof(said)) == NODES &&
           strncmp(said,
                   "n0: its link sends at 0.20 of the plan (100 of 500 MB/s), "
                   "its link receives at 0.20 of the plan",
                   95) == 0 &&
           strstr(said, "; n3: its link sends at 0.20 of the plan"),
       "links that are slow alike: %s", said);
    bound.least = 0.19;
    ok(plait_preflight_judge(r, RANKS, &bound, said, sizeof(said)) == 0,
       "... are not below a lower bound");
    r[6].edge[0].rate = r[6].edge[1].rate = 1e7;
    r[7].edge[0].rate = r[7].edge[1].rate = 2e7;
    ok(plait_preflight_judge(r, RANKS, &bound, said, sizeof(said)) == 2 &&
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
    int port = 25003 + (int)getpid() % 1000, hold, status, go = 0, ends = 0;
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

static int dial(const struct sockaddr_in *at)
{
    struct timeval most = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    if (connect(fd, (const struct sockaddr *)at, sizeof(*at)))
        perror("connect");
    return fd;
}

static int serve(struct sockaddr_in *at)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof(*at);

    *at = (struct sockaddr_in){.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)at, size) || listen(listener, 999) ||
        getsockname(listener, (struct sockaddr *)at, &size))
        perror("a listener");
    fflush(stdout);
    return plait_preflight_serve("token", listener);
}

/* Who guesses learns nothing: each byte of a wrong line is taken, however much
 * of it is right, and the drop comes after its end alone. 500 strangers keep no
 * task out. */
static void check_guest(void)
{
    static const char *const starts[] = {"t", "token", "x", "member 0 "};
    struct sockaddr_in at;
    int pid = serve(&at), fds[500], early = 0, late = 0;
    double rate = 0;
    char byte, line[128];

    for (int i = 0; i < 4; i++) {
        int fd = dial(&at);
        struct pollfd one = {.fd = fd, .events = POLLIN};

        while (recv(fd, &byte, 1, 0) == 1 && byte != '\n')
            ; /* the greeting */
        if (send(fd, starts[i], strlen(starts[i]), MSG_NOSIGNAL) < 0)
            early++;
        early += poll(&one, 1, 200) > 0;
        send(fd, "\n", 1, MSG_NOSIGNAL);
        late += recv(fd, &byte, 1, 0) != 0;
        close(fd);
    }
    ok(!early && !late,
       "wrong lines are dropped after their end: %d earlier, %d not", early,
       late);
    ok(plait_preflight_measure_link("127.0.0.1", ntohs(at.sin_port), "tokem",
                                    &rate) < 0 &&
           rate == 0,
       "who has another token measures nothing");
    for (int i = 0; i < 500; i++)
        fds[i] = dial(&at);
    ok(plait_preflight_measure_link("127.0.0.1", ntohs(at.sin_port), "token",
                                    &rate) == 0 &&
           rate > 0,
       "a task measures behind 500 strangers");
    while (recv(fds[0], line, 1, 0) == 1)
        ; /* the greeting, which is all that it gets */
    ok(recv(fds[0], line, 1, MSG_DONTWAIT) == 0,
       "... of which the oldest went");
    for (int i = 0; i < 500; i++)
        close(fds[i]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- what tasks tell each other ---- */

static int reports(const char *text)
{
    struct plait_preflight_report report;

    return plait_preflight_read_report(text, 4, 1, &report) == 0;
}

static int contacts(const char *text)
{
    struct plait_preflight_contact contact;

    return plait_preflight_read_contact(text, 4, &contact) > 0;
}

static void check_texts(void)
{
    struct plait_preflight_report in = {.node = "n1",
                                        .node_rank = 1,
                                        .product = 2e9,
                                        .memory = 3e9,
                                        .others = 0.5,
                                        .other = "a\033[2Jb",
                                        .nic = 5e10,
                                        .faults = "GPU 1; (broken)",
                                        .nedges = 1,
                                        .edge = {{3, 4e9}}},
                                  out;
    char text[512];

    plait_preflight_print_report(&in, text, sizeof(text));
    ok(plait_preflight_read_report(text, 4, 1, &out) == 0 &&
           out.product == 2e9 && out.nedges == 1 && out.edge[0].to == 3 &&
           strcmp(out.other, "a?[2Jb") == 0,
       "a report comes back, without control characters: %s", out.other);
    ok(strcmp(out.faults, "GPU 1? ?broken?") == 0 && out.nic == 5e10,
       "... and what is wrong with devices: %s", out.faults);
    ok(reports("n1 1 1 1 1 1 x||") && !reports("n1 2 1 1 1 1 x||") &&
           !reports("n1 1 nan 1 1 1 x||") && !reports("n1 1 1 inf 1 1 x||") &&
           !reports("n1 1 1 1 1e999 1 x||") && !reports("n1 1 1 1 1 -1 x||") &&
           !reports("n1 1 -1 1 1 1 x||") && !reports("n1 1 1 1 1 1 x|") &&
           !reports("n1;n2 1 1 1 1 1 x||") &&
           !reports("n1 1 1 1 1 1 x|| 4 1") &&
           !reports("n1 1 1 1 1 1 x|| 3 nan") &&
           !reports("n1 1 1 1 1 1 x|| 3") &&
           !reports("n1 1 1 1 1 1 x|| -1 1") && !reports(""),
       "what no task reports is refused: another's node, no numbers");
    ok(contacts("1,10.0.0.1,61003") && contacts(" 1,fe80::1%eth0,1") &&
           !contacts("4,h,1") && !contacts("-1,h,1") && !contacts("1,h,0") &&
           !contacts("1,h,65536") && !contacts("1,$(id),1") &&
           !contacts("1,h,1x") && !contacts("1,a b,1") && !contacts(""),
       "and contacts that no task has");
}

/* A process that has taken RANK 0's port learns nothing, and makes the
 * preflight fail, in which RANK 0 alone says why. */
static void check_taken_port(void)
{
    struct sockaddr_in at;
    int pid = serve(&at), status[2], out[2];
    static char said[4096];
    pid_t ranks[2];
    size_t used = 0;
    ssize_t n;

    if (pipe(out))
        perror("pipe");
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        ranks[i] = fork();
        if (ranks[i] == 0) {
            dup2(out[1], STDOUT_FILENO);
            _exit(fly(i, ntohs(at.sin_port), "another"));
        }
    }
    close(out[1]);
    while ((n = read(out[0], said + used, sizeof(said) - 1 - used)) > 0)
        used += (size_t)n;
    said[used] = '\0';
    for (int i = 0; i < 2; i++)
        waitpid(ranks[i], &status[i], 0);
    ok(WEXITSTATUS(status[0]) == PLAIT_PREFLIGHT_EXIT &&
           WEXITSTATUS(status[1]) == PLAIT_PREFLIGHT_EXIT && used &&
           strchr(said, '\n') == said + used - 1,
       "where RANK 0's port is taken, it says so in one line");
    close(out[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
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
    check_munge();
    check_judge();
    check_calmest();
    check_plan();
    check_run();
    check_link();
    check_guest();
    check_texts();
    check_taken_port();
    return done_testing();
}
