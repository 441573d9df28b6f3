/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/show_plan.h"

#include <stdlib.h>
#include <string.h>

#include "topology/start/show_groups.h"

/* A longer table is cut, and says how many nodes are left out. */
enum { ROWS_MOST = 64 };

struct table {
    FILE *out;
    const struct plait_plan *plan;
    const char *const *nodes;
    const struct plait_fabric *fabric;
    const uint32_t *const *ids; /* NULL: no column of them */
    int *order;                 /* NODE_RANK -> node index */
    int name_width, leaf_width;
};

static const char *leaf_name(const struct table *t, int node)
{
    int leaf = t->fabric ? plait_fabric_leaf(t->fabric, t->nodes[node]) : -1;

    return leaf < 0 ? "" : plait_fabric_switch_name(t->fabric, leaf);
}

static void print_sizes(const struct table *t)
{
    const struct plait_layout *layout = &t->plan->layout;
    char order[16];

    plait_layout_format_order(layout, order);
    fprintf(t->out,
            "plait: %d task%s on %d node%s:", plait_layout_world(layout),
            plait_layout_world(layout) == 1 ? "" : "s", t->plan->nnodes,
            t->plan->nnodes == 1 ? "" : "s");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (layout->size[i] > 1 || i == PLAIT_DP)
            fprintf(t->out, " %s=%d", plait_axis_names[i], layout->size[i]);
    fprintf(t->out, ", order %s, %s placement\n", order,
            t->plan->placement == PLAIT_PLACE_LINEAR ? "linear" : "topology");
}

static void print_range(FILE *out, int least, int most, int width)
{
    char text[32];

    if (least == most)
        snprintf(text, sizeof(text), "%d", least);
    else
        snprintf(text, sizeof(text), "%d-%d", least, most);
    fprintf(out, "  %-*s", width, text);
}

/* The least and the most coordinate of a node's tasks along an axis. */
static void print_axis(const struct table *t, int node, int axis)
{
    int least = 0, most = 0;

    for (int i = 0; i < t->plan->tasks[node]; i++) {
        struct plait_coord c;

        plait_layout_coord(&t->plan->layout, t->plan->first_rank[node] + i, &c);
        if (i == 0 || c.at[axis] < least)
            least = c.at[axis];
        if (c.at[axis] > most)
            most = c.at[axis];
    }
    print_range(t->out, least, most, 6);
}

static bool is_run(const uint32_t *ids, int n)
{
    int run = 1;

    while (run < n && ids[run] == ids[0] + (uint32_t)run)
        run++;
    return run >= n;
}

/* SLURM_PROCID of a node's tasks: "4-7", or "0,4,8" where they are dealt out in
 * turn. */
static void print_ids(const struct table *t, int node)
{
    const uint32_t *ids = t->ids[node];
    int n = t->plan->tasks[node];
    char text[40];
    size_t used = 0;
    int i = 0;

    if (is_run(ids, n)) {
        print_range(t->out, (int)ids[0], (int)ids[n - 1], 12);
        return;
    }
    for (; i < n && used < 16; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u",
                                 used ? "," : "", ids[i]);
    if (i < n)
        snprintf(text + used, sizeof(text) - used, ",...");
    fprintf(t->out, "  %-12s", text);
}

/* A node, which may stand for others, and the switch it is below. */
static void print_row(const struct table *t, int node, int nodes,
                      const char *below)
{
    const struct plait_plan *plan = t->plan;
    int first = plan->first_rank[node];

    print_range(t->out, first, first + plan->tasks[node] - 1, 9);
    fprintf(t->out, "  %-*s", t->name_width, t->nodes[node]);
    if (t->leaf_width)
        fprintf(t->out, "  %-*s", t->leaf_width, below);
    if (t->ids)
        print_ids(t, node);
    for (int a = 0; a < PLAIT_NAXES; a++)
        if (plan->layout.size[a] > 1)
            print_axis(t, node, a);
    if (nodes > 1)
        fprintf(t->out, "  and %d more such nodes", nodes - 1);
    fputc('\n', t->out);
}

/* One node of each kind, where they are too many. */
static void print_kinds(const struct table *t)
{
    const struct plait_plan_request request = {
        .nnodes = t->plan->nnodes, .nodes = t->nodes, .fabric = t->fabric};
    struct plait_show_group group[ROWS_MOST];
    int level, n = plait_show_groups(&request, t->plan, t->order, ROWS_MOST,
                                     group, &level);

    for (int i = 0; i < n; i++)
        print_row(t, group[i].node, group[i].nodes,
                  group[i].under < 0
                      ? ""
                      : plait_fabric_switch_name(t->fabric, group[i].under));
    fprintf(t->out, "  (one line for the nodes with the same stages%s)\n",
            level < 0 ? "" : " below a switch");
}

