/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/plan/place.h"

#include <stdlib.h>
#include <string.h>

#include "topology/plan/cost_order.h"

/* Which node gets which NODE_RANK.
 *
 * The model: cost.h. Ranks are dealt to NODE_RANKs (positions) in order, so
 * the layout fixes which positions talk to each other, and the only question
 * is which node stands at which position. Nodes of one leaf with equally
 * many tasks are interchangeable and keep Slurm's order among themselves.
 *
 * The search: Slurm's order is the first candidate and is left only for
 * something cheaper. If there are few distinct orders, all are tried: the
 * result is exact. Otherwise the candidates are
 *   - the tree order, where the nodes under a switch are neighbours, at
 *     every level;
 *   - packed orders, where each leaf gives only whole units of u nodes (the
 *     nodes of a tp, cp, dp or pp group) and the rest comes last, so that
 *     uneven leaves do not shift every group behind them;
 *   - both of these folded: positions form a matrix of P rows (outer axes) of
 *     D columns (inner axes), and folding by a fills a x D tiles column by
 *     column, so that a leaf holds a block of neighbours along both axes;
 *     first those whose tiles come out even, then ragged ones,
 * and from the cheapest one, swaps of two nodes as long as they pay. Work is
 * limited to a fixed number of edge evaluations, so time grows as n log n
 * (the sorts) and the result does not depend on the machine. */

enum { EXACT_WORK = 2000000, SEARCH_WORK = 6000000 };

struct search {
    const struct plait_plan_request *request;
    struct plait_orders *orders;
    int n;
    const int *class;
    int nclasses;
    long work; /* edge evaluations left */
    double cost;
    int *best, *trial, *tree, *base, *count, *place;
    int failed;
};

/* Evaluate an order and keep it if it is cheaper. A gain that is only
 * rounding is none. */
static int consider(struct search *s, const int *order)
{
    struct plait_cost cost;
    double seconds;

    if (s->work <= 0)
        return 0;
    s->work -= plait_orders_edges(s->orders) + s->n;
    seconds = plait_orders_cost(s->orders, order, &cost);
    if (seconds < 0)
        s->failed = 1;
    if (seconds < 0 || seconds >= s->cost * (1 - 1e-9))
        return 0;
    s->cost = seconds;
    if (order != s->best)
        memcpy(s->best, order, (size_t)s->n * sizeof(*order));
    return 1;
}

/* --- the tree order --- */

enum { PATH_MOST = 16 };

struct key {
    int node;
    int depth;
    int path[PATH_MOST]; /* first node below each switch, topmost first */
};

/* The lowest node index below every switch. */
static int *first_nodes(const struct plait_plan_request *request)
{
    const struct plait_fabric *fabric = request->fabric;
    int n = plait_fabric_switches(fabric);
    int *first = malloc((size_t)(n + 1) * sizeof(*first));

    if (!first)
        return NULL;
    for (int i = 0; i < n; i++)
        first[i] = request->nnodes;
    for (int i = 0; i < request->nnodes; i++)
        for (int s = plait_fabric_leaf(fabric, request->nodes[i]);
             s >= 0 && i < first[s]; s = plait_fabric_parent(fabric, s))
            first[s] = i;
    return first;
}

static void set_key(struct key *key, const struct plait_plan_request *request,
                    const int *first, int node)
{
    const struct plait_fabric *fabric = request->fabric;
    int n = 0, up[PATH_MOST];

    for (int s = plait_fabric_leaf(fabric, request->nodes[node]);
         s >= 0 && n < PATH_MOST; s = plait_fabric_parent(fabric, s))
        up[n++] = first[s];
    key->node = node;
    key->depth = n;
    for (int i = 0; i < n; i++)
        key->path[i] = up[n - 1 - i];
}

static int compare(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    for (int i = 0; i < x->depth || i < y->depth; i++) {
        int p = i < x->depth ? x->path[i] : x->node;
        int q = i < y->depth ? y->path[i] : y->node;

        if (p != q)
            return p < q ? -1 : 1;
    }
    return (x->node > y->node) - (x->node < y->node);
}

/* Switches in the order in which Slurm's list first names one of their
 * nodes, so that a list which is in order already stays as it is. */
static int tree_order(const struct plait_plan_request *request, int *order)
{
    size_t n = (size_t)request->nnodes;
    struct key *keys = malloc(n * sizeof(*keys));
    int *first = first_nodes(request);

    if (keys && first) {
        for (int i = 0; i < request->nnodes; i++)
            set_key(&keys[i], request, first, i);
        qsort(keys, n, sizeof(*keys), compare);
        for (int i = 0; i < request->nnodes; i++)
            order[i] = keys[i].node;
    }
    n = keys && first;
    free(keys);
    free(first);
    return n ? 0 : -1;
}

/* --- packed and folded orders --- */

/* From the tree order: whole units of `unit` nodes of every leaf, then what
 * is left over. */
static void pack(const struct search *s, int unit, int *order)
{
    int n = 0;

    for (int rest = 0; rest < 2; rest++)
        for (int i = 0, end; i < s->n; i = end) {
            int whole;

            for (end = i; end < s->n; end++)
                if (s->class[s->tree[end]] != s->class[s->tree[i]])
                    break;
            whole = (end - i) / unit * unit;
            for (int k = rest ? i + whole : i; k < (rest ? end : i + whole);
                 k++)
                order[n++] = s->tree[k];
        }
}

