/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "runtime/parallel/parallel.h"
#include "tap.h"

/* Under mpirun -n 8 (parallel-mpi.sh): every group of several layouts has
 * the members that topology/layout.h names, in its order. */

static struct plait_comm *world;

static int check_group(struct plait_parallel *par, int group)
{
    struct plait_comm *comm = par->group[group];
    int want[64], got[64];
    int n = plait_layout_group(&par->layout, group, par->rank, want);

    if (!comm || plait_comm_size(comm) != n)
        return 0;
    if (plait_comm_host_all_gather(comm, &par->rank, got, sizeof(int)) < 0)
        return 0;
    return !memcmp(want, got, n * sizeof(int));
}

static int check_embedding(struct plait_parallel *par)
{
    int pp = par->layout.size[PLAIT_PP], at = par->coord.at[PLAIT_PP];
    int member = pp > 1 && (at == 0 || at == pp - 1);

    if (!member)
        return !par->embedding;
    return par->embedding && plait_comm_size(par->embedding) == 2 &&
           plait_comm_rank(par->embedding) == (at != 0);
}

static void check(const char *order, int tp, int cp, int ep, int dp, int pp)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_parallel *par;
    struct plait_layout layout;
    struct plait_error err = {""};
    double bad;
    int group;

    plait_layout_init(&layout);
    plait_layout_parse_order(order, layout.order, NULL);
    layout.size[PLAIT_TP] = tp;
    layout.size[PLAIT_CP] = cp;
    layout.size[PLAIT_EP] = ep;
    layout.size[PLAIT_DP] = dp;
    layout.size[PLAIT_PP] = pp;
    par = plait_parallel_create(ops, dev, world, &layout, &err);
    bad = !par;
    for (group = 0; par && group < PLAIT_NGROUPS; group++)
        bad += !check_group(par, group);
    if (par)
        bad += !check_embedding(par);
    plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
    if (plait_comm_rank(world) == 0)
        ok(bad == 0, "%s: tp %d cp %d ep %d dp %d pp %d %s", order, tp, cp, ep,
           dp, pp, err.text);
    plait_parallel_destroy(par);
    ops->device_destroy(dev);
}

int main(int argc, char **argv)
{
    enum plait_comm_kind kind = PLAIT_COMM_SELF;
    struct plait_error err;
    int rank;

    if (argc > 1 && !strcmp(argv[1], "mpi"))
        kind = PLAIT_COMM_MPI;
    world = plait_comm_create(kind, NULL, NULL, NULL, &err);
    if (!world) {
        ok(0, "create: %s", err.text);
        return done_testing();
    }
    rank = plait_comm_rank(world);
    if (plait_comm_size(world) == 8) {
        check("tp-cp-ep-dp-pp", 2, 1, 1, 2, 2);
        check("tp-cp-ep-dp-pp", 2, 2, 1, 2, 1);
        check("tp-cp-ep-dp-pp", 1, 2, 4, 2, 2);
        check("pp-dp-ep-cp-tp", 2, 1, 1, 2, 2);
        check("tp-pp-cp-ep-dp", 2, 1, 1, 1, 4);
        check("tp-cp-ep-dp-pp", 8, 1, 1, 1, 1);
    } else {
        check("tp-cp-ep-dp-pp", 1, 1, 1, 1, 1);
    }
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
