/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/probe/grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/fabric.h"

/* The name that Slurm has for this node. */
static void own_name(char name[64])
{
    const char *slurm = getenv("SLURMD_NODENAME");
    char host[256] = "localhost";

    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = '\0';
    memset(name, 0, 64);
    snprintf(name, 64, "%s", slurm && *slurm ? slurm : host);
}

/* Number the nodes as they appear among the ranks' names. */
static void number_nodes(struct plait_grid *g, char (*names)[64])
{
    int *count = g->partner; /* not in use yet */

    for (int r = 0; r < g->world; r++) {
        int n = r && strcmp(names[r], names[r - 1]) == 0 ? g->node[r - 1] : 0;

        while (n < g->nnodes && strcmp(g->name[n], names[r]) != 0)
            n++;
        if (n == g->nnodes) {
            memcpy(g->name[g->nnodes++], names[r], 64);
            count[n] = 0;
        }
        g->node[r] = n;
        g->local[r] = count[n]++;
    }
    g->width = g->world;
    for (int n = 0; n < g->nnodes; n++)
        g->width = count[n] < g->width ? count[n] : g->width;
    g->even = g->width * g->nnodes == g->world;
    for (int r = 0; r < g->world; r++)
        if (g->local[r] < g->width)
            g->rank[g->node[r] * g->width + g->local[r]] = r;
}

/* Disjoint pairs of nodes `level` apart, or as many as are found by taking
 * the first that fits; returns how many. */
static int pair_up(const struct plait_grid *g, const struct plait_fabric *f,
                   int level, int *partner)
{
    int pairs = 0;

    for (int a = 0; a < g->nnodes; a++)
        partner[a] = -1;
    for (int a = 0; a < g->nnodes; a++)
        for (int b = a + 1; b < g->nnodes && partner[a] < 0; b++) {
            int apart =
                f ? plait_fabric_distance(f, g->name[a], g->name[b]) : 1;

            if (partner[b] >= 0 || apart != level)
                continue;
            partner[a] = b;
            partner[b] = a;
            pairs++;
        }
    return pairs;
}

static int find_levels(struct plait_grid *g, const char *fabric_file,
                       struct plait_error *err)
{
    struct plait_fabric *f = NULL;
    int levels;

    if (fabric_file && !(f = plait_fabric_create(fabric_file, err)))
        return -1;
    levels = f ? plait_fabric_levels(f) + 1 : 1;
    for (int l = 1; l <= levels && g->nlevels < PLAIT_GRID_LEVELS; l++) {
        if (pair_up(g, f, l, g->partner + g->nlevels * g->nnodes) > 0)
            g->level[g->nlevels++] = l;
    }
    plait_fabric_destroy(f);
    return 0;
}

static int share_levels(struct plait_grid *g, struct plait_comm *world)
{
    return plait_comm_host_broadcast(world, &g->nlevels, sizeof(g->nlevels),
                                     0) < 0 ||
                   plait_comm_host_broadcast(world, g->level, sizeof(g->level),
                                             0) < 0 ||
                   plait_comm_host_broadcast(world, g->partner,
                                             (size_t)PLAIT_GRID_LEVELS *
                                                 g->nnodes * sizeof(int),
                                             0) < 0
               ? -1
               : 0;
}

int plait_grid_create(struct plait_grid *g, struct plait_comm *world,
                      const char *fabric_file, struct plait_error *err)
{
    size_t n = (size_t)plait_comm_size(world);
    char own[64], (*names)[64] = malloc(n * sizeof(*names));
    int rc = 0;

    memset(g, 0, sizeof(*g));
    g->world = (int)n;
    g->node = malloc(n * sizeof(int));
    g->local = malloc(n * sizeof(int));
    g->rank = malloc(n * sizeof(int));
    g->name = malloc(n * sizeof(*g->name));
    g->partner = malloc(PLAIT_GRID_LEVELS * n * sizeof(int));
    own_name(own);
    if (!names || !g->node || !g->local || !g->rank || !g->name || !g->partner)
        rc = plait_errorf(err, "out of memory");
    if (plait_agree(world, rc, err) < 0)
        goto error;
    if (plait_comm_host_all_gather(world, own, names, sizeof(own)) < 0) {
        plait_errorf(err, "%s", plait_comm_error(world));
        goto error;
    }
    number_nodes(g, names);
    if (plait_comm_rank(world) == 0)
        rc = find_levels(g, fabric_file, err);
    if (plait_agree(world, rc, err) < 0)
        goto error;
    if (share_levels(g, world) < 0) {
        plait_errorf(err, "%s", plait_comm_error(world));
        goto error;
    }
    free(names);
    return 0;
error:
    free(names);
    return -1;
}

void plait_grid_destroy(struct plait_grid *g)
{
    free(g->node);
    free(g->local);
    free(g->rank);
    free(g->name);
    free(g->partner);
}
