/* SPDX-License-Identifier: Apache-2.0 */
/* Some of several processes die, are stopped or cut off. Those that are left
 * agree on who they are, even if another one dies meanwhile, and a process that
 * was stopped learns that it was left out. To simulate several machines,
 * processes believe that others are on another machine, whose processes they
 * cannot see. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/members.h"
#include "socket_launch.h"
#include "strangers.h"
#include "tap.h"
#include "topology/base/clock.h"
#include "topology/base/hash.h"

enum { RANKS = 5, ALL = (1 << RANKS) - 1 };

static const struct scene {
    const char *what;
    unsigned first; /* these die before the others notice a loss */
    unsigned late;  /* these notice late, and die instead of answering */
    unsigned met;   /* these die once the others have agreed */
    unsigned still; /* these are stopped before the others notice, and continue
                     * when those have agreed */
    unsigned told;  /* these die when one of the others has heard the outcome */
    unsigned far;   /* these are on another machine than the rest */
    bool cut;       /* and that machine cannot be reached */
    bool silent;    /* and was silent before */
    int waits;      /* asks process 1 and notices late; 0: none */
    bool taken;     /* another process takes the port of process 2 */
    bool flood;     /* strangers hold the ports of the two lowest */
} scenes[] = {
    {.what = "one dies", .first = 1 << 2},
    {.what = "the lowest dies", .first = 1 << 0},
    {.what = "all but the last die", .first = 0xf},
    {.what = "nobody dies"},
    {.what = "one dies, then the lowest, who is asked",
     .first = 1 << 3,
     .late = 1 << 0},
    {.what = "one dies, then one who is waited for",
     .first = 1 << 1,
     .late = 1 << 3},
    {.what = "one dies, then one who has agreed",
     .first = 1 << 4,
     .met = 1 << 2},
    {.what = "one dies, then the lowest, who has asked",
     .first = 1 << 1,
     .met = 1 << 0},
    {.what = "one is stopped", .still = 1 << 2},
    {.what = "the lowest is stopped", .still = 1 << 0},
    {.what = "one dies, and more than half are stopped",
     .first = 1 << 3,
     .still = 0x7},
    {.what = "one dies, the lowest as it tells the second",
     .first = 1 << 4,
     .told = 1 << 0},
    {.what = "one is stopped, the lowest dies as it tells",
     .still = 1 << 3,
     .told = 1 << 0},
    {.what = "one is stopped, which only its machine sees",
     .still = 1 << 3,
     .far = 0x1c},
    {.what = "the lowest is stopped, which the second cannot see",
     .still = 1 << 0,
     .far = 0x16},
    {.what = "a machine is frozen", .still = 0x18, .far = 0x18, .silent = true},
    {.what = "a machine with the lowest is frozen",
     .still = 0x3,
     .far = 0x3,
     .silent = true},
    {.what = "a machine is cut off", .far = 0x18, .cut = true, .silent = true},
    {.what = "a machine with the lowest is cut off",
     .far = 0x3,
     .cut = true,
     .silent = true},
    {.what = "one asks another that waits for the lowest",
     .first = 1 << 2,
     .waits = 4},
    {.what = "one dies, and a stranger listens at its port",
     .first = 1 << 2,
     .taken = true},
    {.what = "one dies while strangers hold two ports",
     .first = 1 << 2,
     .flood = true},
    {.what = "the lowest dies while strangers hold two ports",
     .first = 1 << 0,
     .flood = true},
};

/* The processes that live but must be left out. */
static unsigned lost_of(const struct scene *scene)
{
    return scene->still | (scene->cut ? scene->far : 0);
}

static int heard; /* outcomes sent by this process, which dies at the second;
                   * -1: it does not */

/* In place of libc's: only messages with the outcome of an election have 16
 * bytes. */
ssize_t send(int fd, const void *buf, size_t bytes, int flags)
{
    if (bytes == 16 && heard >= 0 && heard++ == 1)
        kill(getpid(), SIGKILL);
    return sendto(fd, buf, bytes, flags, NULL, 0);
}

/* What a process reports of the world that it is in. */
struct said {
    unsigned present;
    int rank, order[RANKS];
    uint64_t epoch;
    double sum; /* sum of all numbers in the new world */
};

static void nap(int ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000L};

    nanosleep(&t, NULL);
}

