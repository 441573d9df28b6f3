/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of a world over sockets: a pair of ranks makes one at its first
 * message, for both directions, and strangers get none. Ranks that are not
 * connected with a lost rank learn of its loss, too. */
#define _GNU_SOURCE
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/bootstrap/tcp_tree.h"
#include "runtime/comm/members.h"
#include "socket_launch.h"
#include "strangers.h"
#include "tap.h"
#include "topology/base/clock.h"
#include "topology/base/hash.h"

enum { RANKS = 40, VICTIM = 11, LEAVER = 23, CUT = 18 };
/* 64-bit words in front of a message: bytes, group, tag, and what its sender
 * has entered. */
enum { HEAD = 8 };

/* What a rank of a scene reports to the test, and the test to it. */
struct said {
    int before, after;
    pid_t pid;
    _Atomic int port, stop, waits;
    char error[200];
};

struct rank {
    int rank, size;
    struct plait_members *members;
    struct plait_comm *world;
    struct said *said;
};

/* TCP connections of this process. */
static int count_connections(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *e;
    int n = 0;

    while (dir && (e = readdir(dir))) {
        struct sockaddr_storage a;
        socklen_t size = sizeof(a);

        n += getpeername(atoi(e->d_name), (struct sockaddr *)&a, &size) == 0 &&
             a.ss_family != AF_UNIX;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* -- scenes ---------------------------------------------------------------- */

static int sum(const struct rank *r, size_t n)
{
    float *x = calloc(n, sizeof(*x));
    int rc = x ? plait_comm_all_reduce(
                     r->world, &(struct plait_buffers){x, x, n, PLAIT_F32},
                     PLAIT_SUM, NULL, NULL)
               : -1;

    free(x);
    return rc;
}

/* Control values, and small and large sums, which go in rounds and in rings. */
static int talk_of_all(struct rank *r)
{
    double x = 1;

    if (plait_comm_host_all_reduce(r->world, &x, 1, PLAIT_SUM) < 0 ||
        x != r->size || sum(r, 10) < 0 || sum(r, 30000) < 0 ||
        plait_comm_barrier(r->world) < 0)
        return -1;
    return 0;
}

/* Each pair of ranks sends to each other at once; each rank begins with another
 * peer. */
static int talk_to_each(struct rank *r)
{
    struct plait_request *out[RANKS] = {NULL}, *in[RANKS] = {NULL};
    int32_t mine = r->rank, theirs[RANKS];
    int rc = 0;

    for (int i = 1; i < r->size; i++) {
        int to = (r->rank * 7 + i) % r->size;

        if (to == r->rank)
            to = (r->rank * 7) % r->size;
        rc |= plait_comm_send(
            r->world,
            &(struct plait_buffers){.send = &mine, .n = 1, .type = PLAIT_I32},
            to, 3, NULL, &out[to]);
    }
    for (int i = 0; i < r->size; i++)
        if (i != r->rank)
            rc |= plait_comm_recv(r->world,
                                  &(struct plait_buffers){.recv = &theirs[i],
                                                          .n = 1,
                                                          .type = PLAIT_I32},
                                  i, 3, NULL, &in[i]);
    for (int i = 0; i < r->size; i++) {
        rc |= plait_comm_wait(&out[i], NULL) | plait_comm_wait(&in[i], NULL);
        if (i != r->rank && theirs[i] != i)
            rc = -1;
    }
    return rc;
}

/* Waits for a message that never comes, from a rank that is not connected
 * yet. */
static int wait_in_vain(struct rank *r, int from)
{
    int32_t x;

    return plait_comm_recv(
        r->world,
        &(struct plait_buffers){.recv = &x, .n = 1, .type = PLAIT_I32}, from, 5,
        NULL, NULL);
}

/* Waits until all ranks have a world. */
static void await_all(const struct rank *r)
{
    const struct said *all = r->said - r->rank;

    for (int i = 0; i < r->size; i++)
        while (!all[i].port)
            usleep(1000);
}

static int lose_one(struct rank *r)
{
    if (r->rank == VICTIM) {
        await_all(r);
        kill(getpid(), SIGKILL);
    }
    return wait_in_vain(r, (r->rank + 13) % r->size) < 0 && errno == EIO ? 0
                                                                         : -1;
}

/* One rank leaves without notice while another one waits for it. */
static int leave_one(struct rank *r)
{
    if (r->rank == LEAVER) {
        await_all(r);
        return 0;
    }
    return wait_in_vain(r, (r->rank + 13) % r->size) < 0 && errno == EIO ? 0
                                                                         : -1;
}

/* Works until the test has connected to ports as a stranger. */
static int work_on(struct rank *r)
{
    double go_on = 1;
    int rc = 0;

    while (rc == 0 && go_on > 0) {
        go_on = r->rank == 0 && !r->said->stop;
        rc = plait_comm_host_all_reduce(r->world, &go_on, 1, PLAIT_MAX);
    }
    return rc;
}

/* Rank 1 receives a message that was cut off before. */
static int hear_half(struct rank *r)
{
    int from = r->rank == 1 ? CUT : (r->rank + 13) % r->size;

    if (work_on(r) < 0)
        return -1;
    return wait_in_vain(r, from) < 0 && errno == EIO ? 0 : -1;
}

/* Works until a peer is lost. */
static int lose_peer(struct rank *r)
{
    return work_on(r) < 0 && errno == EIO ? 0 : -1;
}

/* Waits, after n collectives, for a message that makes this fail. */
static int wait_after(struct rank *r, int n)
{
    double x = 1;
    int rc = 0;

    for (int i = 0; rc == 0 && i < n; i++)
        rc = plait_comm_host_all_reduce(r->world, &x, 1, PLAIT_MAX);
    r->said->waits = 1;
    return rc == 0 && wait_in_vain(r, (r->rank + 13) % r->size) < 0 &&
                   errno == EIO
               ? 0
               : -1;
}

static int wait_after_one(struct rank *r)
{
    return wait_after(r, 1);
}

/* More than are remembered. */
static int wait_after_many(struct rank *r)
{
    return wait_after(r, 2 * PLAIT_PAST);
}

/* Once strangers hold its port, a rank makes a connection with each other one,
 * and a group. */
static int meet_late(struct rank *r)
{
    struct plait_error err = {""};
    struct plait_comm *group = NULL;
    double x = 1;
    int rc;

    if (work_on(r) < 0 || talk_to_each(r) < 0 ||
        plait_comm_split(r->world,
                         &(struct plait_split){
                             .color = r->rank % 2, .key = 0, .name = "late"},
                         &group, &err) < 0)
        return -1;
    rc = plait_comm_host_all_reduce(group, &x, 1, PLAIT_SUM);
    plait_comm_destroy(group);
    return rc == 0 && x == (r->size + 1 - r->rank % 2) / 2 ? 0 : -1;
}

/* -- ranks ----------------------------------------------------------------- */

static const struct scene {
    const char *what;
    int size, gone;
    int (*run)(struct rank *r);
} all_scenes[] = {
    {"sums and control values", RANKS, -1, talk_of_all},
    {"messages of each to each, at once", 13, -1, talk_to_each},
    {"one is killed", RANKS, VICTIM, lose_one},
    {"one leaves early", RANKS, LEAVER, leave_one},
    {"strangers come", RANKS, -1, work_on},
    {"one is cut off in a message", RANKS, CUT, hear_half},
    {"one announces 2^64 - 32 bytes", RANKS, CUT, lose_peer},
    {"one announces more than half of the memory", RANKS, CUT, lose_peer},
    {"one sends a million messages that nobody waits for", RANKS, CUT,
     lose_peer},
    {"strangers stay", 13, -1, meet_late},
    {"one sends for a collective that is over", RANKS, CUT, wait_after_one},
    {"one sends for a collective long over", RANKS, CUT, wait_after_many},
};

static int run_rank(const struct plait_launch *launch, const struct scene *s,
                    struct said *said)
{
    struct rank r = {launch->rank, launch->world_size, NULL, NULL, said};
    struct plait_error err = {""};
    struct plait_comm *star = plait_tcp_create(launch, 60, &err);
    int rc;

    r.members = star ? plait_members_create(star, launch, &err) : NULL;
    plait_comm_destroy(star);
    r.world =
        r.members ? plait_members_world(r.members, NULL, NULL, 60, &err) : NULL;
    if (!r.world) {
        snprintf(said->error, sizeof(said->error), "%.199s", err.text);
        return 2;
    }
    said->before = count_connections();
    said->pid = getpid();
    said->port = r.members->all[r.rank].port;
    rc = s->run(&r) < 0;
    if (s->gone < 0) /* no rank leaves before the others have counted */
        rc |= plait_comm_barrier(r.world) < 0;
    said->after = count_connections();
    if (s->gone < 0)
        rc |= plait_comm_barrier(r.world) < 0;
    snprintf(said->error, sizeof(said->error), "%.199s",
             plait_comm_error(r.world));
    plait_comm_destroy(r.world);
    plait_members_destroy(r.members);
    return rc;
}

static struct said *start_scene(const struct scene *s)
{
    struct plait_launch launch = launch_of(0, s->size);
    struct said *all = mmap(NULL, RANKS * sizeof(*all), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (all == MAP_FAILED)
        exit(1);
    fflush(stdout);
    for (launch.rank = 0; launch.rank < s->size; launch.rank++)
        if (fork() == 0)
            _exit(run_rank(&launch, s, &all[launch.rank]));
    return all;
}

/* How many ranks did not end as expected. */
static int end_scene(const struct scene *s)
{
    int status, bad = 0;

    while (wait(&status) > 0)
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return s->gone == VICTIM ? bad - 1 : bad;
}

/* -- what is checked ------------------------------------------------------- */

static int tree_of(int rank, int size)
{
    struct plait_tcp_tree tree;

    plait_tcp_tree_init(&tree, rank, size);
    return tree.ways + (tree.parent >= 0);
}

/* Each rank has connections to ranks at distances of powers of two, and to its
 * neighbours in the tree. */
static void check_sums(const struct scene *s)
{
    struct said *all = start_scene(s);
    int bad = end_scene(s), most = 0, rounds = 0, over = 0;

    while (1 << rounds < s->size)
        rounds++;
    for (int r = 0; r < s->size; r++) {
        int n = all[r].after - tree_of(r, s->size);

        most = n > most ? n : most;
        over += n > 2 * rounds || n < rounds;
    }
    ok(bad == 0, "%s of %d ranks", s->what, s->size);
    ok(over == 0, "each has at most %d connections beside the tree's",
       2 * rounds);
    if (bad || over)
        diag("%d failed (%s), the most is %d", bad, all[0].error, most);
    munmap(all, RANKS * sizeof(*all));
}

static void check_each(const struct scene *s)
{
    struct said *all = start_scene(s);
    int bad = end_scene(s), others = 0;

    for (int r = 0; r < s->size; r++)
        others += all[r].after - tree_of(r, s->size) != s->size - 1;
    ok(bad == 0, "%s", s->what);
    ok(others == 0, "every two have one connection");
    if (bad || others)
        diag("%d failed (%s), %d have more or fewer", bad, all[0].error,
             others);
    munmap(all, RANKS * sizeof(*all));
}

/* All ranks learn that a rank was lost, and which one. */
static void check_lost(const struct scene *s, struct said *all)
{
    int bad = end_scene(s), wrong = -1;
    char name[40];

    snprintf(name, sizeof(name), "rank %d is gone", s->gone);
    for (int r = 0; r < s->size; r++)
        if (r != s->gone && !strstr(all[r].error, name))
            wrong = r;
    ok(bad == 0, "%s: all learn of it", s->what);
    ok(wrong < 0, "and know which one it was");
    if (bad || wrong >= 0)
        diag("%d failed; rank %d: %s", bad, wrong,
             all[wrong < 0 ? 0 : wrong].error);
    munmap(all, RANKS * sizeof(*all));
}

/* Sends `size` bytes to this port. 0: the connection was closed. */
static int knock(int port, const void *text, size_t size)
{
    int fd = plait_rendezvous_reach("localhost", port, 30), rc;
    char c;

    if (fd < 0)
        return -1;
    rc = plait_write_all(fd, text, size);
    rc = rc == 0 && (recv(fd, &c, 1, 0) == 0 || errno == ECONNRESET) ? 0 : -1;
    close(fd);
    return rc;
}

/* How `rank` connects to rank 1. */
static struct plait_rendezvous meeting_of(int rank, int size)
{
    struct plait_rendezvous m = {.rank = rank, .size = size, .root = 1};
    struct plait_launch job = launch_at(0, 1, 0);

    m.key =
        plait_hash_text(plait_hash_text(PLAIT_HASH_START, job.jobid), "links") +
        1;
    strcpy(m.secret, job.secret);
    return m;
}

/* Sends a correct request with a proof made without the secret. */
static int guess(int port, int size)
{
    struct plait_rendezvous m = meeting_of(1 + 17, size);
    unsigned char proof[PLAIT_PROOF_SIZE] = "not it";
    struct plait_greeting g;
    int fd = plait_rendezvous_reach("localhost", port, 30), rc = -1;
    char c;

    if (fd < 0)
        return -1;
    if (plait_greeting_begin(&g, &m, fd) == 0 &&
        plait_read_all(fd, &g.answer, sizeof(g.answer)) == 0 &&
        plait_write_all(fd, proof, sizeof(proof)) == 0 &&
        (recv(fd, &c, 1, 0) == 0 || errno == ECONNRESET))
        rc = 0;
    close(fd);
    return rc;
}

static void check_strangers(const struct scene *s)
{
    struct said *all = start_scene(s);
    const char page[200] = "GET / HTTP/1.0\r\n\r\n";
    int bad, port, page_rc, guess_rc;

    for (int i = 0; i < 60000 && !(port = all[1].port); i++)
        usleep(1000);
    page_rc = knock(port, page, sizeof(page));
    guess_rc = guess(port, s->size);
    all[0].stop = 1;
    bad = end_scene(s);
    ok(page_rc == 0, "%s: one that speaks otherwise is turned away", s->what);
    ok(guess_rc == 0, "one that guesses the secret is too");
    ok(bad == 0 && all[1].after == all[1].before, "and the ranks go on");
    if (bad)
        diag("%d failed (%s)", bad, all[0].error);
    munmap(all, RANKS * sizeof(*all));
}

/* Connects to rank 1 as `rank`, which has no connection with it, and waits for
 * the answer. */
static int begin_as(struct plait_greeting *g, const struct plait_rendezvous *m,
                    int port)
{
    int fd = plait_rendezvous_reach("localhost", port, 30);

    if (fd >= 0 && plait_greeting_begin(g, m, fd) == 0 &&
        plait_read_all(fd, &g->answer, sizeof(g->answer)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Whether the proof is confirmed and the connection still open a while after. A
 * goodbye makes rank 1 forget the false peer. */
static bool is_taken(const struct plait_greeting *g,
                     const struct plait_rendezvous *m, int fd, pid_t stopped)
{
    const uint64_t goodbye[HEAD] = {UINT64_MAX};
    bool taken = plait_greeting_prove(g, m, fd) == 0;
    char c;

    if (stopped) {
        usleep(5500000);
        kill(stopped, SIGCONT);
    }
    taken = taken && plait_read_all(fd, &c, sizeof(c)) == 0;
    usleep(500000);
    taken = taken && recv(fd, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    plait_write_all(fd, goodbye, sizeof(goodbye));
    close(fd);
    return taken;
}

/* Ranks that were answered and have sent their proofs: one among many strangers
 * that say nothing, one while rank 1 was stopped for long. */
static void check_answered(const struct scene *s)
{
    struct said *all = start_scene(s);
    struct plait_rendezvous m = meeting_of(1 + 17, s->size);
    struct plait_rendezvous n = meeting_of(1 + 11, s->size);
    int port, fd, stranger[70], bad;
    bool crowded, late;
    struct plait_greeting g;

    for (int i = 0; i < 60000 && !(port = all[1].port); i++)
        usleep(1000);
    fd = begin_as(&g, &m, port);
    for (int i = 0; i < 70; i++)
        stranger[i] = plait_rendezvous_reach("localhost", port, 30);
    usleep(500000);
    crowded = fd >= 0 && is_taken(&g, &m, fd, 0);
    for (int i = 0; i < 70; i++)
        close(stranger[i]);
    fd = begin_as(&g, &n, port);
    if (fd >= 0)
        kill(all[1].pid, SIGSTOP);
    late = fd >= 0 && is_taken(&g, &n, fd, all[1].pid);
    all[0].stop = 1;
    bad = end_scene(s);
    ok(crowded, "a rank that was answered is not crowded out");
    ok(late, "nor dropped for its age unheard");
    ok(bad == 0, "and the ranks go on");
    if (bad)
        diag("%d failed (%s)", bad, all[0].error);
    munmap(all, RANKS * sizeof(*all));
}

/* What one that has seen rank 8 connect to `root` can send again: a hello with
 * its seal. */
static void record_hello(struct plait_greeting *g, int port, int root, int size)
{
    struct plait_rendezvous m = meeting_of(8, size);
    int fd = plait_rendezvous_reach("localhost", port, 30);

    m.key += (uint64_t)root - 1;
    m.root = root;
    if (fd < 0 || plait_greeting_begin(g, &m, fd) < 0)
        diag("no connection with rank %d", root);
    close(fd);
}

/* 600 connections that say nothing and 600 with a hello stay at the ports of
 * two ranks, whose peers connect to them only then. */
static void check_stay(const struct scene *s)
{
    enum { EACH = 600, WITHIN_S = 20 };
    struct said *all = start_scene(s);
    struct plait_greeting hello[2];
    struct strangers strangers[4];
    double began, took;
    pid_t pid[4];
    int bad;

    for (int i = 0; i < s->size; i++)
        for (int ms = 0; ms < 60000 && !all[i].port; ms++)
            usleep(1000);
    for (int i = 0; i < 2; i++) {
        record_hello(&hello[i], all[1 + i].port, 1 + i, s->size);
        strangers[2 * i] = (struct strangers){all[1 + i].port, EACH, NULL, 0};
        strangers[2 * i + 1] =
            (struct strangers){all[1 + i].port, EACH, &hello[i].hello,
                               sizeof(hello[i].hello) + sizeof(hello[i].seal)};
    }
    start_strangers(strangers, 4, pid);
    began = plait_clock_now();
    all[0].stop = 1;
    for (int i = 0; i < s->size; i++)
        while (all[i].after == 0 && !all[i].error[0] &&
               plait_clock_now() < began + 2 * WITHIN_S)
            usleep(1000);
    took = plait_clock_now() - began;
    end_strangers(4, pid);
    bad = end_scene(s);
    ok(bad == 0, "%s: ranks connect to each other and make a group", s->what);
    ok(took < WITHIN_S, "within %d s: %g s", WITHIN_S, took);
    if (bad)
        diag("%d failed (%s)", bad, all[0].error);
    munmap(all, RANKS * sizeof(*all));
}

/* The first half of a message, and then the end of its connection. */
static void check_cut(const struct scene *s)
{
    struct said *all = start_scene(s);
    struct plait_rendezvous m = meeting_of(CUT, s->size);
    const uint64_t head[HEAD] = {sizeof(int32_t), PLAIT_HASH_START, 5};
    struct plait_greeting g;
    int port, fd;

    for (int i = 0; i < 60000 && !(port = all[1].port); i++)
        usleep(1000);
    fd = begin_as(&g, &m, port);
    if (fd < 0 || plait_greeting_prove(&g, &m, fd) < 0 ||
        plait_write_all(fd, head, sizeof(head)) < 0 ||
        plait_write_all(fd, "xx", 2) < 0)
        diag("no connection with rank 1");
    usleep(200000);
    close(fd);
    usleep(200000);
    all[0].stop = 1;
    check_lost(s, all);
}

/* One that can make a proof connects with rank 1 as a rank that has no
 * connection with it yet. */
static int connect_as_cut(const struct scene *s, const struct said *all)
{
    struct plait_rendezvous m = meeting_of(CUT, s->size);
    struct plait_greeting g;
    int port, fd;
    char c;

    for (int i = 0; i < 60000 && !(port = all[1].port); i++)
        usleep(1000);
    await_all(&(struct rank){.size = s->size, .said = (struct said *)all});
    fd = begin_as(&g, &m, port);
    if (fd < 0 || plait_greeting_prove(&g, &m, fd) < 0 ||
        plait_read_all(fd, &c, sizeof(c)) < 0)
        diag("no connection with rank 1");
    return fd;
}

/* It sends a head n times, and then some bytes. */
static void check_excess(const struct scene *s, uint64_t bytes, int n)
{
    enum { AT_ONCE = 1000 };
    struct said *all = start_scene(s);
    static uint64_t heads[AT_ONCE][HEAD];
    int fd = connect_as_cut(s, all);

    for (int i = 0; i < AT_ONCE; i++)
        memcpy(heads[i], (uint64_t[HEAD]){bytes, 1, 2}, sizeof(heads[i]));
    for (; n > 0; n -= AT_ONCE)
        if (plait_write_all(fd, heads,
                            (size_t)(n < AT_ONCE ? n : AT_ONCE) *
                                sizeof(heads[0])) < 0)
            break;
    plait_write_all(fd, heads, sizeof(heads));
    check_lost(s, all);
    close(fd);
}

/* It sends what belongs to the world's first collective, which all have left:
 * it was in another one. */
static void check_over(const struct scene *s, const char *says)
{
    struct said *all = start_scene(s);
    uint64_t head[HEAD] = {8, PLAIT_HASH_START, UINT64_C(1) << 63 | 1, 3, 1};
    int fd, bad, told = 0;

    memcpy(&head[5], "rank.c:7", 9);
    for (int r = 0; r < s->size; r++)
        for (int i = 0; i < 60000 && !all[r].waits; i++)
            usleep(1000);
    fd = connect_as_cut(s, all);
    plait_write_all(fd, head, sizeof(head));
    bad = end_scene(s);
    for (int r = 0; r < s->size; r++)
        told += strstr(all[r].error, "rank 18 (") && strstr(all[r].error, says);
    ok(bad == 0 && told == s->size, "%s: all ranks tell of it", s->what);
    if (bad > 0 || told < s->size)
        diag("%d failed, %d of %d tell of it (%s)", bad, told, s->size,
             all[1].error);
    close(fd);
    munmap(all, RANKS * sizeof(*all));
}

static uint64_t half_the_memory(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 *
           (uint64_t)sysconf(_SC_PAGESIZE);
}

int main(void)
{
    check_sums(&all_scenes[0]);
    check_each(&all_scenes[1]);
    check_lost(&all_scenes[2], start_scene(&all_scenes[2]));
    check_lost(&all_scenes[3], start_scene(&all_scenes[3]));
    check_strangers(&all_scenes[4]);
    check_answered(&all_scenes[4]);
    check_cut(&all_scenes[5]);
    check_excess(&all_scenes[6], UINT64_MAX - 31, 1);
    check_excess(&all_scenes[7], half_the_memory() + 1, 1);
    check_excess(&all_scenes[8], 0, (1 << 20) + 1);
    check_stay(&all_scenes[9]);
    check_over(&all_scenes[10], " (rank.c:7) as number 1 of world, rank 1 ");
    check_over(&all_scenes[11], " as number 1 of world, rank 1 another");
    return done_testing();
}
