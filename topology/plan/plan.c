/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/plan/plan.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/plan/blocks.h"
#include "topology/plan/cost.h"
#include "topology/plan/place.h"

static int gcd(int a, int b)
{
    while (b) {
        int t = a % b;

        a = b;
        b = t;
    }
    return a;
}

/* "; --tp=2 or --tp=4 would fit": the divisors of `tasks` around `tp`. */
static void suggest_tp(int tasks, int tp, char *buf, size_t n)
{
    int below = 0, above = 0;

    for (int i = 1; i <= tasks; i++) {
        if (tasks % i)
            continue;
        if (i < tp)
            below = i;
        else if (!above)
            above = i;
    }
    if (below && above)
        snprintf(buf, n, "; --tp=%d or --tp=%d would fit", below, above);
    else
        snprintf(buf, n, "; --tp=%d would fit", below ? below : above);
}

/* Where Slurm spread the tasks unevenly, the same number on each node may
 * do. */
static void suggest_even(const struct plait_plan_request *request, int tp,
                         char *buf, size_t n)
{
    int sum = 0, same = 1;

    for (int i = 0; i < request->nnodes; i++) {
        sum += request->tasks[i];
        same &= request->tasks[i] == request->tasks[0];
    }
    if (!same && sum % request->nnodes == 0 && sum / request->nnodes % tp == 0)
        snprintf(buf, n, "; --ntasks-per-node=%d would fit",
                 sum / request->nnodes);
}

/* A tensor-parallel group communicates many times per layer: it must stay on a
 * node, or in a block, unless the user asked for a rank order that begins with
 * another axis. */
static int check_tp(const struct plait_plan_request *request,
                    const struct plait_layout *layout, struct plait_error *err)
{
    int tp = layout->size[PLAIT_TP], common = 0;
    char fit[64];

    for (int i = 0; i < request->nnodes; i++)
        common = gcd(common, request->tasks[i]);
    if ((layout->order[0] != PLAIT_TP && request->order_given) ||
        common % tp == 0 || plait_blocks_span(request, tp))
        return 0;
    suggest_tp(common, tp, fit, sizeof(fit));
    suggest_even(request, tp, fit, sizeof(fit));
    errno = EINVAL;
    for (int i = 0; i < request->nnodes; i++) {
        int tasks = request->tasks[i];

        if (tasks % tp == 0)
            continue;
        if (tp > tasks)
            return plait_errorf(err,
                                "--tp=%d does not fit in a node: %s has "
                                "%d task%s%s",
                                tp, request->nodes[i], tasks,
                                tasks == 1 ? "" : "s", fit);
        return plait_errorf(err,
                            "the %d tasks of node %s are not divisible by "
                            "--tp=%d%s",
                            tasks, request->nodes[i], tp, fit);
    }
    return 0;
}

static int count_tasks(const struct plait_plan_request *request, int *world,
                       struct plait_error *err)
{
    long sum = 0;

    errno = EINVAL;
    if (request->nnodes < 1)
        return plait_errorf(err, "no nodes to place tasks on");
    for (int i = 0; i < request->nnodes; i++) {
        if (request->tasks[i] < 1)
            return plait_errorf(err,
                                "node %s has %d tasks; must have at least 1",
                                request->nodes[i], request->tasks[i]);
        sum += request->tasks[i];
        if (sum > INT_MAX)
            return plait_errorf(err, "too many tasks");
    }
    *world = (int)sum;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct plait_plan_request *request,
                       struct plait_error *err)
{
    size_t n = (size_t)request->nnodes;
    const char **sorted = malloc(n * sizeof(*sorted));
    int rc = 0;

    if (!sorted)
        return plait_errorf(err, "out of memory");
    memcpy(sorted, request->nodes, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare_names);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            rc = plait_errorf(err, "node %s is named twice", sorted[i]);
    free(sorted);
    return rc;
}

int plait_plan_check_fabric(struct plait_plan_request *request,
                            struct plait_error *warning)
{
    int lacks = -1;

    if (request->fabric && request->placement == PLAIT_PLACE_TOPOLOGY)
        lacks = plait_fabric_lacks(request->fabric, request->nodes,
                                   request->nnodes);
    if (lacks < 0)
        return 0;
    request->fabric = NULL;
    errno = ENOENT;
    return plait_errorf(warning,
                        "no switch of the fabric has node %s; the nodes stay "
                        "in Slurm's order",
                        request->nodes[lacks]);
}

/* Refuse nodes that no switch has: their distance to the others is not known.
 * And with fewer GPUs than tasks ranks would share one, which NCCL refuses. */
static int check_nodes(const struct plait_plan_request *request,
                       struct plait_error *err)
{
    int gpus = request->node ? request->node->ngpus : 0, known = 1;

    errno = EINVAL;
    if (request->fabric && request->placement == PLAIT_PLACE_TOPOLOGY &&
        plait_fabric_switches(request->fabric))
        known = 0;
    for (int i = 0; i < request->nnodes; i++) {
        if (gpus && request->tasks[i] > gpus)
            return plait_errorf(err, "node %s has %d tasks but %d GPU%s",
                                request->nodes[i], request->tasks[i], gpus,
                                gpus == 1 ? "" : "s");
        if (!known && plait_fabric_leaf(request->fabric, request->nodes[i]) < 0)
            return plait_errorf(err,
                                "no switch of the fabric has node %s; "
                                "--placement=linear does not need it",
                                request->nodes[i]);
    }
    return check_names(request, err);
}

