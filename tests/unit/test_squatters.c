/* SPDX-License-Identifier: Apache-2.0 */
/* Another user's process has taken MASTER_PORT, or it and those after it, since
 * the plan was made: the ranks meet all the same, and soon. */
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "socket_launch.h"
#include "tap.h"
#include "topology/base/clock.h"

/* What a squatter does with who connects. */
enum way {
    SILENT,  /* says nothing */
    SLOW,    /* says a byte now and then, which is never the whole answer */
    CROWDED, /* lets its queue fill, so that no connection is made */
};
enum { GUESTS = 1000, CROWD = 3, SLOW_MS = 100 };
/* Below those that Linux gives to connections. */
enum { FIRST = 20000, PORTS = 12000, TRIES = 50 };
/* Less than a rank waits for one port's answer. A machine that is busy with
 * others may not run a rank for seconds, but not each time. */
#define SOON_S 4.0
#define MEETINGS 3

/* -- the squatter -------------------------------------------------------- */

static int take(int port, int queue)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                             .sin6_port = htons((uint16_t)port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0), zero = 0;

    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, queue) < 0)
        _exit(1);
    return fd;
}

static void crowd(int port)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                             .sin6_port = htons((uint16_t)port),
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    for (int i = 0; i < CROWD; i++)
        connect(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0),
                (struct sockaddr *)&a, sizeof(a));
}

static void squat(int first, int n, enum way way, int told)
{
    int fds[PLAIT_RENDEZVOUS_PORTS], guest[GUESTS], nguests = 0, fd;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < n; i++)
        fds[i] = take(first + i, way == CROWDED ? 0 : 100);
    for (int i = 0; i < n && way == CROWDED; i++)
        crowd(first + i);
    if (write(told, "", 1) != 1)
        _exit(1);
    while (way == CROWDED)
        pause();
    for (;;) {
        for (int i = 0; i < n; i++)
            while (nguests < GUESTS && (fd = accept(fds[i], NULL, NULL)) >= 0)
                guest[nguests++] = fd;
        for (int i = 0; i < nguests && way == SLOW; i++)
            send(guest[i], "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        usleep(SLOW_MS * 1000);
    }
}

static pid_t start_squatter(int first, int n, enum way way)
{
    int ends[2], rc = pipe(ends);
    pid_t pid = fork();
    char byte;

    if (pid == 0)
        squat(first, n, way, ends[1]);
    close(ends[1]);
    rc = rc == 0 ? (int)read(ends[0], &byte, 1) : -1;
    close(ends[0]);
    if (rc == 1)
        return pid;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

/* -- the ranks ----------------------------------------------------------- */

/* Both ranks call it at this place. 0: they have met. */
static int sum(struct plait_comm *c)
{
    double x = 1;

    return !c || plait_comm_host_all_reduce(c, &x, 1, PLAIT_SUM) < 0;
}

/* 0: both ranks have met. */
static int meet(const struct plait_launch *launch, struct plait_error *err)
{
    struct plait_launch l = *launch;
    struct plait_comm *c;
    int status, other;
    pid_t peer;

    fflush(stdout);
    peer = fork();
    if (peer == 0) {
        l.rank = 1;
        _exit(sum(plait_tcp_create(&l, 60, err)));
    }
    c = plait_tcp_create(&l, 60, err);
    status = sum(c);
    plait_comm_destroy(c);
    if (status)
        kill(peer, SIGKILL);
    waitpid(peer, &other, 0);
    return status || other;
}

static void test_squatters(int n, enum way way, const char *what)
{
    struct plait_error err = {""};
    struct plait_launch l;
    double took = SOON_S;
    pid_t pid = -1;
    int rc = 0;

    for (int i = 0; i < TRIES && pid < 0; i++) {
        l = launch_at(0, 2, FIRST + (getpid() + i) * 16 % PORTS);
        pid = start_squatter(l.master_port, n, way);
    }
    for (int i = 0; i < MEETINGS && rc == 0 && took >= SOON_S; i++) {
        double began = plait_clock_now();

        rc = meet(&l, &err);
        took = plait_clock_now() - began;
    }
    ok(pid > 0 && rc == 0 && took < SOON_S,
       "%d of %d ports are taken by one that %s: the ranks meet in %g s %s", n,
       PLAIT_RENDEZVOUS_PORTS, what, took, err.text);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

int main(void)
{
    test_squatters(PLAIT_RENDEZVOUS_PORTS - 1, SILENT, "says nothing");
    test_squatters(PLAIT_RENDEZVOUS_PORTS - 1, SLOW, "speaks slowly");
    test_squatters(PLAIT_RENDEZVOUS_PORTS - 1, CROWDED, "accepts nobody");
    test_squatters(PLAIT_RENDEZVOUS_PORTS, SILENT, "says nothing");
    test_squatters(PLAIT_RENDEZVOUS_PORTS, SLOW, "speaks slowly");
    return done_testing();
}
