/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "fuzz_lines.h"
#include "topology/start/options.h"

/* srun's flags, one per line ("tp=4"), and "nodes" and "tasks" (per node):
 * accepted flags must have a plan, and nodes must decode the same plan. */

static void set_flags(struct plait_options *options,
                      const struct fuzz_lines *lines)
{
    struct plait_error err;
    int i, k;

    plait_options_init(options);
    for (i = 0; i < lines->n; i++)
        for (k = 0; k < PLAIT_NOPTIONS; k++)
            if (strcmp(lines->line[i].name, plait_option_texts[k].name) == 0)
                plait_options_set(options, (enum plait_option)k,
                                  lines->line[i].value, &err);
}

static void check_coordinates(const struct plait_layout *layout, int world)
{
    struct plait_coord coord;
    int rank, axis;

    if (plait_layout_world(layout) != world)
        __builtin_trap();
    for (rank = 0; rank < world; rank++) {
        plait_layout_coord(layout, rank, &coord);
        for (axis = 0; axis < PLAIT_NAXES; axis++)
            if (coord.at[axis] < 0 || coord.at[axis] >= layout->size[axis])
                __builtin_trap();
        if (plait_layout_rank(layout, &coord) != rank)
            __builtin_trap();
    }
}

static void check_parts(const struct plait_plan *plan)
{
    char *text = plait_plan_encode(plan);
    struct plait_plan_part part;
    int i;

    if (!text)
        __builtin_trap();
    for (i = 0; i < plan->nnodes; i++)
        if (plait_plan_decode_part(text, i, &part, NULL) < 0 ||
            part.node_rank != plan->node_rank[i] ||
            part.first_rank != plan->first_rank[i] ||
            part.tasks != plan->tasks[i])
            __builtin_trap();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const nodes[] = {"n1", "n2", "n3", "n4"};
    int tasks[4], i, n, per_node;
    struct plait_plan_request request = {.nodes = nodes, .tasks = tasks};
    struct plait_options options;
    struct plait_plan *plan;
    struct fuzz_lines lines;
    struct plait_error err;

    fuzz_lines_create(&lines, data, size);
    set_flags(&options, &lines);
    n = (unsigned)fuzz_lines_number(&lines, "nodes") % 4 + 1;
    per_node = (unsigned)fuzz_lines_number(&lines, "tasks") % 8 + 1;
    for (i = 0; i < n; i++)
        tasks[i] = per_node;
    request.nnodes = n;
    request.placement = options.placement;
    plait_options_layout(&options, &request.layout);
    plan = plait_plan_create(&request, &err);
    if (plan) {
        check_coordinates(&plan->layout, n * per_node);
        check_parts(plan);
    }
    plait_plan_destroy(plan);
    fuzz_lines_destroy(&lines);
    return 0;
}
