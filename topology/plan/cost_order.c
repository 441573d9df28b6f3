/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/plan/cost_order.h"

#include <stdlib.h>
#include <string.h>

#include "topology/plan/cost_pattern.h"

/* The seconds that a step's communication takes if the nodes stand in a given
 * order. Along each axis all groups communicate at the same time, by the same
 * pattern: a ring (edges from node to node), or all with all inside a group.
 * Each edge loads the node that it leaves and every switch on its way; the
 * busiest of them decides how long a byte takes, and the highest switch that is
 * crossed decides the latency. Axes take turns, so that their seconds are added
 * up.
 *
 * place.c calls it for some thousand orders. The patterns do not depend on the
 * order where all nodes have equally many tasks (`even`), and are then made
 * once. */

/* How busy the network is along one axis: seconds per byte of an edge on the
 * busiest node or switch, and the highest level crossed. */
struct load {
    double per_byte;
    int level;
};

static void clear_scratch(struct plait_orders *o)
{
    memset(o->out, 0, (size_t)o->nswitches * sizeof(double));
    memset(o->in, 0, (size_t)o->nswitches * sizeof(double));
    memset(o->node_out, 0, (size_t)o->nnodes * sizeof(double));
}

/* Charge an edge to every switch it leaves or enters. Returns the level that
 * joins its ends. */
static int charge_edge(struct plait_orders *o, int a, int b, double count)
{
    int x = o->leaf[a], y = o->leaf[b];

    while (x != y && x >= 0 && y >= 0) {
        if (o->height[x] <= o->height[y]) {
            o->out[x] += count;
            x = o->parent[x];
        } else {
            o->in[y] += count;
            y = o->parent[y];
        }
    }
    for (; x != y && x >= 0; x = o->parent[x])
        o->out[x] += count;
    for (; x != y && y >= 0; y = o->parent[y])
        o->in[y] += count;
    return x >= 0 ? o->height[x] : o->levels + 1;
}

static void charge_ring(struct plait_orders *o, const struct order_pattern *p,
                        const int *order, struct load *load)
{
    for (int i = 0; i < p->nedges; i++) {
        const struct order_edge *e = &p->edge[i];
        int level = charge_edge(o, order[e->from], order[e->to], e->count);

        o->node_out[e->from] += e->count;
        if (level > load->level)
            load->level = level;
    }
}

/* A switch or node with k of a group's n members sends k (n-k)/n shares: the
 * members are counted on the way up, then charged and uncounted. */
static void charge_group(struct plait_orders *o, const struct order_pattern *p,
                         const int *member, const int *order, struct load *load)
{
    double n = p->n;

    for (int k = 0; k < p->n; k++)
        for (int s = o->leaf[order[member[k]]]; s >= 0; s = o->parent[s])
            o->in[s] += 1;
    for (int k = 0; k < p->n; k++) {
        int s = o->leaf[order[member[k]]], same = 0;

        for (int j = k; j >= 0 && member[j] == member[k]; j--)
            same++;
        for (int j = k + 1; j < p->n && member[j] == member[k]; j++)
            same++;
        o->node_out[member[k]] += (n - same) / n;
        while (s >= 0 && o->in[s] < n) {
            o->out[s] += (n - o->in[s]) / n;
            s = o->parent[s];
        }
        if (same < p->n) {
            int level = s >= 0 ? o->height[s] : o->levels + 1;

            if (level > load->level)
                load->level = level;
        }
    }
    for (int k = 0; k < p->n; k++)
        for (int s = o->leaf[order[member[k]]]; s >= 0; s = o->parent[s])
            o->in[s] = 0;
}

/* An NVLink domain that spans nodes carries what stays inside a block. */
static double link_bandwidth(const struct plait_orders *o, int level)
{
    return o->blocks && level == 1
               ? o->gpu.link_bw * o->tasks[0] / orders_node_bandwidth(o, 0)
               : 1;
}