/* Makes a world of the remaining processes, which adds up their numbers. */
static int meet(struct plait_members *m, struct said *said)
{
    struct plait_error err;
    struct plait_comm *world =
        m->n > 1 ? plait_members_world(m, NULL, NULL, 30, &err)
                 : plait_self_create(NULL, NULL, "world");
    int rc = world ? 0 : -1;

    said->present = 0;
    said->rank = m->rank;
    said->epoch = m->epoch;
    said->sum = m->self;
    memset(said->order, -1, sizeof(said->order));
    for (int i = 0; i < m->n; i++) {
        said->present |= 1u << m->present[i];
        said->order[i] = m->order[i];
    }
    if (rc == 0)
        rc = plait_comm_host_all_reduce(world, &said->sum, 1, PLAIT_SUM);
    plait_comm_destroy(world);
    return rc;
}

/* Sets what this process believes of the machines: `far` ones are on another,
 * which is silent or, with `cut`, has an address that cannot be reached. Of
 * those that are cut off only the lowest finds out by itself. */
static void spread(struct plait_members *m, const struct scene *scene,
                   bool *silent)
{
    unsigned mine = scene->far >> m->self & 1;
    bool follows = scene->cut && mine && scene->far & ((1u << m->self) - 1);

    for (int i = 0; i < RANKS; i++) {
        m->all[i].space += scene->far >> i & 1;
        silent[i] = scene->silent && (scene->far >> i & 1) != mine;
        if (scene->cut && silent[i])
            strcpy(m->all[i].host, "255.255.255.255");
        silent[i] &= !follows;
    }
}

/* Whether a process that waits for the outcome rejects others that ask it, so
 * that they need not wait. */
static int is_turned_away(const struct plait_members *m)
{
    char hello[sizeof(struct plait_hello) + PLAIT_PROOF_SIZE] = "another";
    int fd = plait_rendezvous_reach("localhost", m->all[1].port, 60);
    int rc = fd >= 0 && plait_write_all(fd, hello, sizeof(hello)) == 0 &&
             recv(fd, hello, sizeof(hello), 0) <= 0 && errno != EAGAIN;

    close(fd);
    return rc;
}

/* Listens there, and says nothing. */
static int take_port(int wanted)
{
    for (;;) {
        int port = wanted, fd = plait_rendezvous_listen(&port);

        if (fd >= 0 && port == wanted)
            return fd;
        if (fd >= 0)
            close(fd);
        nap(5);
    }
}

/* What one that has seen process 3 ask process `number` can send again. */
static void record_hello(const struct plait_members *m, int number,
                         struct plait_greeting *g)
{
    struct plait_rendezvous meeting = {
        .rank = 3, .size = RANKS, .root = number};
    int fd = plait_rendezvous_reach("localhost", m->all[number].port, 30);

    meeting.key = plait_hash_text(plait_hash_text(PLAIT_HASH_START, m->jobid),
                                  "regroup") +
                  m->epoch;
    memcpy(meeting.secret, m->secret, sizeof(m->secret));
    memset(g, 0, sizeof(*g));
    if (fd < 0 || plait_greeting_begin(g, &meeting, fd) < 0)
        diag("no hello for process %d", number);
    close(fd);
}

/* 600 connections that say nothing and 600 with a hello, at the ports of two
 * processes from `first` on. */
static void flood(const struct plait_members *m, int first, pid_t pid[4])
{
    enum { EACH = 600 };
    struct plait_greeting hello[2];
    struct strangers s[4];

    for (int i = 0; i < 2; i++) {
        int port = m->all[first + i].port;

        record_hello(m, first + i, &hello[i]);
        s[2 * i] = (struct strangers){port, EACH, NULL, 0};
        s[2 * i + 1] =
            (struct strangers){port, EACH, &hello[i].hello,
                               sizeof(hello[i].hello) + sizeof(hello[i].seal)};
    }
    start_strangers(s, 4, pid);
}