struct plait_plan *plait_plan_allocate(int nnodes)
{
    struct plait_plan *plan = calloc(1, sizeof(*plan));
    size_t n = (size_t)nnodes;

    if (!plan)
        return NULL;
    plan->nnodes = nnodes;
    plan->node_rank = calloc(n, sizeof(int));
    plan->first_rank = calloc(n, sizeof(int));
    plan->tasks = calloc(n, sizeof(int));
    plan->domain = calloc(n, sizeof(int));
    if (plan->node_rank && plan->first_rank && plan->tasks && plan->domain)
        return plan;
    plait_plan_destroy(plan);
    errno = ENOMEM;
    return NULL;
}

/* NODE_RANK order -> the two tables of the plan. */
static void set_order(struct plait_plan *plan, const int *order)
{
    int rank = 0;

    for (int i = 0; i < plan->nnodes; i++) {
        plan->node_rank[order[i]] = i;
        plan->first_rank[order[i]] = rank;
        rank += plan->tasks[order[i]];
    }
}

int plait_plan_check_order(const struct plait_plan *plan,
                           const char *const *nodes, struct plait_error *err)
{
    const struct plait_layout *layout = &plan->layout;
    char order[16];

    if (layout->order[0] == PLAIT_TP || layout->size[PLAIT_TP] == 1)
        return 0;
    plait_layout_format_order(layout, order);
    for (int i = 0; i < plan->nnodes; i++) {
        if (plait_layout_keeps_tp(layout, plan->first_rank[i], plan->tasks[i]))
            continue;
        errno = EINVAL;
        return plait_errorf(err,
                            "--rank-order=%s spreads tp groups (--tp=%d) over "
                            "several nodes, %s among them",
                            order, layout->size[PLAIT_TP], nodes[i]);
    }
    return 0;
}

static int refuse_order(const struct plait_plan *plan,
                        const struct plait_plan_request *request,
                        struct plait_error *err)
{
    struct plait_error why;

    if (request->placement == PLAIT_PLACE_LINEAR ||
        plait_plan_check_order(plan, request->nodes, &why) == 0)
        return 0;
    return plait_errorf(err,
                        "%s; begin the order with tp, or allow it by "
                        "--placement=linear",
                        why.text);
}

static struct plait_plan *create_plan(const struct plait_plan_request *request,
                                      struct plait_error *err)
{
    struct plait_layout layout = request->layout;
    struct plait_plan *plan;
    int world = 0, *order;

    if (count_tasks(request, &world, err) < 0 ||
        check_nodes(request, err) < 0 ||
        plait_layout_resolve(&layout, world, err) < 0 ||
        check_tp(request, &layout, err) < 0)
        return NULL;
    plan = plait_plan_allocate(request->nnodes);
    order = calloc((size_t)request->nnodes, sizeof(*order));
    if (!plan || !order) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    plan->layout = layout;
    plan->placement = request->placement;
    memcpy(plan->tasks, request->tasks,
           (size_t)request->nnodes * sizeof(*plan->tasks));
    for (int i = 0; i < request->nnodes; i++)
        order[i] = i;
    if (request->placement == PLAIT_PLACE_TOPOLOGY && request->fabric &&
        plait_place_nodes(request, &layout, order) < 0) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    if (plait_blocks_check(request, &layout, order, err) < 0)
        goto error;
    if (plait_blocks_number(request, plan->domain) < 0) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    set_order(plan, order);
    if (refuse_order(plan, request, err) < 0)
        goto error;
    free(order);
    return plan;
error:
    free(order);
    plait_plan_destroy(plan);
    return NULL;
}

/* A plan in one of the orders that begin with tp; NULL where that does not fit,
 * or memory ran out: the given order is kept then. */
static struct plait_plan *create_ordered(struct plait_plan_request *request,
                                         const char *order,
                                         struct plait_cost *cost)
{
    struct plait_plan *plan;
    struct plait_cost linear;

    plait_layout_parse_order(order, request->layout.order, NULL);
    plan = create_plan(request, NULL);
    if (plan && plait_cost_plan(request, plan, cost, &linear, NULL) < 0) {
        plait_plan_destroy(plan);
        return NULL;
    }
    return plan;
}

struct plait_plan *plait_plan_create(const struct plait_plan_request *request,
                                     struct plait_error *err)
{
    static const char *const orders[] = {"tp-cp-ep-pp-dp", "tp-pp-cp-ep-dp"};
    struct plait_plan_request ordered = *request;
    struct plait_plan *best = create_plan(request, err);
    struct plait_cost cost, least, linear;

    if (!best || !request->order_free)
        return best;
    if (plait_cost_plan(request, best, &least, &linear, NULL) < 0)
        return best;
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct plait_plan *plan = create_ordered(&ordered, orders[i], &cost);

        if (plan && cost.step < least.step * (1 - 1e-9)) {
            struct plait_plan *worse = best;

            best = plan;
            plan = worse;
            least = cost;
        }
        plait_plan_destroy(plan);
    }
    return best;
}

void plait_plan_destroy(struct plait_plan *plan)
{
    int saved = errno;

    if (!plan)
        return;
    free(plan->node_rank);
    free(plan->first_rank);
    free(plan->tasks);
    free(plan->domain);
    free(plan);
    errno = saved;
}
