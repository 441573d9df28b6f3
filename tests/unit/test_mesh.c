/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "kernels/kernels.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/reduce.h"
#include "runtime/parallel/naive.h"
#include "tap.h"

/* Under mpirun -n 8 (mesh-mpi.sh): every group of several layouts has the
 * members that topology/layout/layout.h defines, in its order, also if divided
 * by nodes; and gradients have the same sum by every reduction path. */

static struct plait_comm *world;

static int check_group(struct plait_mesh *mesh, int group)
{
    struct plait_comm *comm = mesh->group[group];
    int want[64], got[64];
    int n = plait_layout_group(&mesh->layout, group, mesh->rank, want);

    if (!comm || plait_comm_size(comm) != n)
        return 0;
    if (plait_comm_host_all_gather(comm, &mesh->rank, got, sizeof(int)) < 0)
        return 0;
    return !memcmp(want, got, n * sizeof(int));
}

static int check_embedding(struct plait_mesh *mesh)
{
    int pp = mesh->layout.size[PLAIT_PP], at = mesh->coord.at[PLAIT_PP];
    int member = pp > 1 && (at == 0 || at == pp - 1);

    if (!member)
        return !mesh->embedding;
    return mesh->embedding && plait_comm_size(mesh->embedding) == 2 &&
           plait_comm_rank(mesh->embedding) == (at != 0);
}

static void check(const char *order, int tp, int cp, int ep, int dp, int pp)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_mesh *mesh;
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
    mesh = plait_mesh_create(ops, dev, world, &layout, &err);
    bad = !mesh || mesh->group[PLAIT_GROUP_EP] ||
          plait_mesh_need(mesh, ~0u, &err) < 0;
    for (group = 0; mesh && group < PLAIT_NGROUPS; group++)
        bad += !check_group(mesh, group);
    if (mesh)
        bad += !check_embedding(mesh);
    plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
    if (plait_comm_rank(world) == 0)
        ok(bad == 0, "%s: tp %d cp %d ep %d dp %d pp %d %s", order, tp, cp, ep,
           dp, pp, err.text);
    plait_mesh_destroy(mesh);
    ops->device_destroy(dev);
}

/* -- by nodes ------------------------------------------------------------ */

static const struct plait_parallel_config hierarchical = {
    .all_reduce = PLAIT_ALL_REDUCE_HIERARCHICAL};
static const struct plait_parallel_config by_node = {
    .zero = 2, .shard_group = PLAIT_SHARD_NODE};

static struct plait_mesh *open_dp(int tp, int ep, struct plait_device *dev)
{
    struct plait_mesh *mesh;
    struct plait_layout layout;
    struct plait_error err;

    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = tp;
    layout.size[PLAIT_EP] = ep;
    layout.size[PLAIT_DP] = plait_comm_size(world) / tp;
    mesh = plait_mesh_create(plait_ops_ref(), dev, world, &layout, &err);
    if (mesh && plait_mesh_need(mesh, 1u << PLAIT_GROUP_EXPERT_DP, &err) < 0)
        return NULL;
    return mesh;
}

/* Checks on the first rank that `good` is true on all ranks. */
static void all_ok(int good, const char *what, const char *detail)
{
    double bad = !good;

    plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
    if (plait_comm_rank(world) == 0)
        ok(bad == 0, "%s %s", what, detail);
}

static int is_group(struct plait_comm *comm, int size, int rank)
{
    return comm && plait_comm_size(comm) == size &&
           plait_comm_rank(comm) == rank;
}

/* Ranks of equal `place` are on one node, or for sums in one domain; what does
 * not count is the other way around. */
static int divide(struct plait_mesh *mesh,
                  const struct plait_parallel_config *config, int place,
                  struct plait_error *err)
{
    bool node = config->shard_group == PLAIT_SHARD_NODE;

    mesh->node = (uint64_t)(node ? place : plait_comm_rank(world) % 3);
    mesh->domain = (uint64_t)(node ? plait_comm_rank(world) % 3 : place);
    return plait_mesh_divide(mesh, config, err);
}

static void check_divided(struct plait_device *dev)
{
    struct plait_mesh *mesh = open_dp(2, 2, dev);
    int rank = plait_comm_rank(world);
    struct plait_error err = {""};

    all_ok(!divide(mesh, &hierarchical, rank / 4, &err) &&
               is_group(mesh->dense.intra_node, 2, rank / 2 % 2) &&
               is_group(mesh->dense.inter_node, 2, rank / 4) &&
               !mesh->expert.intra_node && !mesh->expert.inter_node,
           "dp 4 on two nodes; of experts no node has two", err.text);
    plait_mesh_destroy(mesh);
    mesh = open_dp(1, 2, dev);
    all_ok(!divide(mesh, &by_node, rank / 4, &err) &&
               is_group(mesh->dense.intra_node, 4, rank % 4) &&
               is_group(mesh->expert.intra_node, 2, rank / 2 % 2) &&
               is_group(mesh->expert.inter_node, 2, rank / 4),
           "dp 8 on two nodes, and their experts", err.text);
    plait_mesh_destroy(mesh);
    mesh = open_dp(1, 1, dev);
    all_ok(!divide(mesh, &by_node, 7, &err) && !mesh->dense.intra_node,
           "one node is not divided", err.text);
    plait_mesh_destroy(mesh);
}

