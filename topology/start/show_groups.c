/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes stand for all of a plan that is too long to be shown. */
#include "topology/start/show_groups.h"

#include <stdbool.h>

/* The highest switch above the node that is not above that level. */
static int switch_above(const struct plait_plan_request *request, int node,
                        int level)
{
    const struct plait_fabric *f = request->fabric;
    int at = level < 0 ? -1 : plait_fabric_leaf(f, request->nodes[node]);

    for (int up = at; up >= 0 && plait_fabric_height(f, up) <= level + 1;
         up = plait_fabric_parent(f, up))
        at = up;
    return at;
}

static struct plait_show_group
group_of(const struct plait_plan_request *request,
         const struct plait_plan *plan, int node, int level)
{
    int first = plan->first_rank[node];
    struct plait_coord a, b;

    plait_layout_coord(&plan->layout, first, &a);
    plait_layout_coord(&plan->layout, first + plan->tasks[node] - 1, &b);
    return (struct plait_show_group){node, 1, a.at[PLAIT_PP], b.at[PLAIT_PP],
                                     switch_above(request, node, level)};
}

static bool are_alike(const struct plait_show_group *a,
                      const struct plait_show_group *b)
{
    return a->first_stage == b->first_stage && a->last_stage == b->last_stage &&
           a->under == b->under;
}

/* The number of groups, or most + 1 where there are more: then the first `most`
 * are written. */
static int group_nodes(const struct plait_plan_request *request,
                       const struct plait_plan *plan, const int *order,
                       int most, struct plait_show_group *groups, int level)
{
    int n = 0, more = 0;

    for (int i = 0; i < plan->nnodes; i++) {
        struct plait_show_group group =
            group_of(request, plan, order[i], level);
        int at = 0;

        while (at < n && !are_alike(&group, &groups[at]))
            at++;
        if (at == most)
            more = 1;
        else if (at == n)
            groups[n++] = group;
        else
            groups[at].nodes++;
        if (more && level >= 0)
            break; /* coarser ones are tried */
    }
    return n + more;
}

int plait_show_groups(const struct plait_plan_request *request,
                      const struct plait_plan *plan, const int *order, int most,
                      struct plait_show_group *groups, int *level)
{
    int levels = request->fabric ? plait_fabric_levels(request->fabric) : 0;
    int n = most + 1;

    for (*level = 0; *level < levels && n > most; ++*level)
        n = group_nodes(request, plan, order, most, groups, *level);
    --*level;
    if (n > most) {
        *level = -1;
        n = group_nodes(request, plan, order, most, groups, -1);
    }
    return n < most ? n : most;
}
