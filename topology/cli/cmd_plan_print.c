/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "topology/cli/cmd_plan.h"

static json_t *cost_to_json(const struct plait_cost *cost)
{
    return json_pack("{sf sf sf sf sf sf}", "tp_s", cost->axis[PLAIT_TP],
                     "cp_s", cost->axis[PLAIT_CP], "ep_s", cost->axis[PLAIT_EP],
                     "dp_s", cost->axis[PLAIT_DP], "pp_s", cost->axis[PLAIT_PP],
                     "step_s", cost->step);
}

static json_t *ranks_to_json(const struct plan_job *job)
{
    const struct plait_plan *plan = job->plan;
    json_t *list = json_array();
    int procid = 0;

    for (int i = 0; i < plan->nnodes; i++)
        for (int local = 0; local < plan->tasks[i]; local++) {
            int rank = plan->first_rank[i] + local;
            struct plait_coord c;

            plait_layout_coord(&plan->layout, rank, &c);
            json_array_append_new(
                list,
                json_pack("{si ss si si si si si si si si si}", "procid",
                          procid++, "node", job->names[i], "local", local,
                          "gpu", job->gpus[local], "rank", rank, "node_rank",
                          plan->node_rank[i], "tp", c.at[PLAIT_TP], "cp",
                          c.at[PLAIT_CP], "ep", c.at[PLAIT_EP], "dp",
                          c.at[PLAIT_DP], "pp", c.at[PLAIT_PP]));
        }
    return list;
}

/* All groups along one axis, each a list of ranks. */
static json_t *groups_to_json(const struct plait_layout *layout,
                              enum plait_axis axis)
{
    int world = plait_layout_world(layout);
    int *members = malloc((size_t)world * sizeof(*members));
    json_t *list = json_array();

    for (int rank = 0; members && rank < world; rank++) {
        struct plait_coord c;
        json_t *group;
        int n;

        plait_layout_coord(layout, rank, &c);
        if (c.at[axis] != 0)
            continue;
        n = plait_layout_group(layout, (enum plait_group)axis, rank, members);
        group = json_array();
        for (int k = 0; k < n; k++)
            json_array_append_new(group, json_integer(members[k]));
        json_array_append_new(list, group);
    }
    free(members);
    return list;
}

json_t *plait_plan_to_json(const struct plan_job *job)
{
    const struct plait_layout *l = &job->plan->layout;
    json_t *groups = json_object();
    char order[16];

    for (int i = 0; i < PLAIT_NAXES; i++)
        json_object_set_new(groups, plait_axis_names[i],
                            groups_to_json(l, (enum plait_axis)i));
    plait_layout_format_order(l, order);
    return json_pack("{si si si si si si ss so so so so sf}", "world",
                     plait_layout_world(l), "tp", l->size[PLAIT_TP], "cp",
                     l->size[PLAIT_CP], "ep", l->size[PLAIT_EP], "dp",
                     l->size[PLAIT_DP], "pp", l->size[PLAIT_PP], "order", order,
                     "ranks", ranks_to_json(job), "groups", groups, "cost",
                     cost_to_json(&job->cost), "linear_cost",
                     cost_to_json(&job->linear), "bound_s", job->bound);
}

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

/* In seconds from one on. */
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
