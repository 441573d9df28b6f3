/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of the launch contract: 31 processes on this machine, in a
 * tree of three levels. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/bootstrap/notice.h"
#include "runtime/comm/bootstrap/tcp_tree.h"
#include "socket_launch.h"
#include "tap.h"

#define RANKS 31

/* Exit status of a rank: the number of the first check that failed. */
static int check_values(struct plait_comm *c)
{
    int rank = plait_comm_rank(c), all[RANKS], size = plait_comm_size(c);
    double v[2] = {rank, -rank};
    char text[8] = "";

    if (plait_comm_host_all_gather(c, &rank, all, sizeof(rank)) < 0)
        return 1;
    for (int i = 0; i < size; i++)
        if (all[i] != i)
            return 2;
    for (int root = 0; root < size; root++) {
        snprintf(text, sizeof(text), "%d", rank);
        if (plait_comm_host_broadcast(c, text, sizeof(text), root) < 0 ||
            atoi(text) != root)
            return 3;
    }
    if (plait_comm_host_all_reduce(c, v, 2, PLAIT_SUM) < 0 ||
        v[0] != size * (size - 1) / 2 || v[1] != -v[0])
        return 4;
    v[0] = rank;
    if (plait_comm_host_all_reduce(c, v, 1, PLAIT_MAX) < 0 || v[0] != size - 1)
        return 5;
    return plait_comm_barrier(c) < 0 ? 6 : 0;
}

/* Three groups by color, in reverse order, each a tree of its own; the last
 * rank takes part in none. */
static int check_split(struct plait_comm *world)
{
    int rank = plait_comm_rank(world), rc;
    struct plait_error err;
    struct plait_comm *c;

    if (plait_comm_split(
            world,
            &(struct plait_split){.color = rank == RANKS - 1 ? -1 : rank % 3,
                                  .key = -rank,
                                  .name = "third"},
            &c, &err) < 0)
        return 11;
    if (rank == RANKS - 1)
        return c == NULL ? 0 : 12;
    if (c == NULL || plait_comm_size(c) != RANKS / 3 ||
        plait_comm_rank(c) != (RANKS - 2 - rank) / 3)
        return 13;
    rc = check_values(c);
    plait_comm_destroy(c);
    return rc > 0 ? 20 + rc : 0;
}

/* Checks that every rank but 0 is a child of its parent, and that its run of
 * ranks is the one that the parent has for it; returns the tree's height, or
 * -1. */
static int check_tree(int size)
{
    struct plait_tcp_tree tree, above;
    int highest = 0;

    for (int r = 0; r < size; r++) {
        int height = 0, i;

        plait_tcp_tree_init(&tree, r, size);
        if (tree.first[0] != r + 1 || (r == 0) != (tree.parent < 0))
            return -1;
        for (above = tree; above.parent >= 0; height++) {
            plait_tcp_tree_init(&above, above.parent, size);
            i = plait_tcp_tree_child(&above, r);
            if (i < 0 || above.first[i] > r || above.first[i + 1] <= r)
                return -1;
            if (height == 0 && (above.first[i] != r ||
                                above.first[i + 1] != tree.first[tree.ways]))
                return -1;
        }
        highest = height > highest ? height : highest;
    }
    return highest;
}

static void test_trees(void)
{
    int bad = 0;

    for (int n = 1; n <= 700; n++)
        bad += check_tree(n) < 0;
    ok(bad == 0, "trees of 1 .. 700 ranks");
    ok(check_tree(9) == 1 && check_tree(10) == 2, "nine ranks are a star");
    ok(check_tree(131072) == 6, "131072 ranks are six steps from rank 0");
}

static int run_rank(int rank, int port)
{
    struct plait_launch l = launch_at(rank, RANKS, port);
    struct plait_error err;
    struct plait_comm *c = plait_tcp_create(&l, 60, &err);
    int rc;

    if (c == NULL)
        return 100;
    rc = check_values(c);
    if (rc == 0)
        rc = check_split(c);
    if (rc == 0)
        rc = check_values(c);
    plait_comm_destroy(c);
    return rc;
}

