/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share a core: a rank that sleeps is woken, and messages arrive. */
#define _GNU_SOURCE
#include "config.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/members.h"
#include "runtime/comm/shm/bells.h"
#include "socket_launch.h"
#include "tap.h"

#define RANKS 4
#define TURNS 3000
#define LIMIT_S 100
/* Sizes of several slots, of more than all slots, and of less than one. */
#define MOST 400000

static const size_t sizes[] = {1, 10000, 70000, MOST};

/* Which of ranks 0 and 1 has the turn. */
static _Atomic int *turn;

static int use_one_core(void)
{
    cpu_set_t cpus, one;
    int cpu = 0;

    if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
        return -1;
    while (!CPU_ISSET(cpu, &cpus))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof(one), &one);
}

static struct plait_comm *open_world(const struct plait_launch *launch)
{
    struct plait_error err;
    struct plait_comm *star = plait_tcp_create(launch, 60, &err), *world;

    world = star ? plait_socket_over(star, NULL, NULL, launch, 60, &err) : NULL;
    plait_comm_destroy(star);
    return world;
}

/* Each rank sleeps until the other one rings. If a ring were lost, it would
 * sleep for the longest rest, which is longer than the test. */
static int take_turns(struct plait_bells *bells, int rank)
{
    for (int i = 0; i < TURNS; i++) {
        while (atomic_load(turn) != rank) {
            plait_bells_doze(bells);
            if (atomic_load(turn) != rank)
                plait_bells_rest(bells, 10 * LIMIT_S * 1000);
        }
        atomic_store(turn, 1 - rank);
        plait_bells_ring(bells, 1 - rank);
    }
    return 0;
}

static int check_bells(struct plait_comm *world)
{
    struct plait_bells *bells;
    int rank = plait_comm_rank(world), ranks, rc = 0;

    if (plait_bells_create(world, 7, &bells) < 0 || !bells)
        return 2;
    for (int r = 0; r < RANKS; r++)
        rc |= !plait_bells_near(bells, r);
    if (plait_bells_crowded(bells, &ranks) != 1 || ranks != RANKS)
        rc = 3;
    if (plait_comm_shared_cores(world, &ranks) != 1 || ranks != RANKS)
        rc = 4;
    if (rc == 0 && rank < 2)
        rc = take_turns(bells, rank);
    plait_bells_destroy(bells);
    return rc;
}

static float value(int rank, size_t i)
{
    return (float)(rank * 1000 + (int)(i % 777));
}

/* A sum in each pair and messages between its two ranks, all in flight at
 * once. */
static int check_transfers(struct plait_comm *pair, size_t n)
{
    int rank = plait_comm_rank(pair), rc;
    struct plait_request *req[3] = {NULL};
    float *sum = calloc(3 * n, sizeof(*sum)), *out = sum + n, *in = out + n;

    for (size_t i = 0; i < n; i++)
        sum[i] = out[i] = value(rank, i);
    rc = plait_comm_all_reduce(pair,
                               &(struct plait_buffers){sum, sum, n, PLAIT_F32},
                               PLAIT_SUM, NULL, &req[0]);
    rc |= plait_comm_send(
        pair, &(struct plait_buffers){.send = out, .n = n, .type = PLAIT_F32},
        1 - rank, 5, NULL, &req[1]);
    rc |= plait_comm_recv(
        pair, &(struct plait_buffers){.recv = in, .n = n, .type = PLAIT_F32},
        1 - rank, 5, NULL, &req[2]);
    for (int i = 2; rc == 0 && i >= 0; i--)
        rc = plait_comm_wait(&req[i], NULL);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = sum[i] != value(0, i) + value(1, i) || in[i] != value(1 - rank, i);
    free(sum);
    return rc;
}

static int check_gathers(struct plait_comm *world, size_t n)
{
    int rank = plait_comm_rank(world), rc;
    float *mine = calloc(n, sizeof(*mine));
    float *all = calloc(RANKS * n, sizeof(*all));

    for (size_t i = 0; i < n; i++)
        mine[i] = value(rank, i);
    rc = plait_comm_all_gather(
        world, &(struct plait_buffers){mine, all, n, PLAIT_F32}, NULL, NULL);
    for (size_t i = 0; rc == 0 && i < RANKS * n; i++)
        rc = all[i] != value((int)(i / n), i % n);
    rc |= plait_comm_reduce_scatter(
        world, &(struct plait_buffers){all, mine, n, PLAIT_F32}, PLAIT_SUM,
        NULL, NULL);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = mine[i] != RANKS * value(rank, i);
    free(all);
    free(mine);
    return rc;
}

static int run_rank(const struct plait_launch *launch)
{
    struct plait_comm *world, *pair;
    struct plait_error err;
    int rc = 0;

    alarm(LIMIT_S);
    if (use_one_core() < 0 || !(world = open_world(launch)))
        return 1;
    rc = check_bells(world);
    if (plait_comm_split(world,
                         &(struct plait_split){.color = launch->rank / 2,
                                               .key = 0,
                                               .name = "pair"},
                         &pair, &err) < 0)
        return 5;
    for (size_t i = 0; rc == 0 && i < sizeof(sizes) / sizeof(*sizes); i++)
        rc = check_transfers(pair, sizes[i])  ? 6
             : check_gathers(world, sizes[i]) ? 7
                                              : 0;
    plait_comm_destroy(pair);
    plait_comm_destroy(world);
    return rc;
}

int main(void)
{
    struct plait_launch launch = launch_of(0, RANKS);
    int status, bad = 0;

    turn = mmap(NULL, sizeof(*turn), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (launch.rank = 0; launch.rank < RANKS; launch.rank++)
        if (fork() == 0)
            _exit(run_rank(&launch));
    while (wait(&status) > 0)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            bad = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ok(bad == 0, "%d ranks of one core wake each other (status %d)", RANKS,
       bad);
    return done_testing();
}
