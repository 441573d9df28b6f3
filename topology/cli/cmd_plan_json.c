/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"

/* The document of plait plan --json, written as it is made: as a tree of
 * jansson's it took most of the command's time with 131,072 ranks. */

static int print_cost(FILE *out, const char *name, const struct plait_cost *c)
{
    json_t *cost = json_pack("{sf sf sf sf sf sf}", "tp_s", c->axis[PLAIT_TP],
                             "cp_s", c->axis[PLAIT_CP], "ep_s",
                             c->axis[PLAIT_EP], "dp_s", c->axis[PLAIT_DP],
                             "pp_s", c->axis[PLAIT_PP], "step_s", c->step);
    int rc;

    fprintf(out, " \"%s\": ", name);
    rc = json_dumpf(cost, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(cost);
    fputs(",\n", out);
    return rc;
}

/* A node's ranks, a line each. */
static int print_node(FILE *out, const struct plan_job *job, int node,
                      int *procid)
{
    const struct plait_plan *plan = job->plan;
    json_t *text = json_string(job->names[node]);
    char *name = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;

    json_decref(text);
    if (!name)
        return -1;
    for (int local = 0; local < plan->tasks[node]; local++) {
        int rank = plan->first_rank[node] + local;
        struct plait_coord c;

        plait_layout_coord(&plan->layout, rank, &c);
        fprintf(out,
                "%s\n  {\"procid\": %d, \"node\": %s, \"local\": %d, "
                "\"gpu\": %d, \"rank\": %d, \"node_rank\": %d",
                *procid ? "," : "", *procid, name, local, job->gpus[local],
                rank, plan->node_rank[node]);
        for (int i = 0; i < PLAIT_NAXES; i++)
            fprintf(out, ", \"%s\": %d", plait_axis_names[i], c.at[i]);
        fputc('}', out);
        (*procid)++;
    }
    free(name);
    return 0;
}

/* All groups along one axis, each a list of ranks. */
static int print_groups(FILE *out, const struct plait_layout *layout,
                        enum plait_axis axis)
{
    int world = plait_layout_world(layout), n = 0;
    int *members = malloc((size_t)world * sizeof(*members));

    if (!members)
        return -1;
    fprintf(out, "%s\n  \"%s\": [", axis ? "," : "", plait_axis_names[axis]);
    for (int rank = 0; rank < world; rank++) {
        struct plait_coord c;
        int size;

        plait_layout_coord(layout, rank, &c);
        if (c.at[axis] != 0)
            continue;
        size =
            plait_layout_group(layout, (enum plait_group)axis, rank, members);
        fprintf(out, "%s\n   [%d", n++ ? "," : "", members[0]);
        for (int k = 1; k < size; k++)
            fprintf(out, ", %d", members[k]);
        fputc(']', out);
    }
    fputs("\n  ]", out);
    free(members);
    return 0;
}

/* What the costs rest on. */
static int print_assumed(FILE *out, const struct plan_job *job)
{
    json_t *assumed = json_pack(
        "{ss ss ss* sf sb}", "gpu_type", job->gpu.name, "gpu_type_from",
        job->gpu_from, "model", job->options.model_file, "oversubscription",
        job->gpu.oversubscription, "oversubscription_known",
        job->gpu.uplinks_known);
    int rc;

    fputs(" \"assumed\": ", out);
    rc = json_dumpf(assumed, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(assumed);
    fputs("\n}\n", out);
    return rc;
}

static int print_document(FILE *out, const struct plan_job *job)
{
    const struct plait_layout *l = &job->plan->layout;
    int procid = 0, rc = 0;
    char order[16];

    plait_layout_format_order(l, order);
    fprintf(out, "{\n \"world\": %d,\n", plait_layout_world(l));
    for (int i = 0; i < PLAIT_NAXES; i++)
        fprintf(out, " \"%s\": %d,\n", plait_axis_names[i], l->size[i]);
    fprintf(out, " \"order\": \"%s\",\n \"ranks\": [", order);
    for (int i = 0; i < job->plan->nnodes && rc == 0; i++)
        rc = print_node(out, job, i, &procid);
    fputs("\n ],\n \"groups\": {", out);
    for (int i = 0; i < PLAIT_NAXES && rc == 0; i++)
        rc = print_groups(out, l, (enum plait_axis)i);
    fputs("\n },\n", out);
    if (rc < 0 || print_cost(out, "cost", &job->cost) < 0 ||
        print_cost(out, "linear_cost", &job->linear) < 0)
        return -1;
    fprintf(out, " \"bound_s\": %.15g,\n", job->bound);
    return print_assumed(out, job);
}

int plait_plan_print_json(const struct plan_job *job)
{
    if (print_document(stdout, job) < 0)
        return plait_cmd_failed("out of memory");
    return fflush(stdout) == 0 && !ferror(stdout)
               ? PLAIT_EXIT_GOOD
               : plait_cmd_failed("cannot write to standard output");
}
