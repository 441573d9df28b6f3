/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/probe/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/probe/fit.h"
#include "runtime/probe/node_map.h"
#include "runtime/probe/timing.h"
#include "topology/node/node.h"
#include "topology/plan/cost.h"

/* One kind of transfer: its times, and the cost model's figures for them. */
struct series {
    char title[24];
    int ranks; /* of an all-reduce; 1: an exchange of two ranks */
    double seconds[PLAIT_TIMING_SIZES];
    double alpha, bandwidth, error; /* bandwidth 0: not fitted */
};

enum { SERIES_MOST = 4 + 2 * PLAIT_NODE_MAP_LEVELS + 16 };

struct measurement {
    struct plait_world *world;
    const struct plait_measure_args *args;
    struct plait_node_map map;
    struct plait_timing timing;
    int rank, node, local;
    int island, islands; /* this rank's island; most islands of a node */
    char gpu_type[16];
    struct series series[SERIES_MOST];
    int nseries;
    const struct series *in_island, *in_node, *rails;
    const struct series *level[PLAIT_NODE_MAP_LEVELS];
};

/* The samples of a series as the cost model counts them (cost.h). */
static int list_samples(const struct measurement *s,
                        const struct series *series,
                        struct plait_sample *samples)
{
    for (int i = 0; i < s->timing.nsizes; i++) {
        double bytes = (double)s->timing.size[i];

        samples[i] = (struct plait_sample){1, bytes, series->seconds[i]};
        if (series->ranks > 1) {
            samples[i].rounds = plait_cost_allreduce(series->ranks, 0, 1, 1);
            samples[i].bytes = plait_cost_allreduce(series->ranks, bytes, 0, 1);
        }
    }
    return s->timing.nsizes;
}

/* Collective: the times are those of all ranks. */
static int fit_series(struct measurement *s, struct series *series,
                      struct plait_error *err)
{
    struct plait_sample samples[PLAIT_TIMING_SIZES];
    int n = list_samples(s, series, samples);
    int rc = plait_fit(samples, n, &series->alpha, &series->bandwidth);

    if (rc < 0)
        plait_errorf(err,
                     "%s: the times do not grow with the messages; give a "
                     "larger --max-bytes",
                     series->title);
    if (plait_error_consensus(s->world->comm, rc, err) < 0)
        return -1;
    series->error =
        plait_fit_error(samples, n, series->alpha, series->bandwidth);
    return 0;
}

static struct series *add_series(struct measurement *s, int ranks)
{
    struct series *series = &s->series[s->nseries++];

    series->ranks = ranks;
    return series;
}

static int share_greatest(struct measurement *s, double *value,
                          struct plait_error *err)
{
    if (plait_comm_host_all_reduce(s->world->comm, value, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(s->world->comm));
    return 0;
}

/* -- all-reduces --------------------------------------------------------- */

/* Every group of ranks with the same `color` makes an all-reduce, all groups at
 * once. `axis` is that of the trainer's group that makes its sums this way, so
 * that NCCL gets the same settings here. */
static int measure_all_reduce(struct measurement *s, struct series *series,
                              enum plait_comm_axis axis, int color,
                              struct plait_error *err)
{
    struct plait_comm *comm = NULL;
    double size = 0;
    const struct plait_split probe = {
        .color = color, .key = s->rank, .axis = axis, .name = "probe"};
    int rc = plait_comm_split(s->world->comm, &probe, &comm, err);

    rc = plait_error_consensus(s->world->comm, rc, err);
    if (rc == 0 && comm)
        size = plait_comm_size(comm);
    if (rc == 0)
        rc = share_greatest(s, &size, err);
    series->ranks = (int)size;
    if (rc == 0 &&
        plait_timing_reduce(&s->timing,
                            comm && plait_comm_size(comm) > 1 ? comm : NULL,
                            series->seconds, err) < 0)
        rc = PLAIT_MEASURE_BROKEN;
    plait_comm_destroy(comm);
    return rc < 0 ? rc : fit_series(s, series, err);
}

static int measure_node(struct measurement *s, struct plait_error *err)
{
    const struct plait_node_map *map = &s->map;
    int takes_part = s->local < map->width, rc;
    struct series *series;

    if (map->width < 2)
        return 0;
    s->in_node = series = add_series(s, map->width);
    snprintf(series->title, sizeof(series->title), "node all-reduce");
    rc = measure_all_reduce(s, series, PLAIT_COMM_AXIS_TP,
                            takes_part ? s->node : -1, err);
    if (rc < 0 || s->islands < 2 || s->islands >= map->width)
        return rc;
    s->in_island = series = add_series(s, map->width);
    snprintf(series->title, sizeof(series->title), "island all-reduce");
    return measure_all_reduce(
        s, series, PLAIT_COMM_AXIS_TP,
        takes_part ? s->node * s->islands + s->island : -1, err);
}

static int measure_rails(struct measurement *s, struct plait_error *err)
{
    const struct plait_node_map *map = &s->map;
    struct series *series;

    if (map->nnodes < 2)
        return 0;
    s->rails = series = add_series(s, map->nnodes);
    snprintf(series->title, sizeof(series->title), "rails all-reduce");
    return measure_all_reduce(s, series, PLAIT_COMM_AXIS_DP,
                              s->local < map->width ? s->local : -1, err);
}

/* -- pairs --------------------------------------------------------------- */

static int measure_exchange(struct measurement *s, struct series *series,
                            int peer, struct plait_error *err)
{
    if (plait_timing_exchange(&s->timing, peer, series->seconds, err) < 0)
        return PLAIT_MEASURE_BROKEN;
    return fit_series(s, series, err);
}

static int measure_pair(struct measurement *s, struct plait_error *err)
{
    struct series *series;
    int peer = -1;

    if (s->map.width < 2)
        return 0;
    series = add_series(s, 1);
    snprintf(series->title, sizeof(series->title), "node pair");
    if (s->node == 0 && s->local < 2)
        peer = s->map.rank[1 - s->local];
    return measure_exchange(s, series, peer, err);
}

/* `groups` ranks of each node exchange messages with those of the node's
 * partner: on all nodes, or only on the first pair. */
static int measure_partners(struct measurement *s, int level, int groups,
                            int all, struct series **out,
                            struct plait_error *err)
{
    const struct plait_node_map *map = &s->map;
    const int *partner = map->partner + level * map->nnodes;
    struct series *series = add_series(s, 1);
    int first = 0, peer = -1, other = partner[s->node];

