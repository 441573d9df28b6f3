/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/mesh/links.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "topology/base/clock.h"
#include "topology/plan/cost.h"

/* Enough to come near the rate of NVLink, where a sum takes 0.2 ms. */
#define BYTES ((size_t)32 << 20)
#define ROUNDS 2
/* A group that takes so many times as long as by the figures of its links: as
 * it does where memory is copied by way of the host. */
#define SLOW 4

/* The first sum, of few bytes, connects the group. */
static int time_sums(struct plait_mesh *mesh, struct plait_comm *comm,
                     void *data, double *seconds)
{
    *seconds = INFINITY;
    for (int i = 0; i <= ROUNDS; i++) {
        size_t n = (i == 0 ? 4096 : BYTES) / sizeof(float);
        const struct plait_buffers b = {data, data, n, PLAIT_F32};
        double begin;

        if (plait_comm_barrier(comm) < 0)
            return -1;
        begin = plait_clock_now();
        if (plait_comm_all_reduce(comm, &b, PLAIT_SUM, mesh->q, NULL) < 0 ||
            mesh->ops->queue_sync(mesh->q) < 0)
            return -1;
        if (i > 0)
            *seconds = fmin(*seconds, plait_clock_now() - begin);
    }
    return 0;
}

/* What the figures of the links promise. */
static double planned_seconds(const struct plait_mesh *mesh,
                              const struct plait_comm *comm)
{
    int domains = plait_comm_domains(comm);

    domains = domains > 0 ? domains : 1;
    return plait_cost_allreduce_flat(plait_comm_size(comm) / domains, domains,
                                     BYTES, &mesh->gpu);
}

/* GB/s on each link of a ring. */
static double rate_of(const struct plait_comm *comm, double seconds)
{
    double n = plait_comm_size(comm);

    return 2 * (n - 1) / n * BYTES / seconds / 1e9;
}

/* The lowest rank of the group that is furthest below its links, -1 if there is
 * none. *ratio becomes that of the slowest rank. */
static int find_slow(struct plait_mesh *mesh, int first, double *ratio)
{
    double worst = *ratio, least;

    if (plait_comm_host_all_reduce(mesh->world, &worst, 1, PLAIT_MAX) < 0)
        return -1;
    least = *ratio == worst ? -first : -INFINITY;
    *ratio = worst;
    if (plait_comm_host_all_reduce(mesh->world, &least, 1, PLAIT_MAX) < 0 ||
        worst <= SLOW)
        return -1;
    return (int)-least;
}

static int try_group(struct plait_mesh *mesh, enum plait_group kind, void *data,
                     struct plait_mesh_links *links, struct plait_error *err)
{
    struct plait_comm *comm = mesh->group[kind];
    const char *name = plait_mesh_comm_names[kind];
    size_t all = strlen(links->all), slow = strlen(links->slow);
    int n = plait_layout_group(&mesh->layout, kind, mesh->rank, mesh->members);
    struct plait_comm_stats before;
    double seconds, planned, ratio;
    char ways[120];
    int rc;

    plait_comm_stats(comm, &before);
    rc = time_sums(mesh, comm, data, &seconds);
    plait_comm_set_stats(comm, &before);
    if (rc < 0)
        plait_errorf(err, "rank %d: %s: no sum over %d ranks: %s", mesh->rank,
                     name, n, plait_comm_error(comm));
    if (plait_error_consensus(mesh->world, rc, err) < 0)
        return -1;
    planned = planned_seconds(mesh, comm);
    plait_comm_describe(comm, ways, sizeof(ways));
    if (mesh->rank == 0)
        snprintf(links->all + all, sizeof(links->all) - all,
                 "%s%s of %d: %s%s%.3g GB/s", all ? "; " : "", name, n, ways,
                 *ways ? ", " : "", rate_of(comm, seconds));
    ratio = seconds / planned;
    if (find_slow(mesh, mesh->members[0], &ratio) == mesh->rank)
        snprintf(links->slow + slow, sizeof(links->slow) - slow,
                 "%sthe %s group of ranks %d to %d sums at %.3g GB/s, less "
                 "than a quarter of its links' %.0f%s%s: NCCL_DEBUG=INFO shows "
                 "which it takes",
                 slow ? "; " : "", name, mesh->members[0], mesh->members[n - 1],
                 rate_of(comm, ratio * planned), rate_of(comm, planned),
                 *ways ? ", by " : "", ways);
    return 0;
}

int plait_mesh_try_links(struct plait_mesh *mesh,
                         struct plait_mesh_links *links,
                         struct plait_error *err)
{
    static const enum plait_group kinds[] = {PLAIT_GROUP_TP, PLAIT_GROUP_DP_CP};
    char ways[120];
    void *data;
    int rc = 0;

    memset(links, 0, sizeof(*links));
    if (mesh->world_size == 1 ||
        !plait_comm_describe(mesh->world, ways, sizeof(ways)))
        return 0;
    data = mesh->ops->alloc(mesh->dev, BYTES);
    if (!data || mesh->ops->fill_zero(mesh->q, data, BYTES) < 0)
        rc = plait_errorf(err, "rank %d: no memory to try the links with",
                          mesh->rank);
    rc = plait_error_consensus(mesh->world, rc, err);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && rc == 0; i++)
        if (plait_comm_size(mesh->group[kinds[i]]) > 1)
            rc = try_group(mesh, kinds[i], data, links, err);
    mesh->ops->free(mesh->dev, data);
    return rc;
}