static void try_folds(struct search *s, const struct plait_fold *folds, int n)
{
    for (int i = 0; i < n && s->work > 0; i++) {
        plait_fold_fill(folds[i], s->n, s->place);
        for (int k = 0; k < s->n; k++)
            s->trial[s->place[k]] = s->base[k];
        consider(s, s->trial);
    }
}

static void try_candidates(struct search *s, const struct plait_layout *layout)
{
    struct plait_fold folds[PLAIT_FOLDS_MOST];
    int units[PLAIT_UNITS_MOST], per_node = s->request->tasks[0], even;
    int nfolds = plait_folds_list(layout, per_node, s->n, folds, &even);
    int nunits = plait_units_list(layout, per_node, s->n, units);

    for (int ragged = 0; ragged < 2; ragged++)
        for (int i = -1; i < nunits; i++) {
            if (i < 0)
                memcpy(s->base, s->tree, (size_t)s->n * sizeof(*s->base));
            else
                pack(s, units[i], s->base);
            if (!ragged)
                consider(s, s->base);
            try_folds(s, ragged ? folds + even : folds,
                      ragged ? nfolds - even : even);
        }
}

/* --- swaps --- */

static void improve(struct search *s)
{
    int better = 1;

    while (better && s->work > 0) {
        better = 0;
        for (int i = 0; i < s->n && s->work > 0; i++)
            for (int k = i + 1; k < s->n && s->work > 0; k++) {
                int a = s->best[i], b = s->best[k];

                if (s->class[a] == s->class[b])
                    continue;
                s->best[i] = b;
                s->best[k] = a;
                if (consider(s, s->best)) {
                    better = 1;
                } else {
                    s->best[i] = a;
                    s->best[k] = b;
                }
            }
    }
}

/* --- all orders, where there are few --- */

/* n! / prod(class sizes!) times the work of one, or more than `most`. */
static double distinct_orders(const struct search *s, double most)
{
    double orders = 1;
    int placed = 0;

    for (int c = 0; c < s->nclasses; c++)
        for (int i = 1; i <= s->count[c]; i++) {
            orders *= (double)++placed / i;
            if (orders > most)
                return orders;
        }
    return orders;
}

/* Positions 0 .. at-1 of trial hold classes; try every class at `at`. */
static void try_all(struct search *s, int at)
{
    if (at == s->n) {
        int *next = s->base; /* per class: its next node */

        for (int c = 0; c < s->nclasses; c++)
            next[c] = 0;
        for (int i = 0; i < s->n; i++) {
            int c = s->trial[i], node = next[c];

            while (s->class[node] != c)
                node++;
            next[c] = node + 1;
            s->tree[i] = node;
        }
        consider(s, s->tree);
        return;
    }
    for (int c = 0; c < s->nclasses; c++) {
        if (s->count[c] == 0)
            continue;
        s->count[c]--;
        s->trial[at] = c;
        try_all(s, at + 1);
        s->count[c]++;
    }
}

static int prepare(struct search *s, const struct plait_layout *layout)
{
    size_t n = (size_t)s->n;

    s->orders = plait_orders_create(s->request, layout);
    s->best = malloc(n * sizeof(int));
    s->trial = malloc(n * sizeof(int));
    s->tree = malloc(n * sizeof(int));
    s->base = malloc(n * sizeof(int));
    s->place = malloc(n * sizeof(int));
    s->count = calloc(n, sizeof(int));
    if (!s->orders || !s->best || !s->trial || !s->tree || !s->base ||
        !s->place || !s->count)
        return -1;
    s->class = plait_orders_class(s->orders, &s->nclasses);
    for (int i = 0; i < s->n; i++) {
        s->count[s->class[i]]++;
        s->best[i] = i;
    }
    return tree_order(s->request, s->tree);
}

static void search_orders(struct search *s, const struct plait_layout *layout)
{
    double one = plait_orders_edges(s->orders) + s->n;
    struct plait_cost cost;

    s->cost = plait_orders_cost(s->orders, s->best, &cost);
    s->failed = s->cost < 0;
    if (s->nclasses < 2)
        return;
    if (distinct_orders(s, EXACT_WORK / one) * one <= EXACT_WORK) {
        s->work = 2 * EXACT_WORK;
        try_all(s, 0);
        return;
    }
    s->work = SEARCH_WORK;
    try_candidates(s, layout);
    improve(s);
}

int plait_place_nodes(const struct plait_plan_request *request,
                      const struct plait_layout *layout, int *order)
{
    struct search s = {.request = request, .n = request->nnodes};
    int rc = prepare(&s, layout);

    if (rc == 0) {
        search_orders(&s, layout);
        rc = s.failed ? -1 : 0;
    }
    if (rc == 0)
        memcpy(order, s.best, (size_t)s.n * sizeof(*order));
    plait_orders_destroy(s.orders);
    free(s.best);
    free(s.trial);
    free(s.tree);
    free(s.base);
    free(s.place);
    free(s.count);
    return rc;
}
