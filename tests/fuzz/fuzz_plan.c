/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "topology/plan/plan.h"

/* A text that decodes must encode to a text that decodes to the same plan, and
 * the plan's parts must agree with the whole. */
static void check(const struct plait_plan *plan, const char *text)
{
    char *again = plait_plan_encode(plan);
    struct plait_plan *back = again ? plait_plan_decode(again, NULL) : NULL;
    struct plait_plan_part part;
    int last = plan->nnodes - 1;

    if (!back || back->nnodes != plan->nnodes ||
        memcmp(back->node_rank, plan->node_rank,
               (size_t)plan->nnodes * sizeof(int)) != 0)
        __builtin_trap();
    if (plait_plan_decode_part(text, last, &part, NULL) < 0 ||
        part.first_rank != plan->first_rank[last] ||
        part.node_rank != plan->node_rank[last])
        __builtin_trap();
    plait_plan_destroy(back);
    free(again);
}

/* A short text may name a million nodes, which only takes longer. */
enum { NODES_MOST = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct plait_plan_part part;
    struct plait_plan *plan;
    int rc;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    rc = plait_plan_decode_part(text, 0, &part, NULL);
    if (rc < 0 || part.nnodes <= NODES_MOST) {
        plan = plait_plan_decode(text, NULL);
        if (plan && rc < 0)
            __builtin_trap();
        if (plan)
            check(plan, text);
        plait_plan_destroy(plan);
    }
    free(text);
    return 0;
}