static void check_refused(struct plait_device *dev)
{
    static const struct plait_parallel_config automatic = {.zero = 0};
    struct plait_mesh *mesh = open_dp(1, 1, dev);
    int rank = plait_comm_rank(world);
    struct plait_error err = {""};

    all_ok(divide(mesh, &hierarchical, rank, &err) < 0 &&
               strstr(err.text, "each node or NVLink domain has 1 of the 8"),
           "refused:", err.text);
    all_ok(divide(mesh, &hierarchical, 0, &err) < 0 &&
               strstr(err.text, "each node or NVLink domain has 8 of the 8"),
           "refused:", err.text);
    all_ok(divide(mesh, &by_node, rank < 3, &err) < 0 &&
               strstr(err.text, "not spread evenly"),
           "refused:", err.text);
    all_ok(divide(mesh, &by_node, rank % 2, &err) < 0 &&
               strstr(err.text, "in consecutive runs"),
           "refused:", err.text);
    all_ok(!divide(mesh, &automatic, rank % 2, &err) && !mesh->dense.intra_node,
           "auto: as one group", "where nodes do not allow more");
    plait_mesh_destroy(mesh);
}

/* -- sums ---------------------------------------------------------------- */

#define N 256 /* the sums below are whole numbers that bf16 can represent */

static int sum_is_right(const float *grad, int first, int n)
{
    int i;

    for (i = first; i < first + n; i++)
        if (grad[i] != 36 + 8 * (i % 16))
            return 0;
    return 1;
}

static void fill(float *grad)
{
    for (int i = 0; i < N; i++)
        grad[i] = 1 + plait_comm_rank(world) + i % 16;
}

static void check_route(struct plait_mesh *mesh,
                        const struct plait_reduction_path *path, bool whole,
                        const char *what)
{
    int n = whole ? N : N / path->parts, first = whole ? 0 : path->part * n;
    uint16_t wire[N];
    float grad[N];

    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct plait_reduction r = {NULL};
        int rc;

        fill(grad);
        rc = plait_reduction_start(mesh, &r, path, grad, bf16 ? wire : NULL, N);
        rc |= plait_reduction_advance(mesh, &r);
        rc |= plait_reduction_finish(mesh, &r);
        rc |= plait_reduction_advance(mesh, &r); /* nothing to do */
        rc |= plait_reduction_finish(mesh, &r);
        all_ok(rc == 0 && sum_is_right(grad, first, n), what,
               bf16 ? "in bf16" : "in fp32");
    }
}

static void check_sums(struct plait_device *dev)
{
    struct plait_mesh *mesh = open_dp(1, 1, dev);
    struct plait_comm *all = mesh->group[PLAIT_GROUP_DP_CP];
    struct plait_reduction_path path;
    float grad[N], scratch[N];
    struct plait_error err;

    if (divide(mesh, &hierarchical, plait_comm_rank(world) / 4, &err) < 0)
        return all_ok(0, "divide", err.text);
    plait_reduction_path_whole(&path, all);
    check_route(mesh, &path, true, "the sum as one group");
    plait_reduction_path_hierarchical(&path, &mesh->dense);
    check_route(mesh, &path, true, "the sum in steps");
    plait_reduction_path_parts(&path, all, NULL);
    check_route(mesh, &path, false, "the sum of a part");
    plait_reduction_path_parts(&path, mesh->dense.intra_node,
                               mesh->dense.inter_node);
    check_route(mesh, &path, false, "the sum of a part that has replicas");
    plait_reduction_path_parts_by_node(&path, &mesh->dense);
    check_route(mesh, &path, false, "parts, by node");
    fill(grad);
    all_ok(!plait_naive_sum(mesh, all, grad, scratch, N) &&
               sum_is_right(grad, 0, N),
           "the sum", "through the first rank");
    plait_mesh_destroy(mesh);
}

static size_t bucket_of(struct plait_mesh *mesh, double mib)
{
    const struct plait_parallel_config config = {.bucket_mib = mib};

    plait_gpu_type_find("h100", &mesh->gpu, NULL);
    return plait_mesh_bucket_bytes(mesh, &config) >> 20;
}

/* test_cost.c checks the sizes; this checks which groups are on how many nodes.
 * Communicators of the world made later use the last network. */
