/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text of a plan that plan_code.c has made, whole or the part of one
 * node. It comes from the environment, so nothing in it is taken on trust. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology/plan/place.h"
#include "topology/plan/plan_code.h"

#define NODES_MOST 1048576

static int set_damaged(struct plait_error *err, const char *what)
{
    errno = EINVAL;
    return plait_errorf(err, "the encoded plan is damaged: %s", what);
}

/* A number from 0 to NODES_MOST at *p, which moves behind it; or -1. */
static int read_number(const char **p)
{
    int value = 0, digits = 0;

    for (; **p >= '0' && **p <= '9'; (*p)++, digits++) {
        value = value * 10 + (**p - '0');
        if (value > NODES_MOST)
            return -1;
    }
    return digits ? value : -1;
}

/* The "*repeat+shift" of a run, if it has one. */
static int read_repeat(const char **p, struct plan_run *run)
{
    int sign;

    run->repeat = 1;
    run->shift = 0;
    if (**p != '*')
        return 0;
    (*p)++;
    run->repeat = read_number(p);
    sign = **p == '-' ? -1 : 1;
    if (run->repeat < 2 || (**p != '+' && **p != '-'))
        return -1;
    (*p)++;
    run->shift = read_number(p);
    if (run->shift < 0)
        return -1;
    run->shift *= sign;
    return 0;
}

/* The next run of the list at *p: 1, 0 at its end ('/' or '|'), -1 damaged. */
static int next_run(const char **p, struct plan_run *run)
{
    int to, step = 1;

    if (**p == '/' || **p == '|')
        return 0;
    if (**p == ',')
        (*p)++;
    run->from = to = read_number(p);
    if (**p == '-') {
        (*p)++;
        to = read_number(p);
        if (**p == ':') {
            (*p)++;
            step = read_number(p);
        }
    }
    if (run->from < 0 || to < 0 || step < 1 || (to - run->from) % step ||
        read_repeat(p, run) < 0 || !**p || !strchr(",/|", **p) ||
        (**p == ',' && (!(*p)[1] || strchr("/|", (*p)[1]))))
        return -1;
    run->count = abs(to - run->from) / step + 1;
    run->step = to < run->from ? -step : step;
    return 1;
}

/* The end of a list: "/", or its fold and "/". Rows that are shorter than a
 * node's ranks would be empty. */
static int read_fold(const char **p, struct plait_fold *fold)
{
    *fold = (struct plait_fold){1, 1, 1};
    if (**p == '|') {
        (*p)++;
        fold->ranks = read_number(p);
        if (*(*p)++ != '.')
            return -1;
        fold->per_node = read_number(p);
        if (fold->per_node < 1 || fold->ranks < fold->per_node ||
            *(*p)++ != '.')
            return -1;
        fold->tall = read_number(p);
        if (fold->tall < 1)
            return -1;
    }
    return *(*p)++ == '/' ? 0 : -1;
}

/* The next "nodes*tasks" or "nodes*domain" at *p: 1, 0 at the end of the list,
 * -1 damaged. */
static int next_tasks(const char **p, int *nodes, int *tasks)
{
    if (!**p || **p == '/')
        return 0;
    if (**p == ',')
        (*p)++;
    *nodes = read_number(p);
    if (*nodes < 1 || *(*p)++ != '*')
        return -1;
    *tasks = read_number(p);
    if (*tasks < 1 || (**p && **p != ',' && **p != '/') ||
        (**p == ',' && (!(*p)[1] || (*p)[1] == '/')))
        return -1;
    return 1;
}

/* The domains behind the tasks, of which the text may have none: of all `n`
 * nodes into domain[n], and of node `index`; NULL: not wanted. */
