/* SPDX-License-Identifier: Apache-2.0 */
#include "cost_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ring edges between nodes, and members of all-to-all groups, in terms of
 * positions (NODE_RANKs): where nodes have equally many tasks they do not
 * depend on which node sits where. */
struct edge {
    int from, to, count;
};

struct pattern {
    int n;     /* ranks of a group; 1: nothing to pay */
    int local; /* most members of a group on one node */
    int span;  /* most nodes of a group */
    struct edge *edge;
    int nedges;
    int *member; /* all-to-all: positions, n after n */
    int nmembers;
};

struct plait_orders {
    struct plait_layout layout;
    struct plait_traffic traffic;
    struct plait_gpu_type gpu;
    int nnodes, world, even, island;
    double nics; /* bytes/s of a node's NICs, 0 unknown */
    const int *tasks;
    struct pattern pattern[PLAIT_NAXES];
    /* the fabric: switches and, per node, the leaf */
    int nswitches;
    int *parent, *height, *leaf, *class;
    int nclasses, levels, blocks;
    double *capacity; /* [switches] bytes/s to the outside */
    /* scratch of one evaluation */
    int *position;    /* [world] position of a rank */
    double *out, *in; /* [switches] */
    double *node_out; /* [positions] */
    int *members;     /* [world] */
    char *seen;       /* [world] */
};

static enum plait_group ring_of(enum plait_axis axis)
{
    return axis == PLAIT_DP ? PLAIT_GROUP_DP_CP : (enum plait_group)axis;
}

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;

    return x->from != y->from ? (x->from < y->from ? -1 : 1)
                              : (x->to > y->to) - (x->to < y->to);
}

/* Equal edges become one with their count. */
static void merge_edges(struct pattern *p)
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
static void add_group(struct pattern *p, enum plait_axis axis,
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
            p->edge[p->nedges++] = (struct edge){at, to, 1};
    }
    if (span > p->span)
        p->span = span;
}

static int build_pattern(struct plait_orders *o, enum plait_axis axis)
{
    struct pattern *p = &o->pattern[axis];
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

static int build_patterns(struct plait_orders *o, const int *order)
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

/* Network bytes/s of a node: its NICs where they are known, a share for
 * every task otherwise. */
static double node_bandwidth(const struct plait_orders *o, int node)
{
    return o->nics > 0 ? o->nics : o->tasks[node] * o->gpu.nic_bw;
}

/* Those NICs that some GPU uses; 0 unless the speed of each is known. */
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
            o->capacity[s] += node_bandwidth(o, i) /
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
        build_patterns(o, NULL) < 0) {
        plait_orders_destroy(o);
        return NULL;
    }
    return o;
}

void plait_orders_destroy(struct plait_orders *o)
{
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

/* How busy the network gets along one axis: seconds per byte of an edge on
 * the busiest node or switch, and the highest level crossed. */
struct load {
    double per_byte;
    int level;
};

static void clear(struct plait_orders *o)
{
    memset(o->out, 0, (size_t)o->nswitches * sizeof(double));
    memset(o->in, 0, (size_t)o->nswitches * sizeof(double));
    memset(o->node_out, 0, (size_t)o->nnodes * sizeof(double));
}

/* Charge an edge to every switch it leaves or enters; the level joining. */
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

static void charge_ring(struct plait_orders *o, const struct pattern *p,
                        const int *order, struct load *load)
{
    for (int i = 0; i < p->nedges; i++) {
        const struct edge *e = &p->edge[i];
        int level = charge_edge(o, order[e->from], order[e->to], e->count);

        o->node_out[e->from] += e->count;
        if (level > load->level)
            load->level = level;
    }
}

/* A switch or node with k of a group's n members sends k (n-k)/n shares: the
 * members are counted on the way up, then charged and uncounted. */
static void charge_group(struct plait_orders *o, const struct pattern *p,
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
               ? o->gpu.link_bw * o->tasks[0] / node_bandwidth(o, 0)
               : 1;
}

static struct load charge(struct plait_orders *o, const struct pattern *p,
                          const int *order)
{
    struct load load = {0, 0};

    clear(o);
    if (p->member)
        for (int i = 0; i < p->nmembers; i += p->n)
            charge_group(o, p, p->member + i, order, &load);
    else
        charge_ring(o, p, order, &load);
    for (int i = 0; i < o->nnodes; i++) {
        double t = o->node_out[i] / (node_bandwidth(o, order[i]) *
                                     link_bandwidth(o, load.level));

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
    const struct pattern *p = &o->pattern[axis];
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

    if (!o->even && build_patterns(o, order) < 0)
        return -1;
    for (int i = 0; i < PLAIT_NAXES; i++) {
        struct load load = {0, 0};

        if (o->pattern[i].n > 1)
            load = charge(o, &o->pattern[i], order);
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

/* Whatever the order, the edges that leave a node share its network, and a
 * group of k nodes needs a switch with k nodes below it. */
double plait_orders_bound(struct plait_orders *o)
{
    double sum = 0;

    for (int i = 0; i < PLAIT_NAXES; i++) {
        const struct pattern *p = &o->pattern[i];
        struct load load = {0, 0};
        double most = 0;

        if (p->n < 2)
            continue;
        load.level = lowest_level(o, p->span);
        for (int k = 0; k < o->nnodes; k++)
            if (node_bandwidth(o, k) > most)
                most = node_bandwidth(o, k);
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