static struct load charge_axis(struct plait_orders *o,
                               const struct order_pattern *p, const int *order)
{
    struct load load = {0, 0};
    double link;

    clear_scratch(o);
    if (p->member)
        for (int i = 0; i < p->nmembers; i += p->n)
            charge_group(o, p, p->member + i, order, &load);
    else
        charge_ring(o, p, order, &load);
    link = link_bandwidth(o, load.level);
    for (int i = 0; i < o->nnodes; i++) {
        double t = o->node_out[i] / (orders_node_bandwidth(o, order[i]) * link);

        if (t > load.per_byte)
            load.per_byte = t;
    }
    for (int s = 0; s < o->nswitches; s++) {
        double busy = o->out[s] > o->in[s] ? o->out[s] : o->in[s];

        if (busy > 0 && busy / o->capacity[s] > load.per_byte)
            load.per_byte = busy / o->capacity[s];
    }
    return load;
}

/* Seconds of all calls along an axis, given the load on the network. */
static double axis_seconds(const struct plait_orders *o, enum plait_axis axis,
                           struct load load)
{
    const struct order_pattern *p = &o->pattern[axis];
    double bytes = o->traffic.bytes[axis], calls = o->traffic.calls[axis];
    double inside = p->local < 2           ? 0
                    : p->local > o->island ? 1 / o->gpu.host_bw
                                           : 1 / o->gpu.link_bw;
    double per_byte = load.per_byte > inside ? load.per_byte : inside;
    double alpha = o->gpu.link_alpha;

    if (p->n < 2 || calls <= 0)
        return 0;
    if (load.level > 0 && !(o->blocks && load.level == 1))
        alpha = o->gpu.nic_alpha + (load.level - 1) * o->gpu.hop_alpha;
    switch (axis) {
    case PLAIT_CP:
        return calls * (p->n - 1) * (alpha + bytes * per_byte);
    case PLAIT_PP:
        return 2 * calls * (alpha + bytes * per_byte);
    case PLAIT_EP:
        /* per_byte counts shares of the all-to-all on the network already */
        return calls * ((p->n - 1) * alpha + bytes * per_byte);
    default:
        return calls * plait_cost_allreduce(p->n, bytes, alpha, 1 / per_byte);
    }
}

double plait_orders_cost(struct plait_orders *o, const int *order,
                         struct plait_cost *cost)
{
    double sum = 0;

    if (!o->even && orders_build_patterns(o, order) < 0)
        return -1;
    for (int i = 0; i < PLAIT_NAXES; i++) {
        struct load load = {0, 0};

        if (o->pattern[i].n > 1)
            load = charge_axis(o, &o->pattern[i], order);
        cost->axis[i] = axis_seconds(o, (enum plait_axis)i, load);
        sum += cost->axis[i];
    }
    cost->step = sum;
    return sum;
}

/* The lowest level with a switch of at least `span` of the job's nodes. */
static int lowest_level(const struct plait_orders *o, int span)
{
    int *below = calloc((size_t)o->nswitches + 1, sizeof(*below));
    int level = o->levels + 1;

    if (!below)
        return 0; /* still a bound */
    for (int i = 0; i < o->nnodes; i++)
        for (int s = o->leaf[i]; s >= 0; s = o->parent[s])
            below[s]++;
    for (int s = 0; s < o->nswitches; s++)
        if (below[s] >= span && o->height[s] < level)
            level = o->height[s];
    free(below);
    return span < 2 ? 0 : level;
}

/* A lower bound: in any order the edges that leave a node share its network,
 * and a group of k nodes needs a switch with k nodes below it. */
double plait_orders_bound(struct plait_orders *o)
{
    double sum = 0;

    for (int i = 0; i < PLAIT_NAXES; i++) {
        const struct order_pattern *p = &o->pattern[i];
        struct load load = {0, 0};
        double most = 0;

        if (p->n < 2)
            continue;
        load.level = lowest_level(o, p->span);
        for (int k = 0; k < o->nnodes; k++)
            if (orders_node_bandwidth(o, k) > most)
                most = orders_node_bandwidth(o, k);
        memset(o->node_out, 0, (size_t)o->nnodes * sizeof(double));
        for (int k = 0; k < p->nedges; k++)
            o->node_out[p->edge[k].from] += p->edge[k].count;
        for (int k = 0; o->even && k < o->nnodes; k++) {
            double t = o->node_out[k] / (most * link_bandwidth(o, load.level));

            if (t > load.per_byte)
                load.per_byte = t;
        }
        sum += axis_seconds(o, (enum plait_axis)i, load);
    }
    return sum;
}
