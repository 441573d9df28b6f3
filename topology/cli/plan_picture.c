/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes the picture of a plan has, and in which order. */
#include "topology/cli/plan_picture.h"

#include <stdlib.h>

#include "topology/start/show_groups.h"

enum { TASKS_MOST = 512 }; /* a file below 200 kB */

int plan_picture_switch(const struct picture *p, int i, int level)
{
    const struct plait_fabric *f = p->job->fabric;
    int at = plait_fabric_leaf(f, p->job->names[p->shown[i].node]);
    int height = level + p->base + 1;

    while (at >= 0 && plait_fabric_height(f, at) < height)
        at = plait_fabric_parent(f, at);
    return at >= 0 && plait_fabric_height(f, at) == height ? at : -1;
}

/* All nodes, or where they are too many one of each kind. */
static void choose_nodes(struct picture *p)
{
    const struct plan_job *job = p->job;
    struct plait_show_group group[PICTURE_NODES_MOST];
    int nodes = job->plan->nnodes, most = TASKS_MOST / p->most;

    most = most < 1 ? 1 : most < PICTURE_NODES_MOST ? most : PICTURE_NODES_MOST;
    p->levels = job->fabric ? plait_fabric_levels(job->fabric) : 0;
    p->condensed = nodes > most;
    if (p->condensed) {
        p->n = plait_show_groups(&job->request, job->plan, job->order, most,
                                 group, &p->base);
        p->levels = p->base < 0 ? 0 : p->levels - p->base;
        p->base = p->base < 0 ? 0 : p->base;
    } else {
        for (p->n = 0; p->n < nodes; p->n++)
            group[p->n] =
                (struct plait_show_group){.node = job->order[p->n], .nodes = 1};
    }
    p->levels =
        p->levels < PICTURE_LEVELS_MOST ? p->levels : PICTURE_LEVELS_MOST;
    for (int i = 0; i < p->n; i++)
        p->shown[i] =
            (struct shown){.node = group[i].node, .nodes = group[i].nodes};
}

static int compare_shown(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;

    for (int level = PICTURE_LEVELS_MOST - 1; level >= 0; level--)
        if (x->under[level] != y->under[level])
            return x->under[level] < y->under[level] ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Nodes below one switch become neighbours, in the order of their ranks. */
static void sort_nodes(struct picture *p)
{
    int at[PICTURE_NODES_MOST];

    for (int level = 0; level < PICTURE_LEVELS_MOST; level++)
        for (int i = 0; i < p->n; i++) {
            int *under = p->shown[i].under, first = 0;

            under[level] = level ? under[level - 1] : i;
            at[i] = level < p->levels ? plan_picture_switch(p, i, level) : -1;
            while (first < i && at[first] != at[i])
                first++;
            if (at[i] >= 0)
                under[level] = p->shown[first].under[level];
        }
    for (int i = 0; i < p->n; i++)
        p->shown[i].rank = i;
    qsort(p->shown, (size_t)p->n, sizeof(*p->shown), compare_shown);
}

void plan_picture_choose(struct picture *p)
{
    const struct plait_plan *plan = p->job->plan;

    p->most = 1;
    for (int i = 0; i < plan->nnodes; i++)
        p->most = plan->tasks[i] > p->most ? plan->tasks[i] : p->most;
    choose_nodes(p);
    sort_nodes(p);
}
