/* SPDX-License-Identifier: Apache-2.0 */
/* A rendezvous among strangers: processes that connect to its ports, hold them
 * or pass on what they hear. */
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/bootstrap/greeting.h"
#include "socket_launch.h"
#include "tap.h"
#include "topology/base/clock.h"
#include "topology/base/hash.h"

/* -- connections ---------------------------------------------------------- */

static int connect_to(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    while (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        usleep(1000);
    return fd;
}

/* n connections that send nothing, nonsense, or an incomplete message. */
static void pester(int port, int n)
{
    enum { SIZE = 4000 };
    char noise[SIZE + 8];

    memset(noise, 'x', sizeof(noise));
    memcpy(noise, "PLAITRV4", 8);
    for (int i = 0; i < n; i++) {
        int fd = connect_to(port);

        if (i % 3 > 0)
            send(fd, noise + i % 2 * 8, i % 3 == 1 ? SIZE : 20, MSG_NOSIGNAL);
    }
    pause(); /* keep all of them open */
}

/* All ranks call it at this place. */
static bool sums_to(struct plait_comm *c, double x, double sum)
{
    return c != NULL && plait_comm_host_all_reduce(c, &x, 1, PLAIT_SUM) == 0 &&
           x == sum;
}

static void test_strangers(void)
{
    struct plait_launch l = launch_at(0, 2, free_port());
    struct plait_error err = {""};
    struct plait_comm *c;
    pid_t stranger, peer;

    fflush(stdout);
    stranger = fork();
    if (stranger == 0) {
        pester(l.master_port, 300);
        _exit(1);
    }
    peer = fork();
    if (peer == 0) {
        usleep(100000);
        l.rank = 1;
        _exit(!sums_to(plait_tcp_create(&l, 60, &err), 1, 2));
    }
    c = plait_tcp_create(&l, 60, &err);
    ok(sums_to(c, 1, 2),
       "ranks meet among strangers that say nothing or nonsense");
    plait_comm_destroy(c);
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    waitpid(peer, NULL, 0);
}

/* What strangers send in turn: nothing, the beginning of a hello, a hello that
 * names a rank and has no seal or a wrong one, nonsense; and, from one that has
 * listened to a rank, a hello of its own again, with a proof of the past. */
struct crowd {
    int port, alive; /* connections that each stranger keeps at a time */
    bool haste;
    struct plait_greeting recorded;
};

static void send_strange(int fd, const struct crowd *c, int kind)
{
    struct plait_greeting g = c->recorded;
    size_t hello = sizeof(g.hello), whole = hello + sizeof(g.seal);

    if (kind == 1)
        send(fd, &g.hello, 20, MSG_NOSIGNAL);
    else if (kind == 2)
        send(fd, &g.hello, hello, MSG_NOSIGNAL);
    else if (kind == 3)
        g.seal[0] ^= 1;
    else if (kind == 4)
        memset(&g.hello, 'x', whole);
    if (kind >= 3)
        send(fd, &g.hello, whole, MSG_NOSIGNAL);
    if (kind == 5)
        send(fd, g.proof, sizeof(g.proof), MSG_NOSIGNAL);
}

static bool is_open(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) > 0 || errno == EAGAIN;
}

/* Connects again wherever a connection was closed or, in haste, whenever it has
 * that many: then it closes the oldest. */
static void crowd_in(const struct crowd *c)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)c->port),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int *fds = calloc((size_t)c->alive, sizeof(*fds));

    for (unsigned i = 0; fds; i++) {
        int *fd = &fds[i % (unsigned)c->alive];

        errno = 0;
        if (*fd > 0 && !c->haste && is_open(*fd))
            continue;
        if (*fd > 0)
            close(*fd);
        *fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(*fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            send_strange(*fd, c, (int)(i % 6));
    }
}

/* A hello of rank 1, as one could have seen it, and its proof. */
static void record(struct plait_greeting *g, const struct plait_launch *l)
{
    struct plait_rendezvous m = {.rank = 1, .size = l->world_size};
    int port = l->master_port, listener = plait_rendezvous_listen(&port), fd;

    m.key = plait_hash_text(PLAIT_HASH_START, l->jobid);
    memcpy(m.secret, l->secret, sizeof(m.secret));
    fd = plait_rendezvous_reach("localhost", port, 5);
    if (port != l->master_port || fd < 0 || plait_greeting_begin(g, &m, fd) < 0)
        abort();
    close(fd);
    close(listener);
}