static void check_buckets(struct plait_device *dev)
{
    static const struct plait_site_network network = {.sharp = false};
    struct plait_mesh *mesh;

    plait_comm_set_network(world, &network, plait_comm_rank(world) / 4);
    mesh = open_dp(1, 1, dev);
    all_ok(mesh->domains[PLAIT_GROUP_DP_CP] == 2 && bucket_of(mesh, 0) == 176 &&
               bucket_of(mesh, 3) == 3,
           "dp 8 on two nodes: buckets of 176 MiB", "where no size is given");
    plait_mesh_destroy(mesh);
    mesh = open_dp(2, 1, dev);
    all_ok(mesh->domains[PLAIT_GROUP_TP] == 1 &&
               mesh->domains[PLAIT_GROUP_DP_CP] == 2 &&
               bucket_of(mesh, 0) == 56,
           "dp 4 on two nodes:", "56 MiB");
    plait_mesh_destroy(mesh);
    plait_comm_set_network(world, &network, plait_comm_rank(world) / 3);
    mesh = open_dp(2, 1, dev);
    all_ok(mesh->domains[PLAIT_GROUP_TP] == 2 &&
               mesh->domains[PLAIT_GROUP_DP_CP] == 3,
           "nodes of 3, 3 and 2 ranks:", "some tp groups are on two of them");
    plait_mesh_destroy(mesh);
    plait_comm_set_network(world, &network, 1);
    mesh = open_dp(1, 1, dev);
    all_ok(mesh->domains[PLAIT_GROUP_DP_CP] == 1 && bucket_of(mesh, 0) == 25,
           "dp 8 on one node, or in one NVLink domain:", "25 MiB");
    plait_mesh_destroy(mesh);
}

static void check_nodes(void)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);

    check_divided(dev);
    check_refused(dev);
    check_sums(dev);
    check_buckets(dev);
    ops->device_destroy(dev);
}

/* -- what ranks have started ----------------------------------------------- */

/* A sum of a tp group, of what the rank that errs takes the maximum. Those that
 * do not block are not compared at once. */
static int add_up(struct plait_mesh *mesh, enum plait_reduce op)
{
    struct plait_request *req;
    float x[4] = {1, 2, 3, 4};

    if (op == PLAIT_MAX) /* another place */
        return plait_comm_all_reduce(
                   mesh->group[PLAIT_GROUP_TP],
                   &(struct plait_buffers){x, x, 4, PLAIT_F32}, op, NULL,
                   &req) < 0
                   ? -1
                   : plait_comm_wait(&req, NULL);
    return plait_comm_all_reduce(mesh->group[PLAIT_GROUP_TP],
                                 &(struct plait_buffers){x, x, 4, PLAIT_F32},
                                 op, NULL, &req) < 0
               ? -1
               : plait_comm_wait(&req, NULL);
}

static int sum_up(struct plait_mesh *mesh, int times)
{
    int rc = 0;

    while (rc == 0 && times-- > 0)
        rc = add_up(mesh, PLAIT_SUM);
    return rc;
}

static double sum_of_shares(const struct plait_mesh *mesh)
{
    double sum = plait_mesh_share(mesh);

    plait_comm_host_all_reduce(mesh->world, &sum, 1, PLAIT_SUM);
    return sum;
}

/* Rank 5 errs, and then all make `more` sums. The world is a group, as one that
 * has failed cannot be destroyed in order. */
static void check_shares(struct plait_device *dev, int more, const char *says)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_comm *group = NULL;
    struct plait_layout layout;
    struct plait_error err = {""};
    struct plait_mesh *mesh;
    const char *why;
    double before, after;
    int rc;

    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = 4;
    layout.size[PLAIT_DP] = 2;
    plait_comm_split(world,
                     &(struct plait_split){.color = 0,
                                           .key = plait_comm_rank(world),
                                           .name = "all"},
                     &group, &err);
    mesh = plait_mesh_create(ops, dev, group, &layout, &err);
    rc = sum_up(mesh, 70);
    before = sum_of_shares(mesh);
    rc |= add_up(mesh, plait_comm_rank(world) == 5 ? PLAIT_MAX : PLAIT_SUM);
    rc |= sum_up(mesh, more);
    after = sum_of_shares(mesh);
    all_ok(rc == 0 && before == 0 && after != 0,
           "the shares of the tallies sum up to 0",
           "until a rank starts another transfer");
    rc = plait_mesh_tell(mesh);
    why = plait_comm_difference(group);
    if (!why || !strstr(why, says))
        diag("rank %d: %s", plait_comm_rank(world), why ? why : "nothing");
    all_ok(rc < 0 && why && strstr(why, says) && strstr(why, "rank 5 (") &&
               strstr(why, "rank 4"),
           "all ranks know which:", says);
    plait_mesh_destroy(mesh);
    plait_comm_destroy(group);
}

static void check_tallies(void)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);

    check_shares(dev, 10,
                 ") entered all-reduce of 16 bytes, maximum, type 0, root 0 "
                 "(test_mesh.c:");
    check_shares(dev, 200, ") has started other transfers of tp than rank 4");
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
        check_nodes();
        check_tallies();
    } else {
        check("tp-cp-ep-dp-pp", 1, 1, 1, 1, 1);
    }
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
