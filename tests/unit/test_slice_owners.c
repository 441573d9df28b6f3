/* SPDX-License-Identifier: Apache-2.0 */
/* The owners of slices that ranks learn from each other are the real ones. */
#define _GNU_SOURCE
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/checkpoint/slice_owners.h"
#include "runtime/comm/backend.h"
#include "tap.h"
#include "tcp_ranks.h"

enum { RANKS = 12, SLICES = 40 };

/* Whether a rank holds a slice, for four ways of distributing slices. */
static bool holds(int how, int rank, int slice)
{
    switch (how) {
    case 0: /* replicas of one model */
        return true;
    case 1: /* four shards, and every eighth slice in all of them */
        return slice % 8 == 0 || slice % 4 == rank % 4;
    case 2: /* overlapping shards: two neighbours hold each three slices */
        return slice / 3 == rank || slice / 3 + 1 == rank;
    default: /* uneven classes, and ranks that hold nothing */
        return rank % 5 != 4 && slice % (rank % 5 + 1) == 0;
    }
}

static uint64_t hash_of(int slice)
{
    return (uint64_t)(slice + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static int is_known(struct plait_slice_owners *o, int how, int slice)
{
    int ranks[RANKS], n = plait_slice_owners_find(o, hash_of(slice), ranks);
    int at = 0;

    for (int r = 0; r < RANKS; r++)
        if (holds(how, r, slice) && (at >= n || ranks[at++] != r))
            return 0;
    return at == n;
}

static int run_rank(const struct plait_launch *launch, void *arg)
{
    int how = *(int *)arg;
    struct plait_slice_owners o = {.ranks = 0};
    struct plait_error err;
    struct plait_comm *world = plait_tcp_create(launch, 200, &err);
    uint64_t mine[SLICES];
    int n = 0, bad = 1;

    for (int i = 0; i < SLICES; i++)
        if (holds(how, launch->rank, i))
            mine[n++] = hash_of(i);
    if (world && plait_slice_owners_gather(&o, world, mine, n, &err) == 0)
        bad = 0;
    else
        diag("rank %d: %s", launch->rank, err.text);
    for (int i = 0; !bad && i < SLICES; i++)
        bad |= !is_known(&o, how, i);
    plait_slice_owners_clear(&o);
    plait_comm_destroy(world);
    return bad;
}

int main(void)
{
    static const char *const what[] = {
        "all ranks hold all slices",
        "replicas of shards, some slices in all shards",
        "a shard each, with slices that two have",
        "other numbers of replicas, and ranks with nothing"};

    for (int how = 0; how < 4; how++)
        ok(run_processes(RANKS, run_rank, &how) == 0, "%s", what[how]);
    return done_testing();
}
