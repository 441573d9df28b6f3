/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over sockets: many of them, and some of which one is killed, after
 * which no other rank may be left waiting. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/bootstrap/rendezvous.h"
#include "socket_launch.h"
#include "tap.h"

#define RANKS 4
#define MANY 13
#define VICTIM 2
#define N 100000

/* What another rank was in when one was killed. */
enum scene { IN_ITS_GROUP, IN_ANOTHER, IN_A_MESSAGE, BESIDE, NSCENES };

static const char *const scenes[NSCENES] = {
    "in a sum with it", "in a sum with others that wait for it",
    "in a message of another rank that waits for it",
    "in sums beside its work"};

/* -- many ranks ------------------------------------------------------------ */

/* Gathers and sums parts of n values: small ones are passed on in rounds,
 * others go round a ring. Returns 0, or which check failed. */
static int check_values(struct plait_comm *c, size_t n)
{
    int rank = plait_comm_rank(c), size = plait_comm_size(c), bad = 0;
    float *mine = calloc(n, sizeof(*mine));
    float *all = calloc(n * (size_t)size, sizeof(*all));

    for (size_t i = 0; i < n; i++)
        mine[i] = (float)(rank * 1000 + (int)i % 1000);
    bad = plait_comm_all_gather(
              c, &(struct plait_buffers){mine, all, n, PLAIT_F32}, NULL, NULL) <
          0;
    for (size_t i = 0; i < n * (size_t)size; i++)
        bad |= all[i] != (float)((int)(i / n) * 1000 + (int)(i % n) % 1000);
    bad |= plait_comm_all_reduce(
               c, &(struct plait_buffers){mine, mine, n, PLAIT_F32}, PLAIT_SUM,
               NULL, NULL) < 0;
    for (size_t i = 0; i < n; i++)
        bad |= mine[i] !=
               (float)(size * (size - 1) / 2 * 1000 + size * ((int)i % 1000));
    free(mine);
    free(all);
    return bad;
}

static struct plait_comm *open_world(const struct plait_launch *launch,
                                     struct plait_error *err)
{
    struct plait_comm *star = plait_tcp_create(launch, 60, err), *world;

    world = star ? plait_socket_over(star, NULL, NULL, launch, 60, err) : NULL;
    plait_comm_destroy(star);
    return world;
}

/* The checks in the world, and in groups in reverse order. */
static int run_of_many(const struct plait_launch *launch)
{
    struct plait_error err;
    struct plait_comm *world, *half;
    int rank = launch->rank, rc = 0;

    world = open_world(launch, &err);
    if (!world)
        return 1;
    if (plait_comm_split(world,
                         &(struct plait_split){
                             .color = rank < 3, .key = -rank, .name = "half"},
                         &half, &err) < 0)
        return 2;
    if (plait_comm_rank(half) != (rank < 3 ? 2 : MANY - 1) - rank)
        rc = 3;
    for (size_t n = 1; rc == 0 && n <= 30000; n *= 30)
        rc = check_values(world, n) ? 4 : check_values(half, n) ? 5 : 0;
    if (rc == 0 && plait_comm_barrier(world) < 0)
        rc = 6;
    plait_comm_destroy(half);
    plait_comm_destroy(world);
    return rc;
}

static void test_many(void)
{
    struct plait_launch launch = launch_of(0, RANKS);
    int status, bad = 0;

    launch.world_size = MANY;
    fflush(stdout);
    for (launch.rank = 0; launch.rank < MANY; launch.rank++)
        if (fork() == 0)
            _exit(run_of_many(&launch));
    while (wait(&status) > 0)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            bad = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ok(bad == 0, "%d ranks gather and sum (status %d)", MANY, bad);
}

/* -- one is killed --------------------------------------------------------- */

static int sum(struct plait_comm *c, float *x, size_t n)
{
    return plait_comm_all_reduce(c, &(struct plait_buffers){x, x, n, PLAIT_F32},
                                 PLAIT_SUM, NULL, NULL);
}

/* The pairs are ranks 0 and 1, and the victim and rank 3. */
static int enter_scene(enum scene scene, struct plait_comm *world,
                       struct plait_comm *pair, float *x)
{
    int rank = plait_comm_rank(world), rc = 0;
    struct plait_request *req[3] = {NULL};

    if (scene == IN_A_MESSAGE && rank < 2)
        return rank == 0
                   ? plait_comm_recv(pair,
                                     &(struct plait_buffers){
                                         .recv = x, .n = N, .type = PLAIT_F32},
                                     1, 7, NULL, NULL)
                   : sum(world, x, N);
    if (scene == IN_ANOTHER && rank == 0)
        return sum(pair, x, N);
    if (scene == BESIDE) {
        for (int i = 0; rc == 0 && i < 3; i++)
            rc = plait_comm_all_reduce(
                world,
                &(struct plait_buffers){x + i * N, x + i * N, N, PLAIT_F32},
                PLAIT_SUM, NULL, &req[i]);
        for (int i = 0; i < 2; i++) /* the last request is not waited for */
            rc |= plait_comm_wait(&req[i], NULL);
        return rc;
    }
    return sum(world, x, N);
}

/* Returns which check failed first, or 0. */
static int run_rank(const struct plait_launch *launch, enum scene scene)
{
    static float x[3 * N];
    struct plait_error err = {""};
    struct plait_comm *world, *pair;
    int rank = launch->rank, rc = 0;

    world = open_world(launch, &err);
    if (!world)
        return 1;
    if (plait_comm_split(world,
                         &(struct plait_split){
                             .color = rank / 2, .key = rank, .name = "pair"},
                         &pair, &err) < 0)
        return 2;
    /* The victim may finish these first, and be killed. */
    for (int i = 0; rc == 0 && i < 10; i++)
        rc = sum(world, x, N) < 0 || sum(pair, x, 10) < 0 ? -1 : 0;
    if (rank == VICTIM)
        kill(getpid(), SIGKILL);
    if (rc == 0)
        rc = enter_scene(scene, world, pair, x);
    if (rc == 0 || errno != EIO)
        return 3;
    if (sum(pair, x, 10) == 0 || plait_comm_barrier(world) == 0)
        return 4;
    if (!plait_comm_failed(pair) || !strstr(plait_comm_error(pair), "is gone"))
        return 5;
    plait_comm_abort(world);
    plait_comm_destroy(pair);
    plait_comm_destroy(world);
    return 0;
}

static void test_scene(enum scene scene)
{
    struct plait_launch launch = launch_of(0, RANKS);
    pid_t pid[RANKS];
    int status, bad = 0, was = 0;

    fflush(stdout);
    for (int i = 0; i < RANKS; i++) {
        pid[i] = fork();
        launch.rank = i;
        if (pid[i] == 0)
            _exit(run_rank(&launch, scene));
    }
    for (int i = 0; i < RANKS; i++) {
        waitpid(pid[i], &status, 0);
        if (i == VICTIM)
            continue;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            bad = i + 1;
            was = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
    }
    ok(bad == 0, "a rank is killed, others are %s%s", scenes[scene],
       bad ? ": one failed otherwise" : "");
    if (bad)
        diag("rank %d, status %d", bad - 1, was);
}

int main(void)
{
    test_many();
    for (int i = 0; i < NSCENES; i++)
        test_scene(i);
    return done_testing();
}