static void test_ranks(void)
{
    int port = free_port(), status;
    pid_t pid[RANKS];

    fflush(stdout);
    for (int i = RANKS - 1; i >= 0; i--) {
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(run_rank(i, port));
    }
    for (int i = 0; i < RANKS; i++) {
        waitpid(pid[i], &status, 0);
        ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "rank %d of %d (check %d)", i, RANKS,
           WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
}

static void test_alone(void)
{
    struct plait_launch l = launch_at(0, 2, free_port());
    struct plait_error err = {""};

    ok(plait_tcp_create(&l, 0.2, &err) == NULL && errno == ETIMEDOUT &&
           strstr(err.text, "1 of 2 ranks") != NULL,
       "rank 0 alone gives up: %s", err.text);
    l.rank = 1;
    ok(plait_tcp_create(&l, 0.2, &err) == NULL &&
           strstr(err.text, "rank 0 at localhost port") != NULL,
       "rank 1 alone gives up: %s", err.text);
}

/* A peer that ends causes an error, not a hang. */
static void test_gone(void)
{
    struct plait_launch l = launch_at(0, 2, free_port());
    struct plait_error err = {""};
    struct plait_comm *c;
    double x = 1;
    pid_t pid;
    int rc;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        l.rank = 1;
        _exit(plait_tcp_create(&l, 60, &err) == NULL);
    }
    c = plait_tcp_create(&l, 60, &err);
    waitpid(pid, NULL, 0);
    if (!ok(c != NULL, "two ranks meet"))
        return;
    rc = plait_comm_host_all_reduce(c, &x, 1, PLAIT_SUM);
    ok(rc < 0 && errno == EIO &&
           strstr(plait_comm_error(c), "rank 1 is gone") != NULL,
       "%s", plait_comm_error(c));
    plait_comm_destroy(c);
}

/* -- late proofs ---------------------------------------------------------- */

static void test_greeting(void)
{
    struct plait_rendezvous root = {.name = "greeting", .size = 2}, m = root;
    struct plait_greeting g, h = {0};
    int fd[2];

    m.rank = 1;
    if (!ok(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0, "two ends"))
        return;
    ok(plait_greeting_begin(&g, &m, fd[1]) == 0 &&
           plait_greeting_hear(&h, &root, fd[0]) == 1 &&
           plait_greeting_reply(&h, &root, fd[0]) == 0 &&
           plait_greeting_finish(&g, &m, fd[1]) == 0 &&
           plait_greeting_finish(&g, &m, fd[1]) == 0,
       "whose proof is sent is not connected yet");
    ok(plait_greeting_hear(&h, &root, fd[0]) == 2 &&
           plait_greeting_confirm(fd[0]) == 0 &&
           plait_greeting_finish(&g, &m, fd[1]) == 1,
       "whose proof is confirmed is");
    close(fd[0]);
    close(fd[1]);
}

/* -- notices -------------------------------------------------------------- */

static int told_of; /* how often that rank 2 is stopped */

static void count_stopped(void *arg, int rank)
{
    (void)arg;
    told_of += rank == 2;
}

/* Rank 0 takes the notice as one of the process with that id. */
static bool take_as(struct plait_rendezvous *m, const struct plait_notice *n,
                    uint64_t id)
{
    uint64_t ids[3] = {id};
    bool out;

    m->ids = ids;
    out = plait_notice_take(m, n->head, n->proof);
    m->ids = NULL;
    return out;
}

/* Notices that somebody has recorded and sends again. */
static void test_replay(void)
{
    uint64_t ids[3] = {77, 0, 0}, newest[3] = {0};
    struct plait_rendezvous from = {.rank = 1, .size = 3, .key = 5, .ids = ids};
    struct plait_rendezvous to = {.size = 3,
                                  .key = 6,
                                  .also = 5,
                                  .newest = newest,
                                  .stopped = count_stopped};
    struct plait_notice stopped, later, out;
    int fd[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0 ||
        plait_notice_send_stopped(&from, fd[0], 2) < 0 ||
        plait_notice_send_stopped(&from, fd[0], 2) < 0)
        abort();
    plait_notice_send(&from, fd[0]); /* -1, as nobody has read it yet */
    if (plait_read_all(fd[1], &stopped, sizeof(stopped)) < 0 ||
        plait_read_all(fd[1], &later, sizeof(later)) < 0 ||
        plait_read_all(fd[1], &out, sizeof(out)) < 0)
        abort();
    ok(!take_as(&to, &stopped, 77) && told_of == 1, "a notice is heard");
    ok(!take_as(&to, &stopped, 77) && told_of == 1, "again: it is ignored");
    ok(!take_as(&to, &later, 77) && told_of == 2, "a newer one is heard");
    ok(!take_as(&to, &stopped, 77) && told_of == 2, "the old one is still not");
    newest[2] = 0;
    ok(!take_as(&to, &later, 78) && told_of == 2,
       "nor by another process, such as of another run");
    ok(take_as(&to, &out, 77) && !take_as(&to, &out, 78),
       "only the process that it is for is left out");
    out.proof[31] ^= 1;
    ok(!take_as(&to, &out, 77), "and not by a wrong proof");
    close(fd[0]);
    close(fd[1]);
}

