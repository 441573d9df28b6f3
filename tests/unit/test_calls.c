/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a group enters another collective than the others, in each of
 * several ways: all ranks fail within a second, and each knows from a line what
 * two of them entered and where. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/world.h"
#include "socket_launch.h"
#include "tap.h"
#include "topology/base/clock.h"

enum { MOST = 12, N = 100000 };

static float buffer[2][MOST * N];

/* -- the collectives ------------------------------------------------------- */

static int barrier(struct plait_comm *c)
{
    return plait_comm_barrier(c);
}

static int sum(struct plait_comm *c)
{
    double x = 1;

    return plait_comm_host_all_reduce(c, &x, 1, PLAIT_SUM);
}

static int maximum(struct plait_comm *c)
{
    double x = 1;

    return plait_comm_host_all_reduce(c, &x, 1, PLAIT_MAX);
}

static int agreement(struct plait_comm *c)
{
    struct plait_error err = {""};

    return plait_error_consensus(c, 0, &err);
}

static int gather(struct plait_comm *c)
{
    double x = 1, all[MOST];

    return plait_comm_host_all_gather(c, &x, all, sizeof(x));
}

static int gather_more(struct plait_comm *c)
{
    double x[2] = {1, 2}, all[2 * MOST];

    return plait_comm_host_all_gather(c, x, all, sizeof(x));
}

static int from_0(struct plait_comm *c)
{
    double x = 1;

    return plait_comm_host_broadcast(c, &x, sizeof(x), 0);
}

static int from_1(struct plait_comm *c)
{
    double x = 1;

    return plait_comm_host_broadcast(c, &x, sizeof(x), 1);
}

static int large_sum(struct plait_comm *c)
{
    return plait_comm_all_reduce(
        c, &(struct plait_buffers){buffer[0], buffer[1], N, PLAIT_F32},
        PLAIT_SUM, NULL, NULL);
}

static int larger_sum(struct plait_comm *c)
{
    return plait_comm_all_reduce(
        c, &(struct plait_buffers){buffer[0], buffer[1], N + 1, PLAIT_F32},
        PLAIT_SUM, NULL, NULL);
}

static int large_maximum(struct plait_comm *c)
{
    return plait_comm_all_reduce(
        c, &(struct plait_buffers){buffer[0], buffer[1], N, PLAIT_F32},
        PLAIT_MAX, NULL, NULL);
}

static int large_gather(struct plait_comm *c)
{
    return plait_comm_all_gather(
        c, &(struct plait_buffers){buffer[0], buffer[1], N, PLAIT_F32}, NULL,
        NULL);
}

static int nothing(struct plait_comm *c)
{
    (void)c;
    return 0;
}

/* -- scenes ---------------------------------------------------------------- */

struct scene {
    int ranks, odd;
    int (*other)(struct plait_comm *c); /* what the odd rank enters, */
    int (*same)(struct plait_comm *c);  /* and the others, */
    int (*then)(struct plait_comm *c);  /* and all afterwards */
    const char *says[2];
};

static const struct scene scenes[] = {
    {4, 2, gather_more, sum, nothing, {"all-gather of 16 bytes", "all-reduce"}},
    {4, 0, gather, gather_more, nothing, {"of 8 bytes", "of 16 bytes"}},
    {4, 3, barrier, agreement, nothing, {"barrier (test_calls.c:", "(test_"}},
    {4, 1, maximum, agreement, nothing, {", maximum,", ", error,"}},
    {4, 1, maximum, sum, nothing, {", maximum,", ", sum,"}},
    /* The root may have gone on already. */
    {3, 1, from_1, from_0, barrier, {"broadcast of 8 bytes", " as number "}},
    {12, 5, gather, from_0, barrier, {"all-gather of 8", " as number "}},
    {12, 11, from_0, gather, barrier, {"broadcast of 8", " as number "}},
    {2, 0, sum, nothing, gather, {"all-reduce", "all-gather"}},
};

/* Those that move data, in shared memory and beside it. */
static const struct scene data_scenes[] = {
    {3, 1, larger_sum, large_sum, nothing, {"of 400004", "of 400000"}},
    {3, 1, large_maximum, large_sum, nothing, {", maximum", ", sum"}},
    {3, 2, large_gather, large_sum, nothing, {"all-gather", "all-reduce"}},
    {3, 0, barrier, large_sum, nothing, {"barrier", "all-reduce"}},
    {3, 2, large_sum, gather, nothing, {"all-reduce", "all-gather"}},
};

struct said {
    int failed;
    double took;
    char why[320];
};

static struct plait_comm *open_world(const struct plait_launch *launch,
                                     bool sockets, struct plait_error *err)
{
    struct plait_comm *star = plait_tcp_create(launch, 60, err), *world;

    if (!star || !sockets)
        return star;
    world = plait_socket_over(star, NULL, NULL, launch, 60, err);
    plait_comm_destroy(star);
    return world;
}

static int run_rank(const struct scene *s, bool sockets, bool divided,
                    const struct plait_launch *launch, struct said *said)
{
    struct plait_error err = {""};
    struct plait_comm *world = open_world(launch, sockets, &err), *c = world;
    const char *why;
    double begin;
    int rc;

    if (!world || barrier(world) < 0)
        return 1;
    if (divided &&
        plait_comm_split(world,
                         &(struct plait_split){
                             .color = 0, .key = -launch->rank, .name = "half"},
                         &c, &err) < 0)
        return 1;
    if (barrier(c) < 0)
        return 1;
    usleep(100000); /* until all have left it */
    begin = plait_clock_now();
    rc = (launch->rank == s->odd ? s->other : s->same)(c);
    if (rc == 0)
        rc = s->then(c);
    if (rc == 0) /* the next collective at the latest */
        rc = barrier(c);
    said->took = plait_clock_now() - begin;
    said->failed = rc < 0;
    why = plait_comm_difference(c);
    snprintf(said->why, sizeof(said->why), "%s", why ? why : "");
    usleep(300000); /* the others read what this rank has told them */
    return 0;
}

