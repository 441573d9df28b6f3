/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/plan/cost_pattern.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum plait_group ring_of(enum plait_axis axis)
{
    return axis == PLAIT_DP ? PLAIT_GROUP_DP_CP : (enum plait_group)axis;
}

static int compare_edges(const void *a, const void *b)
{
    const struct order_edge *x = a, *y = b;

    return x->from != y->from ? (x->from < y->from ? -1 : 1)
                              : (x->to > y->to) - (x->to < y->to);
}

/* Equal edges become one with their count. */
static void merge_edges(struct order_pattern *p)
{
    int n = 0;

    qsort(p->edge, (size_t)p->nedges, sizeof(*p->edge), compare_edges);
    for (int i = 0; i < p->nedges; i++) {
        if (n && compare_edges(&p->edge[n - 1], &p->edge[i]) == 0)
            p->edge[n - 1].count++;
        else
            p->edge[n++] = p->edge[i];
    }
    p->nedges = n;
}

/* One group's ring, or its members for an all-to-all. Members ascend, so
 * those on one node follow each other. */
static void add_group(struct order_pattern *p, enum plait_axis axis,
                      const int *position, const int *members, int n)
{
    int run = 0, span = 0;

    for (int k = 0; k < n; k++) {
        int at = position[members[k]];
        int to = position[members[(k + 1) % n]];

        run = k && position[members[k - 1]] == at ? run + 1 : 1;
        span += run == 1;
        if (run > p->local)
            p->local = run;
        if (axis == PLAIT_EP)
            p->member[p->nmembers++] = at;
        else if (at != to && !(axis == PLAIT_PP && k == n - 1))
            p->edge[p->nedges++] = (struct order_edge){at, to, 1};
    }
    if (span > p->span)
        p->span = span;
}

static int build_pattern(struct plait_orders *o, enum plait_axis axis)
{
    struct order_pattern *p = &o->pattern[axis];
    enum plait_group group = ring_of(axis);
    size_t world = (size_t)o->world;

    p->n = plait_layout_group(&o->layout, group, 0, NULL);
    p->local = p->span = p->nedges = p->nmembers = 0;
    if (p->n < 2)
        return 0;
    if (!p->edge && axis != PLAIT_EP &&
        !(p->edge = malloc(world * sizeof(*p->edge))))
        return -1;
    if (!p->member && axis == PLAIT_EP &&
        !(p->member = malloc(world * sizeof(*p->member))))
        return -1;
    memset(o->seen, 0, world);
    for (int rank = 0; rank < o->world; rank++) {
        if (o->seen[rank])
            continue;
        plait_layout_group(&o->layout, group, rank, o->members);
        for (int k = 0; k < p->n; k++)
            o->seen[o->members[k]] = 1;
        add_group(p, axis, o->position, o->members, p->n);
    }
    if (axis != PLAIT_EP)
        merge_edges(p);
    return 0;
}

int orders_build_patterns(struct plait_orders *o, const int *order)
{
    int rank = 0;

    for (int i = 0; i < o->nnodes; i++)
        for (int k = 0; k < o->tasks[order ? order[i] : i]; k++)
            o->position[rank++] = i;
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (o->traffic.calls[i] > 0 && build_pattern(o, (enum plait_axis)i) < 0)
            return -1;
    return 0;
}

/* Bytes/s of the NICs that some GPU uses; 0 unless the speed of each is
 * known. */
static double known_nics(const struct plait_node *node)
{
    double sum = 0;

    for (int i = 0; i < node->nnics; i++) {
        int used = 0;

        for (int g = 0; g < node->ngpus; g++)
            for (int k = 0; k < node->gpus[g].nnics; k++)
                used |= node->gpus[g].nics[k] == i;
        if (used && node->nics[i].gbps <= 0)
            return 0;
        sum += used ? node->nics[i].gbps * 1e9 : 0;
    }
    return sum;
}