/* -- late proofs ---------------------------------------------------------- */

static int accept_one(int listener)
{
    struct pollfd p = {listener, POLLIN, 0};

    poll(&p, 1, 30000);
    return accept(listener, NULL, NULL);
}

/* The root closes the connection on which rank 1 sends its proof, as it does
 * where a busy rank sends it too late: the rank must connect again. That first
 * connection is served here. */
static void test_late(void)
{
    struct plait_rendezvous m = {.name = "late", .size = 2, .timeout_s = 30};
    int port = 0, listener = plait_rendezvous_listen(&port), fds[2] = {-2, -1};
    unsigned char proof[PLAIT_PROOF_SIZE];
    struct plait_greeting g = {0};
    struct plait_error err = {""};
    int fd, rc, status;
    char c = 0;
    pid_t rank;

    fflush(stdout);
    rank = fork();
    if (rank == 0) {
        m.rank = 1;
        fd = plait_rendezvous_join(&m, "localhost", port, 1, &err);
        _exit(fd < 0 || plait_read_all(fd, &c, 1) < 0 || c != 'x');
    }
    fd = accept_one(listener);
    while ((rc = plait_greeting_hear(&g, &m, fd)) == 0)
        usleep(1000);
    ok(rc == 1 && plait_greeting_reply(&g, &m, fd) == 0 &&
           plait_read_all(fd, proof, sizeof(proof)) == 0,
       "a connection is closed that waits for its proof");
    close(fd);
    rc = plait_rendezvous_gather(&m, listener, fds, &err);
    if (rc == 0)
        plait_write_all(fds[1], "x", 1);
    waitpid(rank, &status, 0);
    ok(rc == 0 && status == 0, "its rank connects again%s%s",
       err.text[0] ? ": " : "", err.text);
    close(fds[1]);
    close(listener);
}

/* -- other jobs ----------------------------------------------------------- */

static void test_secret(void)
{
    struct plait_launch l = launch_at(0, 2, free_port());
    struct plait_error err = {""};
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        l.rank = 1;
        l.secret[0] = 'f';
        _exit(plait_tcp_create(&l, 0.5, &err) == NULL && errno != EACCES &&
                      errno != ECONNREFUSED && errno != ECONNRESET
                  ? 1
                  : strstr(err.text, "rank 0 at localhost") == NULL);
    }
    ok(plait_tcp_create(&l, 0.5, &err) == NULL && errno == ETIMEDOUT,
       "another secret is no peer: %s", err.text);
    waitpid(pid, &status, 0);
    ok(status == 0, "nor is who has it let in");
}

static void test_no_secret(void)
{
    struct plait_launch l = launch_at(0, 2, free_port());
    struct plait_error err = {""}, none = {""};
    struct plait_comm *c;
    pid_t peer;
    int status;

    *l.secret = '\0';
    ok(plait_comm_meet(PLAIT_COMM_SOCKET, &l, &err) == NULL &&
           errno == EACCES && strstr(err.text, "PLAIT_SECRET"),
       "no secret: %s", err.text);
    strcpy(l.secret, PLAIT_NO_SECRET);
    fflush(stdout);
    peer = fork();
    if (peer == 0) {
        l.rank = 1;
        _exit(plait_comm_meet(PLAIT_COMM_SOCKET, &l, &err) == NULL);
    }
    c = plait_comm_meet(PLAIT_COMM_SOCKET, &l, &none);
    ok(c != NULL, "unless that is said by name: ranks meet%s%s",
       *none.text ? ": " : "", none.text);
    plait_comm_destroy(c);
    waitpid(peer, &status, 0);
}

int main(void)
{
    test_trees();
    test_ranks();
    test_alone();
    test_gone();
    test_greeting();
    test_replay();
    test_late();
    test_secret();
    test_no_secret();
    return done_testing();
}