    while (partner[first] < 0)
        first++;
    if (other >= 0 && s->local < groups &&
        (all || s->node == first || other == first))
        peer = map->rank[other * map->width + s->local];
    snprintf(series->title, sizeof(series->title),
             all           ? "level %d, all"
             : groups == 1 ? "level %d, 1 pair"
                           : "level %d, %d pairs",
             map->level[level], groups);
    *out = series;
    return measure_exchange(s, series, peer, err);
}

static int measure_levels(struct measurement *s, struct plait_error *err)
{
    struct series *series;
    int rc = 0;

    for (int i = 0; rc == 0 && i < s->map.nlevels; i++) {
        for (int groups = 1; rc == 0 && (groups < s->map.width || groups == 1);
             groups *= 2) {
            rc = measure_partners(s, i, groups, 0, &series, err);
            if (i > 0) /* the NIC is the same at every level */
                break;
        }
        if (rc == 0)
            rc = measure_partners(s, i, s->map.width, 1, &series, err);
        s->level[i] = series;
    }
    return rc;
}

/* -- the type of the GPUs ------------------------------------------------ */

/* Find the type and the island of this rank's GPU. CPUs have no islands. */
static int find_gpu_type(struct measurement *s, struct plait_error *err)
{
    int gpu = s->world->planned && s->world->launch.gpu >= 0
                  ? s->world->launch.gpu
                  : s->local;
    const char *type = "cpu";
    struct plait_node *node;

    s->islands = 1;
    if (s->world->ops->gpu) {
        node = plait_node_create(1, err);
        if (!node)
            return -1;
        type = NULL;
        if (gpu < node->ngpus) {
            type = plait_gpu_type_of(&node->gpus[gpu]);
            s->island = node->gpus[gpu].island;
            s->islands = node->nislands;
        }
        if (!type && !s->args->gpu_type)
            plait_errorf(err,
                         "this GPU (%s) has no table yet; name the "
                         "nearest with --gpu-type: %s",
                         gpu < node->ngpus ? node->gpus[gpu].model : "unknown",
                         plait_gpu_type_names());
        plait_node_destroy(node);
    }
    if (s->args->gpu_type)
        type = s->args->gpu_type;
    if (!type)
        return -1;
    snprintf(s->gpu_type, sizeof(s->gpu_type), "%s", type);
    return 0;
}

/* All ranks need the same number: measuring the islands is collective. */
static int share_islands(struct measurement *s, struct plait_error *err)
{
    double most = s->islands;
    int rc = share_greatest(s, &most, err);

    s->islands = (int)most;
    return rc;
}

/* -- the site file ------------------------------------------------------- */

static void print_figure(FILE *out, const char *key, double value,
                         const char *how, double error)
{
    fprintf(out, "    %s: %.6g # %s", key, value, how);
    if (error > 0)
        fprintf(out, ", +-%.0f %%", 100 * error);
    fputc('\n', out);
}

static void print_links(const struct measurement *s, FILE *out)
{
    const struct series *link = s->in_island ? s->in_island : s->in_node;

    if (!link)
        return;
    print_figure(out, "link_gbytes_s", link->bandwidth / 1e9, link->title,
                 link->error);
    print_figure(out, "link_us", link->alpha * 1e6, link->title, 0);
    if (s->islands > 1)
        print_figure(out, "host_gbytes_s", s->in_node->bandwidth / 1e9,
                     s->in_node->title, s->in_node->error);
}

/* Print what switch levels above the first add, by the cost model's rule: alpha
 * grows by hop_us for each level, and the bandwidth is divided by
 * oversubscription. */
static void print_network(const struct measurement *s, FILE *out)
{
    const struct plait_node_map *map = &s->map;
    const struct series *first = s->level[0];
    double hop = 0, over = 0, steps = 0;

    if (!first)
        return;
    print_figure(out, "nic_gbytes_s", first->bandwidth / 1e9, first->title,
                 first->error);
    print_figure(out, "nic_us", first->alpha * 1e6, first->title, 0);
    for (int i = 1; i < map->nlevels; i++) {
        double up = map->level[i] - map->level[0];

        /* least squares through (0, 0) */
        hop += up * (s->level[i]->alpha - first->alpha);
        over += up * log(first->bandwidth / s->level[i]->bandwidth);
        steps += up * up;
    }
    if (map->nlevels < 2)
        return;
    print_figure(out, "hop_us", hop > 0 ? 1e6 * hop / steps : 0,
                 "what a level more takes", 0);
    print_figure(out, "oversubscription", over > 0 ? exp(over / steps) : 1,
                 "what a level less carries", 0);
}

static void print_table(const struct measurement *s, FILE *out)
{
    fprintf(out, "#\n# microseconds, the median of %d:\n# %-20s",
            s->timing.repeat, "bytes");
    for (int k = 0; k < s->timing.nsizes; k++)
        fprintf(out, " %9zu", s->timing.size[k]);
    fprintf(out, "       us      GB/s  off by\n");
    for (int i = 0; i < s->nseries; i++) {
        const struct series *series = &s->series[i];

        fprintf(out, "# %-20s", series->title);
        for (int k = 0; k < s->timing.nsizes; k++)
            fprintf(out, " %9.1f", 1e6 * series->seconds[k]);
        fprintf(out, " %8.2f %9.3f %5.0f %%\n", 1e6 * series->alpha,
                series->bandwidth / 1e9, 100 * series->error);
    }
}

/* Print how far the figures that were fitted to pairs are from the times of an
 * all-reduce. */
static void print_check(const struct measurement *s, FILE *out)
{
    const struct series *pairs = s->level[0];
    struct plait_sample samples[PLAIT_TIMING_SIZES];
    int n;

    if (!s->rails || !pairs || s->map.nlevels > 1)
        return;
    n = list_samples(s, s->rails, samples);
    fprintf(out,
            "# the all-reduces between nodes, from the figures of pairs: off "
            "by %.0f %%\n",
            100 * plait_fit_error(samples, n, pairs->alpha, pairs->bandwidth));
}

static void print_site(const struct measurement *s, FILE *out)
{
    const struct plait_node_map *map = &s->map;

    fprintf(out,
            "# written by plait probe: %d ranks on %d node%s, %s\n"
            "gpu_type: %s\ngpu_types:\n  %s:\n%s%s%s    per_node: %d\n",
            map->world, map->nnodes, map->nnodes == 1 ? "" : "s",
            s->world->ops->gpu ? "NCCL" : "MPI", s->gpu_type, s->gpu_type,
            s->args->like ? "    like: " : "",
            s->args->like ? s->args->like : "", s->args->like ? "\n" : "",
            map->width);
    print_links(s, out);
    print_network(s, out);
    print_table(s, out);
    print_check(s, out);
}

static int prepare_measurement(struct measurement *s, struct plait_error *err)
{
    if (plait_comm_size(s->world->comm) < 2)
        return plait_errorf(err, "one process has no links to measure; start "
                                 "one per GPU, as in srun --tp=8 plait-probe "
                                 "or mpirun -np 8 plait-probe");
    if (plait_node_map_create(&s->map, s->world->comm, s->args->fabric, err) <
        0)
        return -1;
    s->rank = plait_comm_rank(s->world->comm);
    s->node = s->map.node[s->rank];
    s->local = s->map.local[s->rank];
    if (plait_error_consensus(s->world->comm, find_gpu_type(s, err), err) < 0 ||
        share_islands(s, err) < 0)
        return -1;
    return plait_error_consensus(s->world->comm,
                                 plait_timing_open(&s->timing, s->world,
                                                   (size_t)s->args->max_bytes,
                                                   (int)s->args->repeat, err),
                                 err);
}

int plait_measure_run(struct plait_world *world,
                      const struct plait_measure_args *args, FILE *out,
                      struct plait_error *err)
{
    struct measurement s = {.world = world, .args = args};
    int rc = prepare_measurement(&s, err);

    if (rc == 0)
        rc = measure_pair(&s, err);
    if (rc == 0)
        rc = measure_node(&s, err);
    if (rc == 0)
        rc = measure_levels(&s, err);
    if (rc == 0)
        rc = measure_rails(&s, err);
    if (rc == 0 && out)
        print_site(&s, out);
    if (s.timing.world)
        plait_timing_close(&s.timing);
    plait_node_map_destroy(&s.map);
    return rc;
}