/* Like a run: if making a world fails, the processes agree again. */
static int run_process(const struct plait_launch *launch,
                       const struct scene *scene, int out)
{
    struct plait_error err;
    struct plait_comm *star = plait_tcp_create(launch, 60, &err);
    struct plait_members *m =
        star ? plait_members_create(star, launch, &err) : NULL;
    unsigned me = 1u << launch->rank;
    bool silent[RANKS] = {false};
    const struct plait_patience patience = {
        .away = 3600, .slow = 3600, .silent = silent};
    /* The last one, for which the others wait, lets strangers come first. */
    bool floods = m && scene->flood && launch->rank == RANKS - 1;
    struct said said;
    pid_t strangers[4];
    int rc = m ? -1 : -2;

    plait_comm_destroy(star);
    if (m)
        spread(m, scene, silent);
    if (m && scene->waits > 0 && scene->waits == launch->rank &&
        !is_turned_away(m))
        rc = -2;
    heard = scene->told & me ? 0 : -1;
    if (scene->still & me)
        raise(SIGSTOP);
    if (scene->late & me)
        nap(500);
    if ((scene->first | scene->late) & me)
        kill(getpid(), SIGKILL);
    if (m && scene->taken && launch->rank == RANKS - 1)
        take_port(m->all[2].port);
    if (floods)
        flood(m, scene->first & 1, strangers);
    for (int i = 0; i < 5 && rc == -1; i++)
        if (plait_members_regroup(m, &patience, &err) < 0)
            break;
        else if (scene->met & me)
            kill(getpid(), SIGKILL);
        else
            rc = meet(m, &said);
    if (floods)
        end_strangers(4, strangers);
    if (rc < 0 && lost_of(scene) & me) {
        memset(&said, 0, sizeof(said));
        said.rank = strstr(err.text, scene->cut ? "cannot be reached"
                                                : "gone on without it")
                        ? 1
                        : 0;
        rc = 0;
    }
    if (rc == 0 && write(out, &said, sizeof(said)) != sizeof(said))
        rc = -1;
    plait_members_destroy(m);
    return rc;
}

/* Whether processes whose rank is below the number left keep their ranks. */
static int is_placed(const struct said *said, unsigned left)
{
    int n = __builtin_popcount(left);
    unsigned seen = 0;

    for (int i = 0; i < n; i++)
        if (said->order[i] >= 0)
            seen |= 1u << said->order[i];
    for (int i = 0; i < n; i++)
        if (left & 1u << i && said->order[i] != i)
            return 0;
    return seen == left;
}

static void check_said(const struct scene *scene, const pid_t *pid, int in)
{
    unsigned left = ALL & ~(scene->first | scene->late | scene->met |
                            lost_of(scene) | scene->told);
    int n = 0, bad = 0, sum = 0, want = __builtin_popcount(left), out = 0;
    struct said said, first = {0};

    for (int i = 0; i < RANKS; i++)
        sum += left & 1u << i ? i : 0;
    while (n < want && read(in, &said, sizeof(said)) == sizeof(said)) {
        if (said.present == 0) { /* a lost one; others may still run */
            out += said.rank;
            continue;
        }
        first = n++ == 0 ? said : first;
        bad |= said.present != left || said.epoch != first.epoch ||
               said.sum != sum || !is_placed(&said, left) ||
               memcmp(said.order, first.order, sizeof(said.order)) != 0;
    }
    ok(!bad && n == want, "%s: the others agree", scene->what);
    if (bad || n != want)
        diag("%d of them, 0x%x where 0x%x are left", n, first.present, left);
    if (!lost_of(scene))
        return;
    for (int i = 0; i < RANKS; i++)
        kill(pid[i], SIGCONT);
    while (read(in, &said, sizeof(said)) == sizeof(said))
        out += said.present == 0 && said.rank == 1;
    ok(out == __builtin_popcount(lost_of(scene)),
       scene->cut ? "... who was cut off ends" : "... who was stopped is told");
    diag("%d of them", out);
}

static void test_scene(const struct scene *scene)
{
    enum { WITHIN_S = 20 };
    struct plait_launch launch = launch_of(0, RANKS);
    double began = plait_clock_now();
    pid_t pid[RANKS];
    int fd[2];

    if (pipe(fd) < 0)
        exit(1);
    fflush(stdout);
    for (launch.rank = 0; launch.rank < RANKS; launch.rank++)
        if ((pid[launch.rank] = fork()) == 0)
            _exit(run_process(&launch, scene, fd[1]) == 0 ? 0 : 1);
    close(fd[1]);
    check_said(scene, pid, fd[0]);
    if (scene->flood)
        ok(plait_clock_now() - began < WITHIN_S, "within %d s: %g s", WITHIN_S,
           plait_clock_now() - began);
    close(fd[0]);
    while (wait(NULL) > 0)
        ;
}

int main(void)
{
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
        test_scene(&scenes[i]);
    return done_testing();
}