static void print_rows(const struct table *t)
{
    const struct plait_plan *plan = t->plan;

    fprintf(t->out, "  %-9s  %-*s", "ranks", t->name_width, "node");
    if (t->leaf_width)
        fprintf(t->out, "  %-*s", t->leaf_width, "switch");
    if (t->ids)
        fprintf(t->out, "  %-12s", "SLURM_PROCID");
    for (int a = 0; a < PLAIT_NAXES; a++)
        if (plan->layout.size[a] > 1)
            fprintf(t->out, "  %-6s", plait_axis_names[a]);
    fputc('\n', t->out);
    if (plan->nnodes > ROWS_MOST) {
        print_kinds(t);
        return;
    }
    for (int r = 0; r < plan->nnodes; r++)
        print_row(t, t->order[r], 1, leaf_name(t, t->order[r]));
}

/* The largest distance between members of an axis's groups: 0 in one node, 1
 * under one leaf switch, ... */
static int axis_distance(const struct table *t, const int *node_of, int axis)
{
    const struct plait_layout *layout = &t->plan->layout;
    int far = 0, world = plait_layout_world(layout);

    for (int rank = 0; rank < world; rank++) {
        struct plait_coord c;
        int a = node_of[rank], b, d;

        plait_layout_coord(layout, rank, &c);
        c.at[axis] = 0;
        b = node_of[plait_layout_rank(layout, &c)];
        if (a == b)
            continue;
        d = t->fabric
                ? plait_fabric_distance(t->fabric, t->nodes[a], t->nodes[b])
                : 1;
        if (d > far)
            far = d;
    }
    return far;
}

static void print_distances(const struct table *t)
{
    int world = plait_layout_world(&t->plan->layout), n = 0;
    int levels = t->fabric ? plait_fabric_levels(t->fabric) : 0;
    int *node_of = calloc((size_t)world, sizeof(*node_of));

    if (!node_of)
        return;
    for (int node = 0; node < t->plan->nnodes; node++)
        for (int i = 0; i < t->plan->tasks[node]; i++)
            node_of[t->plan->first_rank[node] + i] = node;
    for (int a = 0; a < PLAIT_NAXES; a++) {
        int far;

        if (t->plan->layout.size[a] < 2 || a == PLAIT_EP)
            continue;
        far = axis_distance(t, node_of, a);
        fprintf(t->out, "%s%s %s", n++ ? ", " : "  ", plait_axis_names[a],
                far == 0        ? "inside a node"
                : levels == 0   ? "between nodes"
                : far == 1      ? "under one leaf switch"
                : far <= levels ? "across leaf switches"
                                : "between separate networks");
    }
    if (n)
        fputc('\n', t->out);
    free(node_of);
}

/* How many tasks have a rank that is not their SLURM_PROCID. */
static int count_moved(const struct plait_plan *plan,
                       const uint32_t *const *ids)
{
    int moved = 0, first = 0;

    for (int i = 0; i < plan->nnodes; first += plan->tasks[i++])
        for (int k = 0; k < plan->tasks[i]; k++)
            moved +=
                plan->first_rank[i] + k != (ids ? (int)ids[i][k] : first + k);
    return moved;
}

/* Ranks are consecutive on a node, so task ids can only equal them where they
 * are too. --distribution=cyclic and plane deal them out in turn. */
static bool are_dealt(const struct plait_plan *plan, const uint32_t *const *ids)
{
    int i = 0;

    while (ids && i < plan->nnodes && is_run(ids[i], plan->tasks[i]))
        i++;
    return ids && i < plan->nnodes;
}

bool plait_show_ranks(const struct plait_plan *plan, const uint32_t *const *ids,
                      const char *variable, char *text, size_t size)
{
    int moved = count_moved(plan, ids);

    if (moved)
        snprintf(
            text, size,
            "%s is not SLURM_PROCID in %d of %d tasks: PyTorch, "
            "Megatron-LM, DeepSpeed and Accelerate read RANK; JAX, "
            "Lightning, submitit and MPI read SLURM_PROCID, and have other "
            "groups than the plan unless %s--placement=linear makes both "
            "equal; the host file of 'plait plan --hostfile' does so, too, "
            "and keeps this placement (PLAIT_QUIET=1 leaves this line out)",
            variable, moved, plait_layout_world(&plan->layout),
            are_dealt(plan, ids) ? "--distribution=block " : "");
    return moved > 0;
}

bool plait_show_is_quiet(void)
{
    const char *quiet = getenv("PLAIT_QUIET");

    return quiet && *quiet && strcmp(quiet, "0") != 0;
}

void plait_show_plan(FILE *out, const struct plait_plan *plan,
                     const char *const *nodes,
                     const struct plait_fabric *fabric,
                     const uint32_t *const *ids)
{
    struct table t = {.out = out,
                      .plan = plan,
                      .nodes = nodes,
                      .fabric = fabric,
                      .name_width = 4};

    if (ids && count_moved(plan, ids))
        t.ids = ids;

    t.order = calloc((size_t)plan->nnodes, sizeof(*t.order));
    if (!t.order)
        return;
    for (int i = 0; i < plan->nnodes; i++) {
        int width = (int)strlen(nodes[i]), leaf = (int)strlen(leaf_name(&t, i));

        t.order[plan->node_rank[i]] = i;
        if (width > t.name_width)
            t.name_width = width;
        if (leaf > t.leaf_width)
            t.leaf_width = leaf > 6 ? leaf : 6;
    }
    print_sizes(&t);
    print_rows(&t);
    print_distances(&t);
    fflush(out);
    free(t.order);
}