static int load_fabric(struct plait_orders *o,
                       const struct plait_plan_request *request)
{
    const struct plait_fabric *f = request->fabric;
    size_t nodes = (size_t)o->nnodes, n;

    o->nswitches = f ? plait_fabric_switches(f) : 0;
    o->levels = f ? plait_fabric_levels(f) : 0;
    o->blocks = f && plait_fabric_has_blocks(f);
    n = (size_t)o->nswitches + 1;
    o->parent = malloc(n * sizeof(int));
    o->height = malloc(n * sizeof(int));
    o->leaf = malloc(nodes * sizeof(int));
    o->class = malloc(nodes * sizeof(int));
    o->capacity = calloc(n, sizeof(double));
    o->out = malloc(n * sizeof(double));
    o->in = malloc(n * sizeof(double));
    if (!o->parent || !o->height || !o->leaf || !o->class || !o->capacity ||
        !o->out || !o->in)
        return -1;
    for (int i = 0; i < o->nswitches; i++) {
        o->parent[i] = plait_fabric_parent(f, i);
        o->height[i] = plait_fabric_height(f, i);
    }
    for (int i = 0; i < o->nnodes; i++) {
        o->leaf[i] = f ? plait_fabric_leaf(f, request->nodes[i]) : -1;
        for (int s = o->leaf[i]; s >= 0; s = o->parent[s])
            o->capacity[s] += orders_node_bandwidth(o, i) /
                              pow(o->gpu.oversubscription, o->height[s]);
    }
    return 0;
}

/* Number the (leaf, tasks) pairs by first appearance. */
static int classify(struct plait_orders *o)
{
    int *last = malloc(((size_t)o->nswitches + 1) * sizeof(*last));
    int *previous = malloc((size_t)o->nnodes * sizeof(*previous));

    if (!last || !previous) {
        free(last);
        free(previous);
        return -1;
    }
    for (int i = 0; i <= o->nswitches; i++)
        last[i] = -1;
    for (int i = 0; i < o->nnodes; i++) {
        int *bucket = &last[o->leaf[i] + 1];
        int same = *bucket;

        /* one representative per class is chained below its leaf */
        while (same >= 0 && o->tasks[same] != o->tasks[i])
            same = previous[same];
        if (same >= 0) {
            o->class[i] = o->class[same];
            continue;
        }
        o->class[i] = o->nclasses++;
        previous[i] = *bucket;
        *bucket = i;
    }
    free(last);
    free(previous);
    return 0;
}

static int smallest_island(const struct plait_node *node)
{
    int smallest = node->ngpus;

    for (int i = 0; i < node->nislands; i++) {
        int n = 0;

        for (int k = 0; k < node->ngpus; k++)
            n += node->gpus[k].island == i;
        if (n && n < smallest)
            smallest = n;
    }
    return smallest;
}

struct plait_orders *
plait_orders_create(const struct plait_plan_request *request,
                    const struct plait_layout *layout)
{
    struct plait_orders *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    o->layout = *layout;
    o->nnodes = request->nnodes;
    o->tasks = request->tasks;
    o->world = plait_layout_world(layout);
    if (request->traffic)
        o->traffic = *request->traffic;
    else
        plait_traffic_default(&o->traffic, layout);
    if (request->gpu)
        o->gpu = *request->gpu;
    else
        plait_gpu_type_find("h100", &o->gpu, NULL);
    o->nics = request->node ? known_nics(request->node) : 0;
    o->island = request->node && request->node->ngpus
                    ? smallest_island(request->node)
                    : o->world;
    o->even = 1;
    for (int i = 1; i < o->nnodes; i++)
        o->even &= o->tasks[i] == o->tasks[0];
    o->position = malloc((size_t)o->world * sizeof(int));
    o->members = malloc((size_t)o->world * sizeof(int));
    o->seen = malloc((size_t)o->world);
    o->node_out = malloc((size_t)o->nnodes * sizeof(double));
    if (!o->position || !o->members || !o->seen || !o->node_out ||
        load_fabric(o, request) < 0 || classify(o) < 0 ||
        orders_build_patterns(o, NULL) < 0) {
        plait_orders_destroy(o);
        return NULL;
    }
    return o;
}

void plait_orders_destroy(struct plait_orders *o)
{
    int saved = errno;

    if (!o)
        return;
    for (int i = 0; i < PLAIT_NAXES; i++) {
        free(o->pattern[i].edge);
        free(o->pattern[i].member);
    }
    free(o->parent);
    free(o->height);
    free(o->leaf);
    free(o->class);
    free(o->capacity);
    free(o->out);
    free(o->in);
    free(o->node_out);
    free(o->position);
    free(o->members);
    free(o->seen);
    free(o);
    errno = saved;
}

const int *plait_orders_class(const struct plait_orders *o, int *nclasses)
{
    *nclasses = o->nclasses;
    return o->class;
}

int plait_orders_edges(const struct plait_orders *o)
{
    int n = o->nswitches;

    for (int i = 0; i < PLAIT_NAXES; i++)
        n += o->pattern[i].nedges + o->pattern[i].nmembers;
    return n;
}