static int read_domains(const char *p, int n, int *domain, int index,
                        int *found)
{
    int nodes, number, rc, at = 0;

    if (!*p)
        return 0;
    p++;
    while ((rc = next_tasks(&p, &nodes, &number)) > 0) {
        if (nodes > n - at)
            return -1;
        if (found && index >= at && index < at + nodes)
            *found = number;
        for (int k = 0; domain && k < nodes; k++)
            domain[at + k] = number;
        at += nodes;
    }
    return rc < 0 || *p || at != n ? -1 : 0;
}

/* Everything up to the runs, which *p points to afterwards. */
static int read_head(const char **p, struct plait_layout *layout,
                     enum plait_placement *placement, struct plait_error *err)
{
    static const enum plait_axis axes[] = {PLAIT_TP, PLAIT_CP, PLAIT_EP,
                                           PLAIT_DP, PLAIT_PP};
    char text[16];
    size_t n;

    n = strcspn(*p, "/");
    if ((*p)[n] != '/' || n != strlen(PLAN_CODE_VERSION) ||
        (strncmp(*p, PLAN_CODE_VERSION, n) != 0 &&
         strncmp(*p, PLAN_CODE_DOMAINS, n) != 0))
        return plait_errorf(err, "the encoded plan is of another version of "
                                 "Plait; are srun and the nodes upgraded "
                                 "alike?");
    *p += n + 1;
    plait_layout_init(layout);
    for (int i = 0; i < PLAIT_NAXES; i++) {
        layout->size[axes[i]] = read_number(p);
        if (layout->size[axes[i]] < 1 ||
            *(*p)++ != (i < PLAIT_NAXES - 1 ? '.' : '/'))
            return set_damaged(err, "sizes");
    }
    n = strcspn(*p, "/");
    if (n >= sizeof(text) || (*p)[n] != '/')
        return set_damaged(err, "rank order");
    memcpy(text, *p, n);
    text[n] = '\0';
    if (plait_layout_parse_order(text, layout->order, NULL) < 0)
        return set_damaged(err, "rank order");
    *p += n + 1;
    n = strcspn(*p, "/");
    if (n == 6 && strncmp(*p, "linear", n) == 0)
        *placement = PLAIT_PLACE_LINEAR;
    else if (n == 8 && strncmp(*p, "topology", n) == 0)
        *placement = PLAIT_PLACE_TOPOLOGY;
    else
        return set_damaged(err, "placement");
    if ((*p)[n] != '/')
        return set_damaged(err, "placement");
    *p += n + 1;
    return 0;
}

static int count_nodes(const char *p, int *nnodes, struct plait_error *err)
{
    struct plan_run run;
    int rc, n = 0;

    while ((rc = next_run(&p, &run)) > 0) {
        if (run.count > NODES_MOST / run.repeat)
            return set_damaged(err, "too many nodes");
        n += run.count * run.repeat;
        if (n > NODES_MOST)
            return set_damaged(err, "too many nodes");
    }
    if (rc < 0 || n == 0)
        return set_damaged(err, "node order");
    *nnodes = n;
    return 0;
}

/* Fill the plan's tables; every node index must come exactly once. */
static int read_order(const char **p, struct plait_plan *plan)
{
    struct plait_fold fold;
    struct plan_run run;
    int at = 0, *place;

    for (int i = 0; i < plan->nnodes; i++)
        plan->node_rank[i] = -1;
    while (next_run(p, &run) > 0)
        for (int k = 0; k < run.count * run.repeat; k++) {
            long node = run.from + (long)(k % run.count) * run.step +
                        (long)(k / run.count) * run.shift;

            if (node < 0 || node >= plan->nnodes || plan->node_rank[node] >= 0)
                return -1;
            plan->node_rank[node] = at++;
        }
    if (read_fold(p, &fold) < 0 ||
        !(place = malloc((size_t)plan->nnodes * sizeof(*place))))
        return -1;
    plait_fold_fill(fold, plan->nnodes, place);
    for (int i = 0; i < plan->nnodes; i++)
        plan->node_rank[i] = place[plan->node_rank[i]];
    free(place);
    return 0;
}

