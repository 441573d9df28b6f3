/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place.h"

/* An encoded plan, for example
 *     1/2.1.1.4.2/tp-cp-ep-dp-pp/topology/0-6:2*2+1/8*2
 * format version; sizes of tp, cp, ep, dp, pp; rank order; placement; the
 * nodes in the order of their NODE_RANK as runs; their tasks in that same
 * order (nodes*tasks). A run is from-to:step, counting down if from > to,
 * here 0,2,4,6; *2+1 makes it two runs, the second one higher: 1,3,5,7. A
 * list that ends in |16.1.4 is folded (place.h): the nodes of a leaf then sit
 * together in it, though they are far apart in NODE_RANK. So the length goes
 * with the number of runs of neighbours in Slurm's order under one leaf. */

#define VERSION "1"
#define NODES_MOST 1048576
#define FEW_RUNS 8 /* not worth the search for a fold */

static const char *const placement_names[] = {"topology", "linear"};

struct buffer {
    char *text;
    size_t used, room;
};

static int print(struct buffer *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static int print(struct buffer *b, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (b->used + 128 > b->room) {
        size_t room = b->room ? 2 * b->room : 512;
        char *text = realloc(b->text, room);

        if (!text)
            return -1;
        b->text = text;
        b->room = room;
    }
    va_start(ap, fmt);
    n = vsnprintf(b->text + b->used, b->room - b->used, fmt, ap);
    va_end(ap);
    b->used += (size_t)n;
    return 0;
}

/* from, from + step, ... (count of them), and all that `repeat` times, each
 * time `shift` higher. */
struct run {
    int from, step, count, repeat, shift;
};

/* Elements from `at` on that keep one step. */
static int run_length(const int *order, int n, int at)
{
    int step, end = at + 1;

    if (at + 1 >= n)
        return n - at;
    step = order[at + 1] - order[at];
    while (end < n && order[end] - order[end - 1] == step)
        end++;
    /* Two of a kind save nothing, and may open a longer run. */
    return end - at > 2 || step == 1 ? end - at : 1;
}

/* Do the `count` elements at `at` repeat those before, `shift` higher? */
static int repeats(const int *order, int n, int at, int count, int shift)
{
    if (at + count > n)
        return 0;
    for (int i = at; i < at + count; i++)
        if (order[i] - order[i - count] != shift)
            return 0;
    return 1;
}

/* The run at `at` and its repetitions; returns how many elements it takes. */
static int find_run(const int *order, int n, int at, struct run *run)
{
    int count = run_length(order, n, at);

    run->from = order[at];
    run->count = count;
    run->step = count > 1 ? order[at + 1] - order[at] : 1;
    run->repeat = 1;
    run->shift = at + count < n ? order[at + count] - order[at] : 0;
    while (count > 1 &&
           repeats(order, n, at + run->repeat * count, count, run->shift))
        run->repeat++;
    return count * run->repeat;
}

/* How many runs print_runs() would print, or more than `most`. */
static int count_runs(const int *order, int n, int most)
{
    struct run run;
    int runs = 0;

    for (int i = 0; i < n && runs <= most; runs++)
        i += find_run(order, n, i, &run);
    return runs;
}

/* Take back the fold that leaves the fewest runs, if any does; `list` gets
 * the order without it. */
static struct plait_fold unfold(const struct plait_plan *plan, const int *order,
                                int *list, int *trial, int *position)
{
    struct plait_fold folds[PLAIT_FOLDS_MOST], best = {1, 1, 1};
    int n = plan->nnodes, runs = count_runs(order, n, n), even;
    int nfolds =
        plait_folds_list(&plan->layout, plan->tasks[order[0]], n, folds, &even);

    memcpy(list, order, (size_t)n * sizeof(*list));
    for (int i = 0; i < nfolds && runs > FEW_RUNS; i++) {
        int found;

        plait_fold_fill(folds[i], n, position);
        for (int k = 0; k < n; k++)
            trial[k] = order[position[k]];
        found = count_runs(trial, n, runs - 1);
        if (found >= runs)
            continue;
        runs = found;
        best = folds[i];
        memcpy(list, trial, (size_t)n * sizeof(*list));
    }
    return best;
}

static int print_runs(struct buffer *b, const int *order, int n)
{
    for (int i = 0, used; i < n; i += used) {
        struct run run;
        int rc;

        used = find_run(order, n, i, &run);
        rc = print(b, i ? ",%d" : "%d", run.from);
        if (rc == 0 && run.count > 1)
            rc = print(b, "-%d", run.from + (run.count - 1) * run.step);
        if (rc == 0 && run.count > 1 && abs(run.step) != 1)
            rc = print(b, ":%d", abs(run.step));
        if (rc == 0 && run.repeat > 1)
            rc = print(b, "*%d%+d", run.repeat, run.shift);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int print_order(struct buffer *b, const struct plait_plan *plan,
                       const int *order)
{
    size_t n = (size_t)plan->nnodes;
    int *list = malloc(3 * n * sizeof(*list)), rc;
    struct plait_fold fold;

    if (!list)
        return -1;
    fold = unfold(plan, order, list, list + n, list + 2 * n);
    rc = print_runs(b, list, plan->nnodes);
    if (rc == 0 && fold.ranks > 1)
        rc = print(b, "|%d.%d.%d", fold.ranks, fold.per_node, fold.tall);
    free(list);
    return rc;
}

static int print_tasks(struct buffer *b, const struct plait_plan *plan,
                       const int *order)
{
    for (int i = 0, run; i < plan->nnodes; i += run) {
        int tasks = plan->tasks[order[i]];

        for (run = 1; i + run < plan->nnodes; run++)
            if (plan->tasks[order[i + run]] != tasks)
                break;
        if (print(b, i ? ",%d*%d" : "%d*%d", run, tasks) < 0)
            return -1;
    }
    return 0;
}

char *plait_plan_encode(const struct plait_plan *plan)
{
    struct buffer b = {NULL, 0, 0};
    const int *size = plan->layout.size;
    int *order = malloc((size_t)plan->nnodes * sizeof(*order));
    char text[16];

    if (!order)
        return NULL;
    for (int i = 0; i < plan->nnodes; i++)
        order[plan->node_rank[i]] = i;
    plait_layout_format_order(&plan->layout, text);
    if (print(&b, "%s/%d.%d.%d.%d.%d/%s/%s/", VERSION, size[PLAIT_TP],
              size[PLAIT_CP], size[PLAIT_EP], size[PLAIT_DP], size[PLAIT_PP],
              text, placement_names[plan->placement]) < 0 ||
        print_order(&b, plan, order) < 0 || print(&b, "/") < 0 ||
        print_tasks(&b, plan, order) < 0) {
        free(b.text);
        b.text = NULL;
    }
    free(order);
    return b.text;
}

static int damaged(struct plait_error *err, const char *what)
{
    errno = EINVAL;
    return plait_errorf(err, "the encoded plan is damaged: %s", what);
}

/* A number from 0 to NODES_MOST at *p, which moves behind it; or -1. */
static int number(const char **p)
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
static int read_repeat(const char **p, struct run *run)
{
    int sign;

    run->repeat = 1;
    run->shift = 0;
    if (**p != '*')
        return 0;
    (*p)++;
    run->repeat = number(p);
    sign = **p == '-' ? -1 : 1;
    if (run->repeat < 2 || (**p != '+' && **p != '-'))
        return -1;
    (*p)++;
    run->shift = number(p);
    if (run->shift < 0)
        return -1;
    run->shift *= sign;
    return 0;
}

/* The next run of the list at *p: 1, 0 at its end ('/' or '|'), -1 damaged. */
static int next_run(const char **p, struct run *run)
{
    int to, step = 1;

    if (**p == '/' || **p == '|')
        return 0;
    if (**p == ',')
        (*p)++;
    run->from = to = number(p);
    if (**p == '-') {
        (*p)++;
        to = number(p);
        if (**p == ':') {
            (*p)++;
            step = number(p);
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
        fold->ranks = number(p);
        if (*(*p)++ != '.')
            return -1;
        fold->per_node = number(p);
        if (fold->per_node < 1 || fold->ranks < fold->per_node ||
            *(*p)++ != '.')
            return -1;
        fold->tall = number(p);
        if (fold->tall < 1)
            return -1;
    }
    return *(*p)++ == '/' ? 0 : -1;
}

/* The next "nodes*tasks", likewise; ends with the text. */
static int next_tasks(const char **p, int *nodes, int *tasks)
{
    if (!**p)
        return 0;
    if (**p == ',')
        (*p)++;
    *nodes = number(p);
    if (*nodes < 1 || *(*p)++ != '*')
        return -1;
    *tasks = number(p);
    if (*tasks < 1 || (**p && **p != ',') || (**p == ',' && !(*p)[1]))
        return -1;
    return 1;
}

/* Everything up to the runs, which *p points to afterwards. */
static int read_head(const char **p, struct plait_layout *layout,
                     enum plait_placement *placement, struct plait_error *err)
{
    static const enum plait_axis axes[] = {PLAIT_TP, PLAIT_CP, PLAIT_EP,
                                           PLAIT_DP, PLAIT_PP};
    char text[16];
    size_t n;

    if (strncmp(*p, VERSION "/", strlen(VERSION) + 1) != 0)
        return plait_errorf(err, "the encoded plan is of another version of "
                                 "Plait; are srun and the nodes upgraded "
                                 "alike?");
    *p += strlen(VERSION) + 1;
    for (int i = 0; i < PLAIT_NAXES; i++) {
        layout->size[axes[i]] = number(p);
        if (layout->size[axes[i]] < 1 ||
            *(*p)++ != (i < PLAIT_NAXES - 1 ? '.' : '/'))
            return damaged(err, "sizes");
    }
    n = strcspn(*p, "/");
    if (n >= sizeof(text) || (*p)[n] != '/')
        return damaged(err, "rank order");
    memcpy(text, *p, n);
    text[n] = '\0';
    if (plait_layout_parse_order(text, layout->order, NULL) < 0)
        return damaged(err, "rank order");
    *p += n + 1;
    n = strcspn(*p, "/");
    if (n == 6 && strncmp(*p, "linear", n) == 0)
        *placement = PLAIT_PLACE_LINEAR;
    else if (n == 8 && strncmp(*p, "topology", n) == 0)
        *placement = PLAIT_PLACE_TOPOLOGY;
    else
        return damaged(err, "placement");
    if ((*p)[n] != '/')
        return damaged(err, "placement");
    *p += n + 1;
    return 0;
}

static int count_nodes(const char *p, int *nnodes, struct plait_error *err)
{
    struct run run;
    int rc, n = 0;

    while ((rc = next_run(&p, &run)) > 0) {
        if (run.count > NODES_MOST / run.repeat)
            return damaged(err, "too many nodes");
        n += run.count * run.repeat;
        if (n > NODES_MOST)
            return damaged(err, "too many nodes");
    }
    if (rc < 0 || n == 0)
        return damaged(err, "node order");
    *nnodes = n;
    return 0;
}

/* Fill the plan's tables; every node index must come exactly once. */
static int read_order(const char **p, struct plait_plan *plan)
{
    struct plait_fold fold;
    struct run run;
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
                   plait_layout_resolve(&plan->layout, rank, NULL) < 0
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
        damaged(err, "node order");
        goto error;
    }
    if (read_tasks(p, plan) < 0) {
        damaged(err, "tasks");
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
    struct run run;
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
        return damaged(err, "node order");
    if (found.node_rank < 0) {
        errno = EINVAL;
        return plait_errorf(err, "the plan is for %d nodes and has no node %d",
                            found.nnodes, index);
    }
    while ((rc = next_tasks(&p, &nodes, &tasks)) > 0) {
        if (nodes > NODES_MOST / tasks || rank > NODES_MOST)
            return damaged(err, "tasks");
        if (found.node_rank >= at && found.node_rank < at + nodes) {
            found.first_rank = rank + (found.node_rank - at) * tasks;
            found.tasks = tasks;
        }
        at += nodes;
        rank += nodes * tasks;
    }
    if (rc < 0 || at != found.nnodes ||
        plait_layout_resolve(&found.layout, rank, NULL) < 0)
        return damaged(err, "tasks");
    *part = found;
    return 0;
}