static bool is_told(const struct scene *s, const struct said *said,
                    const char *group)
{
    char as[60], host[64] = "", at[80];

    gethostname(host, sizeof(host) - 1);
    snprintf(as, sizeof(as), " of %s, rank ", group);
    snprintf(at, sizeof(at), " (%s) entered ", host);
    return said->failed && said->took < 1 && strstr(said->why, as) &&
           strstr(said->why, at) && strstr(said->why, "(test_calls.c:") &&
           strstr(said->why, s->says[0]) && strstr(said->why, s->says[1]);
}

static void check_scene(const struct scene *s, bool sockets, bool divided)
{
    struct said *said = mmap(NULL, MOST * sizeof(*said), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct plait_launch launch = launch_of(0, s->ranks);
    int status, bad = 0, told = 0;

    fflush(stdout);
    for (launch.rank = 0; launch.rank < s->ranks; launch.rank++)
        if (fork() == 0) {
            alarm(20);
            _exit(run_rank(s, sockets, divided, &launch, &said[launch.rank]));
        }
    while (wait(&status) > 0)
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    for (int r = 0; r < s->ranks; r++)
        told += is_told(s, &said[r], divided ? "half" : "world");
    if (!ok(bad == 0 && told == s->ranks, "%s, %s: %s instead of %s",
            sockets ? "sockets" : "tcp", divided ? "a group" : "the world",
            s->says[0], s->says[1]))
        for (int r = 0; r < s->ranks; r++)
            diag("rank %d: %s after %.3f s: %s", r,
                 said[r].failed ? "failed" : "did not fail", said[r].took,
                 said[r].why);
    munmap(said, MOST * sizeof(*said));
}

/* -- how many ------------------------------------------------------------- */

/* How many collectives of the world these take: 0 unless they succeed. */
static uint64_t of_split(struct plait_comm *world)
{
    uint64_t before = world->ncalls;
    struct plait_error err = {""};
    struct plait_comm *half;
    int rank = plait_comm_rank(world), rc;

    rc = plait_comm_split(
        world,
        &(struct plait_split){.color = rank % 2, .key = -rank, .name = "half"},
        &half, &err);
    if (rc == 0 &&
        (plait_comm_size(half) != 2 || plait_comm_rank(half) != (rank < 2)))
        rc = -1; /* the higher rank comes first */
    return rc == 0 ? world->ncalls - before : 0;
}

static uint64_t of_values(struct plait_comm *world)
{
    uint64_t before = world->ncalls;
    struct plait_error err = {""};
    int rank = plait_comm_rank(world), good = 0;
    int *all = plait_gather_values(world, &rank, sizeof(rank), &err);

    for (int i = 0; all && i < 4; i++)
        good += all[i] == i;
    free(all);
    return good == 4 ? world->ncalls - before : 0;
}

/* A rank without memory ends this for all, with the reason. */
static bool refused(struct plait_comm *world)
{
    struct plait_error err = {""};
    int rank = plait_comm_rank(world);
    void *all = plait_gather_values(world, rank == 2 ? NULL : &rank,
                                    sizeof(rank), &err);

    free(all);
    if (!all && !strstr(err.text, "out of memory"))
        diag("rank %d: %s", rank, err.text);
    return !all && strstr(err.text, "out of memory") &&
           (rank != 2 || errno == ENOMEM);
}

/* A launch of many ranks consists of such calls. */
static void check_counts(void)
{
    atomic_int *ready = mmap(NULL, sizeof(*ready), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct plait_launch launch = launch_of(0, 4);
    int status, bad = 0;

    fflush(stdout);
    for (launch.rank = 0; launch.rank < 4; launch.rank++)
        if (fork() == 0) {
            struct plait_error err = {""};
            struct plait_comm *world = open_world(&launch, true, &err);
            int wrong = !world;

            alarm(20);
            wrong = wrong || of_values(world) != 1;
            wrong = wrong ? wrong : of_split(world) == 1 ? 0 : 2;
            /* All need their groups first: the world ends with it. */
            for (atomic_fetch_add(ready, 1); !wrong && atomic_load(ready) < 4;)
                usleep(1000);
            wrong = wrong ? wrong : refused(world) ? 0 : 4;
            usleep(300000); /* the others read what this rank has told them */
            _exit(wrong);
        }
    while (wait(&status) > 0)
        bad |= WIFEXITED(status) ? WEXITSTATUS(status) : 8;
    munmap(ready, sizeof(*ready));
    ok(!(bad & 9), "sockets: values are exchanged in one collective");
    ok(!(bad & 11), "sockets: a group is made after one collective");
    ok(!bad, "sockets: a rank without memory for it ends it for all");
}

int main(void)
{
    size_t n = sizeof(scenes) / sizeof(scenes[0]);
    size_t m = sizeof(data_scenes) / sizeof(data_scenes[0]);

    for (size_t i = 0; i < n; i++) {
        check_scene(&scenes[i], false, false);
        check_scene(&scenes[i], true, false);
        check_scene(&scenes[i], true, true);
    }
    check_scene(&scenes[0], false, true);
    check_counts();
    for (size_t i = 0; i < m; i++)
        check_scene(&data_scenes[i], true, i % 2);
    return done_testing();
}