static int read_tasks(const char *p, struct plait_plan *plan)
{
    int *order = malloc((size_t)plan->nnodes * sizeof(*order));
    int nodes, tasks, rc, at = 0, rank = 0;

    if (!order)
        return -1;
    for (int i = 0; i < plan->nnodes; i++)
        order[plan->node_rank[i]] = i;
    while ((rc = next_tasks(&p, &nodes, &tasks)) > 0) {
        if (nodes > plan->nnodes - at || rank > NODES_MOST ||
            tasks > NODES_MOST / nodes) {
            rc = -1;
            break;
        }
        for (int k = 0; k < nodes; k++, at++, rank += tasks) {
            plan->first_rank[order[at]] = rank;
            plan->tasks[order[at]] = tasks;
        }
    }
    free(order);
    return rc < 0 || at != plan->nnodes ||
                   plait_layout_resolve(&plan->layout, rank, NULL) < 0 ||
                   read_domains(p, at, plan->domain, 0, NULL) < 0
               ? -1
               : 0;
}

struct plait_plan *plait_plan_decode(const char *text, struct plait_error *err)
{
    struct plait_layout layout;
    enum plait_placement placement;
    struct plait_plan *plan = NULL;
    const char *p = text;
    int nnodes;

    if (read_head(&p, &layout, &placement, err) < 0 ||
        count_nodes(p, &nnodes, err) < 0)
        return NULL;
    plan = plait_plan_allocate(nnodes);
    if (!plan) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    plan->layout = layout;
    plan->placement = placement;
    if (read_order(&p, plan) < 0) {
        set_damaged(err, "node order");
        goto error;
    }
    if (read_tasks(p, plan) < 0) {
        set_damaged(err, "tasks");
        goto error;
    }
    return plan;
error:
    plait_plan_destroy(plan);
    return NULL;
}

/* The position of node `index` of n in the list at *p: -1 there is none, -2
 * damaged. */
static int find_rank(const char **p, int n, int index)
{
    struct plait_fold fold;
    struct plan_run run;
    int at = 0, found = -1;

    while (next_run(p, &run) > 0)
        for (int k = 0; k < run.repeat; k++, at += run.count) {
            long ahead = index - run.from - (long)k * run.shift;

            if (found < 0 && ahead % run.step == 0 && ahead / run.step >= 0 &&
                ahead / run.step < run.count)
                found = at + (int)(ahead / run.step);
        }
    if (read_fold(p, &fold) < 0)
        return -2;
    return found < 0 ? -1 : plait_fold_position(fold, n, found);
}

int plait_plan_decode_part(const char *text, int index,
                           struct plait_plan_part *part,
                           struct plait_error *err)
{
    struct plait_plan_part found = {.first_rank = 0};
    enum plait_placement placement;
    const char *p = text;
    int nodes, tasks, rc, at = 0, rank = 0;

    if (read_head(&p, &found.layout, &placement, err) < 0 ||
        count_nodes(p, &found.nnodes, err) < 0)
        return -1;
    found.node_rank = find_rank(&p, found.nnodes, index);
    if (found.node_rank < -1)
        return set_damaged(err, "node order");
    if (found.node_rank < 0) {
        errno = EINVAL;
        return plait_errorf(err, "the plan is for %d nodes and has no node %d",
                            found.nnodes, index);
    }
    while ((rc = next_tasks(&p, &nodes, &tasks)) > 0) {
        if (nodes > NODES_MOST / tasks || rank > NODES_MOST)
            return set_damaged(err, "tasks");
        if (found.node_rank >= at && found.node_rank < at + nodes) {
            found.first_rank = rank + (found.node_rank - at) * tasks;
            found.tasks = tasks;
        }
        at += nodes;
        rank += nodes * tasks;
    }
    if (rc < 0 || at != found.nnodes ||
        plait_layout_resolve(&found.layout, rank, NULL) < 0 ||
        read_domains(p, at, NULL, index, &found.domain) < 0)
        return set_damaged(err, "tasks");
    *part = found;
    return 0;
}
