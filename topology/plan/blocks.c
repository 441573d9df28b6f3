/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor-parallel groups of several nodes, which have to be in one block. */
#include "topology/plan/blocks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hostlist.h"

bool plait_blocks_span(const struct plait_plan_request *request, int tp)
{
    if (!request->fabric || !plait_fabric_has_blocks(request->fabric))
        return false;
    for (int i = 0; i < request->nnodes; i++)
        if (request->tasks[i] != request->tasks[0])
            return false;
    return tp % request->tasks[0] == 0;
}

/* "gb[019-035]", or its beginning. */
static void name_nodes(const struct plait_plan_request *request, int leaf,
                       char *text, size_t size)
{
    const char **names = calloc((size_t)request->nnodes, sizeof(*names));
    char *folded = NULL;
    int n = 0;

    for (int i = 0; names && i < request->nnodes; i++)
        if (plait_fabric_leaf(request->fabric, request->nodes[i]) == leaf)
            names[n++] = request->nodes[i];
    if (names)
        folded = plait_hostlist_fold(names, n);
    snprintf(text, size, "%.40s%s", folded ? folded : "",
             folded && strlen(folded) > 40 ? "..." : "");
    free(folded);
    free(names);
}

/* How many nodes of the request each switch has. */
static int *count_nodes(const struct plait_plan_request *request)
{
    int n = plait_fabric_switches(request->fabric);
    int *count = calloc((size_t)n + 1, sizeof(*count));

    for (int i = 0; count && i < request->nnodes; i++) {
        int leaf = plait_fabric_leaf(request->fabric, request->nodes[i]);

        if (leaf >= 0)
            count[leaf]++;
    }
    return count;
}

/* "17 nodes of block nvl1 (gb[019-035]), 9 of nvl5 (gb[088-096])": those that
 * groups of `span` nodes do not divide. Returns how many blocks these are. */
static int name_odd(const struct plait_plan_request *request, int span,
                    char *text, size_t size)
{
    enum { NAMED = 3 };
    int *count = count_nodes(request), found = 0;
    size_t used = 0;

    for (int i = 0; count && i < plait_fabric_switches(request->fabric); i++) {
        char nodes[64];

        if (count[i] % span == 0 || ++found > NAMED)
            continue;
        name_nodes(request, i, nodes, sizeof(nodes));
        used += (size_t)snprintf(
            text + used, size - used, "%s%d node%s of block %.20s (%s)",
            found > 1 ? ", " : "", count[i], count[i] == 1 ? "" : "s",
            plait_fabric_switch_name(request->fabric, i), nodes);
    }
    if (found > NAMED)
        snprintf(text + used, size - used, " and those of %d more blocks",
                 found - NAMED);
    free(count);
    return found;
}

int plait_blocks_check(const struct plait_plan_request *request,
                       const struct plait_layout *layout, const int *order,
                       struct plait_error *err)
{
    int span = layout->size[PLAIT_TP] / request->tasks[0];
    char odd[320], why[380];

    if (span < 2 || !plait_blocks_span(request, layout->size[PLAIT_TP]) ||
        layout->order[0] != PLAIT_TP)
        return 0;
    for (int i = 0; i < request->nnodes; i++) {
        const char *first = request->nodes[order[i / span * span]];
        const char *node = request->nodes[order[i]];

        if (plait_fabric_distance(request->fabric, first, node) <= 1)
            continue;
        if (name_odd(request, span, odd, sizeof(odd)))
            snprintf(why, sizeof(why), "there are %s, which %d does not divide",
                     odd, span);
        else
            snprintf(why, sizeof(why),
                     "%.100s and %.100s are in different ones", first, node);
        errno = EINVAL;
        return plait_errorf(err,
                            "--tp=%d takes %d nodes of one block, but %s; ask "
                            "for whole blocks (--segment=%d) or a smaller --tp",
                            layout->size[PLAIT_TP], span, why, span);
    }
    return 0;
}

int plait_blocks_number(const struct plait_plan_request *request, int *domain)
{
    int *numbers, found = 0;

    if (!request->fabric || !plait_fabric_has_blocks(request->fabric))
        return 0;
    numbers = calloc((size_t)plait_fabric_switches(request->fabric) + 1,
                     sizeof(*numbers));
    if (!numbers)
        return -1;
    for (int i = 0; i < request->nnodes; i++) {
        int leaf = plait_fabric_leaf(request->fabric, request->nodes[i]);

        if (leaf >= 0 && numbers[leaf])
            domain[i] = numbers[leaf];
        else
            domain[i] = ++found;
        if (leaf >= 0)
            numbers[leaf] = domain[i];
    }
    free(numbers);
    return 0;
}
