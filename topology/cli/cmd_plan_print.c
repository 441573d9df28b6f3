/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a table for people: the ranks of each node, and the costs. */
#include "topology/cli/cmd_plan.h"

#include <string.h>

#include "topology/start/show_groups.h"

enum { LINES_MOST = 64 };

/* The coordinates of a node's tasks along an axis: "0" or "0-3". */
static void print_span(const struct plan_job *job, int node,
                       enum plait_axis axis, FILE *out)
{
    const struct plait_plan *plan = job->plan;
    int low = plan->layout.size[axis], high = -1;
    char text[32];

    for (int k = 0; k < plan->tasks[node]; k++) {
        struct plait_coord c;

        plait_layout_coord(&plan->layout, plan->first_rank[node] + k, &c);
        low = c.at[axis] < low ? c.at[axis] : low;
        high = c.at[axis] > high ? c.at[axis] : high;
    }
    snprintf(text, sizeof(text), low == high ? "%d" : "%d-%d", low, high);
    fprintf(out, " %9s", text);
}

/* A node and the switch it is below, -1: none. */
static void print_node(const struct plan_job *job, int node, int below,
                       FILE *out)
{
    const struct plait_plan *plan = job->plan;
    int first = plan->first_rank[node];
    char ranks[32];

    snprintf(ranks, sizeof(ranks), "%d-%d", first,
             first + plan->tasks[node] - 1);
    fprintf(out, "%4d  %-12s %13s", plan->node_rank[node], job->names[node],
            ranks);
    for (int k = 0; k < PLAIT_NAXES; k++)
        if (plan->layout.size[k] > 1)
            print_span(job, node, (enum plait_axis)k, out);
    fprintf(out, "  %s",
            below < 0 ? "-" : plait_fabric_switch_name(job->fabric, below));
}

/* One node of each kind, where they are too many. */
static void print_kinds(const struct plan_job *job, FILE *out)
{
    struct plait_show_group group[LINES_MOST];
    int level, n = plait_show_groups(&job->request, job->plan, job->order,
                                     LINES_MOST, group, &level);

    for (int i = 0; i < n; i++) {
        print_node(job, group[i].node, group[i].under, out);
        if (group[i].nodes > 1)
            fprintf(out, ", and %d more such nodes", group[i].nodes - 1);
        fputc('\n', out);
    }
    fprintf(out,
            "      (one line for the nodes with the same stages%s; --json "
            "lists all %d)\n",
            level < 0 ? "" : " below a switch", job->plan->nnodes);
}

static void print_nodes(const struct plan_job *job, FILE *out)
{
    const struct plait_plan *plan = job->plan;

    fprintf(out, "%4s  %-12s %13s", "node", "name", "ranks");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (plan->layout.size[i] > 1)
            fprintf(out, " %9s", plait_axis_names[i]);
    fprintf(out, "  switch\n");
    if (plan->nnodes > LINES_MOST) {
        print_kinds(job, out);
        return;
    }
    for (int i = 0; i < plan->nnodes; i++) {
        int node = job->order[i];

        print_node(
            job, node,
            job->fabric ? plait_fabric_leaf(job->fabric, job->names[node]) : -1,
            out);
        fputc('\n', out);
    }
}

/* How the times are printed: in seconds from one second on, else in ms. */
struct times {
    FILE *out;
    double unit;
    const char *name;
    bool compared; /* with Slurm's order */
};

static void print_cost(const struct times *t, const char *name, double planned,
                       double linear)
{
    fprintf(t->out, "  %-26s %8.2f %s", name, t->unit * planned, t->name);
    if (t->compared)
        fprintf(t->out, "%*s %8.2f %s", (int)(2 - strlen(t->name)), "",
                t->unit * linear, t->name);
    fputc('\n', t->out);
}

/* Whether the switches above the leaves are a bottleneck decides what an order
 * of the nodes gains. */
static bool has_unknown_switches(const struct plan_job *job)
{
    return job->fabric && plait_fabric_levels(job->fabric) &&
           !job->gpu.uplinks_known;
}

static void print_costs(const struct plan_job *job, FILE *out)
{
    const struct times t = {.out = out,
                            .unit = job->cost.step < 1 ? 1e3 : 1,
                            .name = job->cost.step < 1 ? "ms" : "s",
                            .compared = !has_unknown_switches(job)};

    fprintf(out, "\n%-28s %10s%s\n", "time per step", "planned",
            t.compared ? "        linear" : "");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (job->plan->layout.size[i] > 1)
            print_cost(&t, plait_axis_names[i], job->cost.axis[i],
                       job->linear.axis[i]);
    if (job->computation > 0)
        print_cost(&t, "computation, bubble", job->computation,
                   job->computation);
    print_cost(&t, "all", job->cost.step, job->linear.step);
    if (t.compared)
        fprintf(out, "  no order of these nodes takes less than %.2f %s\n",
                t.unit * job->bound, t.name);
}

/* What the times rest on. */
static void print_assumed(const struct plan_job *job, FILE *out)
{
    int levels = job->fabric ? plait_fabric_levels(job->fabric) : 0;

    fprintf(out, "\nthese times are for\n  %-18s %s (%s)\n", "GPUs",
            job->gpu.name, job->gpu_from);
    fprintf(out, "  %-18s %s\n", "model",
            job->options.model_file
                ? job->options.model_file
                : "7 billion parameters (assumed: --model names one)");
    if (job->fabric && !job->fabric_file)
        fprintf(out, "  %-18s Slurm's topology %s\n", "switches",
                job->topology);
    else if (job->fabric && *plait_fabric_topology(job->fabric))
        fprintf(out, "  %-18s the topology %s of %s\n", "switches",
                plait_fabric_topology(job->fabric), job->fabric_file);
    if (levels == 0)
        return;
    fprintf(out, "  %-18s %.3g at each level of switches (%s)\n",
            "oversubscription", job->gpu.oversubscription,
            has_unknown_switches(job) ? "assumed" : "the site's file");
    if (has_unknown_switches(job))
        fputs("so no gain over Slurm's order is claimed; plait probe measures "
              "the switches\n",
              out);
}

void plait_plan_print(const struct plan_job *job, FILE *out)
{
    const struct plait_layout *l = &job->plan->layout;
    char order[16];

    plait_layout_format_order(l, order);
    fprintf(out, "%d task%s on %d node%s:", plait_layout_world(l),
            plait_layout_world(l) == 1 ? "" : "s", job->plan->nnodes,
            job->plan->nnodes == 1 ? "" : "s");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (l->size[i] > 1 || i == PLAIT_DP)
            fprintf(out, " %s=%d", plait_axis_names[i], l->size[i]);
    fprintf(out, ", rank order %s\n\n", order);
    print_nodes(job, out);
    print_costs(job, out);
    print_assumed(job, out);
}
