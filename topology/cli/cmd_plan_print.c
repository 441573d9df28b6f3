/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a table for people: the ranks of each node, and the costs. */
#include "topology/cli/cmd_plan.h"

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

static void print_nodes(const struct plan_job *job, FILE *out)
{
    const struct plait_plan *plan = job->plan;

    fprintf(out, "%4s  %-12s %13s", "node", "name", "ranks");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (plan->layout.size[i] > 1)
            fprintf(out, " %9s", plait_axis_names[i]);
    fprintf(out, "  switch\n");
    for (int i = 0; i < plan->nnodes && i < LINES_MOST; i++) {
        int node = job->order[i], first = plan->first_rank[node];
        int leaf =
            job->fabric ? plait_fabric_leaf(job->fabric, job->names[node]) : -1;
        char ranks[32];

        snprintf(ranks, sizeof(ranks), "%d-%d", first,
                 first + plan->tasks[node] - 1);
        fprintf(out, "%4d  %-12s %13s", i, job->names[node], ranks);
        for (int k = 0; k < PLAIT_NAXES; k++)
            if (plan->layout.size[k] > 1)
                print_span(job, node, (enum plait_axis)k, out);
        fprintf(out, "  %s\n",
                leaf < 0 ? "-" : plait_fabric_switch_name(job->fabric, leaf));
    }
    if (plan->nnodes > LINES_MOST)
        fprintf(out, "      ... and %d more nodes (--json lists all)\n",
                plan->nnodes - LINES_MOST);
}

static void print_cost(FILE *out, const char *name, double planned,
                       double linear, double unit, const char *unit_name)
{
    fprintf(out, "  %-26s %8.2f %-2s %8.2f %s\n", name, unit * planned,
            unit_name, unit * linear, unit_name);
}

/* Print in seconds from one second on, else in ms. */
static void print_costs(const struct plan_job *job, FILE *out)
{
    double unit = job->cost.step < 1 ? 1e3 : 1;
    const char *name = job->cost.step < 1 ? "ms" : "s";

    fprintf(out, "\n%-28s %10s %13s\n", "time per step", "planned", "linear");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (job->plan->layout.size[i] > 1)
            print_cost(out, plait_axis_names[i], job->cost.axis[i],
                       job->linear.axis[i], unit, name);
    if (job->computation > 0)
        print_cost(out, "computation, bubble", job->computation,
                   job->computation, unit, name);
    print_cost(out, "all", job->cost.step, job->linear.step, unit, name);
    fprintf(out, "  no order of these nodes takes less than %.2f %s\n",
            unit * job->bound, name);
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
}
