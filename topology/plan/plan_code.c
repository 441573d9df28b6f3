/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/plan/place.h"
#include "topology/plan/plan_code.h"

/* With fewer runs, writing them as a fold would hardly shorten the text. */
#define FEW_RUNS 8

static const char *const placement_names[] = {"topology", "linear"};

struct buffer {
    char *text;
    size_t used, room;
};

static int append_text(struct buffer *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static int append_text(struct buffer *b, const char *fmt, ...)
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

/* How many elements from `at` on have a constant step. */
static int run_length(const int *order, int n, int at)
{
    int step, end = at + 1;

    if (at + 1 >= n)
        return n - at;
    step = order[at + 1] - order[at];
    while (end < n && order[end] - order[end - 1] == step)
        end++;
    /* A run of two saves nothing, and its second element may begin a longer
     * run. */
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
static int find_run(const int *order, int n, int at, struct plan_run *run)
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
    struct plan_run run;
    int runs = 0;

    for (int i = 0; i < n && runs <= most; runs++)
        i += find_run(order, n, i, &run);
    return runs;
}

/* Find the fold without which the order has the fewest runs, if any does;
 * `list` gets the order without it. */
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
        struct plan_run run;
        int rc;

        used = find_run(order, n, i, &run);
        rc = append_text(b, i ? ",%d" : "%d", run.from);
        if (rc == 0 && run.count > 1)
            rc = append_text(b, "-%d", run.from + (run.count - 1) * run.step);
        if (rc == 0 && run.count > 1 && abs(run.step) != 1)
            rc = append_text(b, ":%d", abs(run.step));
        if (rc == 0 && run.repeat > 1)
            rc = append_text(b, "*%d%+d", run.repeat, run.shift);
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
        rc = append_text(b, "|%d.%d.%d", fold.ranks, fold.per_node, fold.tall);
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
        if (append_text(b, i ? ",%d*%d" : "%d*%d", run, tasks) < 0)
            return -1;
    }
    return 0;
}

/* Whether a domain has several nodes. */
static bool has_domains(const struct plait_plan *plan)
{
    int last = 0;

    for (int i = 0; i < plan->nnodes; i++)
        last = plan->domain[i] > last ? plan->domain[i] : last;
    return last > 0 && last < plan->nnodes;
}

static int print_domains(struct buffer *b, const struct plait_plan *plan)
{
    if (!has_domains(plan))
        return 0;
    for (int i = 0, run; i < plan->nnodes; i += run) {
        for (run = 1; i + run < plan->nnodes; run++)
            if (plan->domain[i + run] != plan->domain[i])
                break;
        if (append_text(b, i ? ",%d*%d" : "/%d*%d", run, plan->domain[i]) < 0)
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
    if (append_text(&b, "%s/%d.%d.%d.%d.%d/%s/%s/",
                    has_domains(plan) ? PLAN_CODE_DOMAINS : PLAN_CODE_VERSION,
                    size[PLAIT_TP], size[PLAIT_CP], size[PLAIT_EP],
                    size[PLAIT_DP], size[PLAIT_PP], text,
                    placement_names[plan->placement]) < 0 ||
        print_order(&b, plan, order) < 0 || append_text(&b, "/") < 0 ||
        print_tasks(&b, plan, order) < 0 || print_domains(&b, plan) < 0) {
        free(b.text);
        b.text = NULL;
    }
    free(order);
    return b.text;
}