/* Ranks join while so many connections of four strangers keep coming. */
static void test_flood(int alive, bool haste)
{
    enum { STRANGERS = 4, MEET = 8, WITHIN_S = 8 };
    struct plait_launch l = launch_at(0, MEET, free_port());
    struct crowd c = {
        .port = l.master_port, .alive = alive / STRANGERS, .haste = haste};
    pid_t stranger[STRANGERS], rank[MEET];
    double began = plait_clock_now(), took;
    int status, bad = 0;

    record(&c.recorded, &l);
    fflush(stdout);
    for (int i = 0; i < STRANGERS; i++)
        if ((stranger[i] = fork()) == 0)
            crowd_in(&c);
    for (l.rank = 0; l.rank < MEET; l.rank++) {
        rank[l.rank] = fork();
        if (rank[l.rank] == 0) {
            struct plait_error err = {""};
            struct plait_comm *comm;

            usleep(l.rank == 0 ? 0 : 200000);
            comm = plait_tcp_create(&l, WITHIN_S, &err);
            if (!comm)
                fprintf(stderr, "# rank %d: %s\n", l.rank, err.text);
            _exit(!comm || plait_comm_barrier(comm) < 0);
        }
    }
    for (int i = 0; i < MEET; i++) {
        waitpid(rank[i], &status, 0);
        bad += status != 0;
    }
    took = plait_clock_now() - began;
    ok(bad == 0, "ranks meet while %d connections of strangers %s: %g s", alive,
       haste ? "come and go" : "stay", took);
    for (int i = 0; i < STRANGERS; i++) {
        kill(stranger[i], SIGKILL);
        waitpid(stranger[i], NULL, 0);
    }
}

/* A rank that has its answer sends its proof only after strangers have filled
 * the list of unproved connections. */
static void test_crowd(void)
{
    struct plait_rendezvous m = {.name = "crowd", .size = 2, .timeout_s = 10};
    int port = 0, listener = plait_rendezvous_listen(&port), fds[2] = {-2, -1};
    struct plait_greeting g;
    struct plait_error err;
    pid_t root, stranger;
    int fd, rc, status;
    char c;

    fflush(stdout);
    root = fork();
    if (root == 0)
        _exit(plait_rendezvous_gather(&m, listener, fds, &err) < 0);
    m.rank = 1;
    fd = plait_rendezvous_reach("localhost", port, 10);
    rc = plait_greeting_begin(&g, &m, fd) < 0 ||
         plait_read_all(fd, &g.answer, sizeof(g.answer)) < 0;
    stranger = fork();
    if (stranger == 0) {
        pester(port, 600);
        _exit(1);
    }
    usleep(1000000);
    rc |= plait_greeting_prove(&g, &m, fd) < 0 ||
          plait_read_all(fd, &c, sizeof(c)) < 0;
    waitpid(root, &status, 0);
    ok(rc == 0 && status == 0, "a rank that was answered is not crowded out");
    close(fd);
    close(listener);
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
}

/* -- ports that others hold ----------------------------------------------- */

/* Another process has the port, and answers. */
static void test_taken(void)
{
    struct plait_launch l = launch_at(0, 2, free_port());
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)l.master_port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, status;
    struct plait_error err = {""};
    struct plait_comm *c;
    char noise[200] = "HTTP/1.1 400 Bad Request";
    pid_t other, peer;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 10) < 0)
        abort();
    fflush(stdout);
    other = fork();
    if (other == 0)
        for (;;)
            send(accept(fd, NULL, NULL), noise, sizeof(noise), MSG_NOSIGNAL);
    close(fd);
    peer = fork();
    if (peer == 0) {
        l.rank = 1;
        _exit(plait_tcp_create(&l, 60, &err) == NULL);
    }
    c = plait_tcp_create(&l, 60, &err);
    waitpid(peer, &status, 0);
    ok(c != NULL && status == 0, "a port that is taken: the next one%s%s",
       err.text[0] ? ": " : "", err.text);
    plait_comm_destroy(c);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

/* Sockets that listen, and never answer, at the first `held` of the ports that
 * a rendezvous may use. Returns the first of them. */
static int hold_ports(int held, int fd[PLAIT_RENDEZVOUS_PORTS])
{
    int port, n;

    do {
        port = free_port();
        for (n = 0; n < PLAIT_RENDEZVOUS_PORTS; n++) {
            struct sockaddr_in a = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)(port + n))};

            fd[n] = socket(AF_INET, SOCK_STREAM, 0);
            if (bind(fd[n], (struct sockaddr *)&a, sizeof(a)) < 0 ||
                (n < held && listen(fd[n], 100) < 0))
                break;
        }
        for (int i = n == PLAIT_RENDEZVOUS_PORTS ? held : 0;
             i < PLAIT_RENDEZVOUS_PORTS && i <= n; i++)
            close(fd[i]);
    } while (n < PLAIT_RENDEZVOUS_PORTS);
    return port;
}

static void release_ports(int held, const int *fd)
{
    for (int i = 0; i < held; i++)
        close(fd[i]);
}

