/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are on which node, and how many switch levels lie between. */
#include "runtime/probe/node_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/consensus.h"
#include "topology/fabric/fabric.h"

/* This node's name in Slurm. */
static void own_name(char name[64])
{
    const char *slurm = getenv("SLURMD_NODENAME");
    char host[256] = "localhost";

    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = '\0';
    memset(name, 0, 64);
    snprintf(name, 64, "%.63s", slurm && *slurm ? slurm : host);
}

/* Number the nodes as they appear among the ranks' names. */
static void number_nodes(struct plait_node_map *map, char (*names)[64])
{
    int *count = map->partner; /* not in use yet */

    for (int r = 0; r < map->world; r++) {
        int n = r && strcmp(names[r], names[r - 1]) == 0 ? map->node[r - 1] : 0;

        while (n < map->nnodes && strcmp(map->name[n], names[r]) != 0)
            n++;
        if (n == map->nnodes) {
            memcpy(map->name[map->nnodes++], names[r], 64);
            count[n] = 0;
        }
        map->node[r] = n;
        map->local[r] = count[n]++;
    }
    map->width = map->world;
    for (int n = 0; n < map->nnodes; n++)
        map->width = count[n] < map->width ? count[n] : map->width;
    for (int r = 0; r < map->world; r++)
        if (map->local[r] < map->width)
            map->rank[map->node[r] * map->width + map->local[r]] = r;
}

/* Find disjoint pairs of nodes `level` apart, taking the first partner that
 * fits; returns how many. */
static int pair_up(const struct plait_node_map *map,
                   const struct plait_fabric *f, int level, int *partner)
{
    int pairs = 0;

    for (int a = 0; a < map->nnodes; a++)
        partner[a] = -1;
    for (int a = 0; a < map->nnodes; a++)
        for (int b = a + 1; b < map->nnodes && partner[a] < 0; b++) {
            int apart =
                f ? plait_fabric_distance(f, map->name[a], map->name[b]) : 1;

            if (partner[b] >= 0 || apart != level)
                continue;
            partner[a] = b;
            partner[b] = a;
            pairs++;
        }
    return pairs;
}

static int find_levels(struct plait_node_map *map, const char *fabric_file,
                       struct plait_error *err)
{
    struct plait_fabric *f = NULL;
    int levels;

    if (fabric_file && !(f = plait_fabric_create(fabric_file, err)))
        return -1;
    levels = f ? plait_fabric_levels(f) + 1 : 1;
    for (int l = 1; l <= levels && map->nlevels < PLAIT_NODE_MAP_LEVELS; l++) {
        if (pair_up(map, f, l, map->partner + map->nlevels * map->nnodes) > 0)
            map->level[map->nlevels++] = l;
    }
    plait_fabric_destroy(f);
    return 0;
}

static int share_levels(struct plait_node_map *map, struct plait_comm *world)
{
    return plait_comm_host_broadcast(world, &map->nlevels, sizeof(map->nlevels),
                                     0) < 0 ||
                   plait_comm_host_broadcast(world, map->level,
                                             sizeof(map->level), 0) < 0 ||
                   plait_comm_host_broadcast(world, map->partner,
                                             (size_t)PLAIT_NODE_MAP_LEVELS *
                                                 map->nnodes * sizeof(int),
                                             0) < 0
               ? -1
               : 0;
}

int plait_node_map_create(struct plait_node_map *map, struct plait_comm *world,
                          const char *fabric_file, struct plait_error *err)
{
    size_t n = (size_t)plait_comm_size(world);
    char own[64], (*names)[64] = malloc(n * sizeof(*names));
    int rc = 0;

    memset(map, 0, sizeof(*map));
    map->world = (int)n;
    map->node = malloc(n * sizeof(int));
    map->local = malloc(n * sizeof(int));
    map->rank = malloc(n * sizeof(int));
    map->name = malloc(n * sizeof(*map->name));
    map->partner = malloc(PLAIT_NODE_MAP_LEVELS * n * sizeof(int));
    own_name(own);
    if (!names || !map->node || !map->local || !map->rank || !map->name ||
        !map->partner)
        rc = plait_errorf(err, "out of memory");
    if (plait_error_consensus(world, rc, err) < 0)
        goto error;
    if (plait_comm_host_all_gather(world, own, names, sizeof(own)) < 0) {
        plait_errorf(err, "%s", plait_comm_error(world));
        goto error;
    }
    number_nodes(map, names);
    if (plait_comm_rank(world) == 0)
        rc = find_levels(map, fabric_file, err);
    if (plait_error_consensus(world, rc, err) < 0)
        goto error;
    if (share_levels(map, world) < 0) {
        plait_errorf(err, "%s", plait_comm_error(world));
        goto error;
    }
    free(names);
    return 0;
error:
    free(names);
    return -1;
}

void plait_node_map_destroy(struct plait_node_map *map)
{
    free(map->node);
    free(map->local);
    free(map->rank);
    free(map->name);
    free(map->partner);
}