/* Rank 0 gets the last of its ports; the others do not wait for each silent
 * port before it. */
static void test_held(void)
{
    enum { HELD = PLAIT_RENDEZVOUS_PORTS - 1, WITHIN_S = 5 };
    int fd[PLAIT_RENDEZVOUS_PORTS], status;
    struct plait_launch l = launch_at(0, 2, hold_ports(HELD, fd));
    struct plait_error err = {""};
    double began = plait_clock_now(), took;
    struct plait_comm *c;
    pid_t peer;

    fflush(stdout);
    peer = fork();
    if (peer == 0) {
        l.rank = 1;
        _exit(plait_tcp_create(&l, 60, &err) == NULL);
    }
    usleep(1000000); /* the peer has tried all of them in vain */
    c = plait_tcp_create(&l, 60, &err);
    waitpid(peer, &status, 0);
    took = plait_clock_now() - began;
    ok(c != NULL && status == 0, "%d ports that say nothing: ranks meet%s%s",
       HELD, err.text[0] ? ": " : "", err.text);
    ok(took < WITHIN_S, "within %d s: %g s", WITHIN_S, took);
    plait_comm_destroy(c);
    release_ports(HELD, fd);
}

static void test_all_held(void)
{
    int fd[PLAIT_RENDEZVOUS_PORTS];
    struct plait_launch l =
        launch_at(1, 2, hold_ports(PLAIT_RENDEZVOUS_PORTS, fd));
    struct plait_error err = {""};

    strcpy(l.secret, PLAIT_NO_SECRET); /* nor are there spare ports */
    ok(plait_tcp_create(&l, 3, &err) == NULL && errno == EADDRINUSE &&
           strstr(err.text, "set another MASTER_PORT"),
       "all ports are held: %s", err.text);
    l.rank = 0;
    ok(plait_tcp_create(&l, 3, &err) == NULL && errno == EADDRINUSE,
       "and rank 0 says so at once: %s", err.text);
    release_ports(PLAIT_RENDEZVOUS_PORTS, fd);
}

/* Passes on what rank 1 says at MASTER_PORT to rank 0, which listens at the
 * next port; ends with 1 as soon as rank 0 answers. */
static void relay(int listener, int port)
{
    for (;;) {
        struct plait_greeting g;
        int from = accept(listener, NULL, NULL), to;
        ssize_t n;

        to = plait_rendezvous_reach("localhost", port + 1, 5);
        n = to < 0 ? -1 : recv(from, &g, sizeof(g), 0);
        if (n > 0 && send(to, &g, (size_t)n, MSG_NOSIGNAL) == n &&
            recv(to, &g, sizeof(g), 0) > 0)
            _exit(1);
        close(from);
        if (to >= 0)
            close(to);
    }
}

static void test_relay(void)
{
    int fd[PLAIT_RENDEZVOUS_PORTS], status;
    struct plait_launch l = launch_at(0, 2, hold_ports(1, fd));
    struct plait_error err = {""};
    struct plait_comm *c;
    pid_t other, peer;

    fflush(stdout);
    other = fork();
    if (other == 0)
        relay(fd[0], l.master_port);
    peer = fork();
    if (peer == 0) {
        l.rank = 1;
        usleep(300000); /* rank 0 listens */
        _exit(plait_tcp_create(&l, 60, &err) == NULL);
    }
    c = plait_tcp_create(&l, 60, &err);
    waitpid(peer, &status, 0);
    ok(c != NULL && status == 0, "ranks meet beside one that passes on%s%s",
       err.text[0] ? ": " : "", err.text);
    ok(waitpid(other, &status, WNOHANG) == 0,
       "who gets no answer for what it passes on");
    plait_comm_destroy(c);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    release_ports(1, fd);
}

/* One that sends its answer byte by byte has no more time than others. */
static void test_drip(void)
{
    struct plait_rendezvous m = {.name = "drip", .rank = 1, .size = 2};
    double began = plait_clock_now(), took;
    int fd[2], rc;
    pid_t other;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0)
        abort();
    fflush(stdout);
    other = fork();
    if (other == 0)
        for (;;) {
            send(fd[0], "x", 1, MSG_NOSIGNAL);
            usleep(200000);
        }
    rc = plait_rendezvous_greet(&m, fd[1], 1);
    took = plait_clock_now() - began;
    ok(rc < 0 && errno == ETIMEDOUT && took < 3,
       "an answer that comes byte by byte: %g s", took);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(fd[0]);
    close(fd[1]);
}

int main(void)
{
    test_strangers();
    test_crowd();
    test_flood(600, false);
    test_flood(1000, false);
    test_flood(1000, true);
    test_taken();
    test_held();
    test_all_held();
    test_relay();
    test_drip();
    return done_testing();
}
