/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asked.h"
#include "master.h"
#include "plugin.h"
#include "scontrol.h"
#include "show_plan.h"
#include "topology/hostlist.h"

#define HET_TEXT                                                               \
    "heterogeneous jobs cannot be planned; use one component, or leave out "   \
    "the layout flags"

static int refuse_het(struct plait_error *err)
{
    const char *size = getenv("SLURM_HET_SIZE");

    if (!size || atoi(size) < 2)
        return 0;
    return plait_errorf(err, HET_TEXT);
}

/* With --gpus-per-task each task sees one GPU, and NCCL loses peer-to-peer
 * copies between the GPUs of a node. */
static int check_gpus(const struct plait_options *options,
                      const struct plait_asked *asked, struct plait_error *err)
{
    if (!options->pin || asked->gpu_bind || !asked->gpus_per_task)
        return 0;
    return plait_errorf(err, "--gpus-per-task hides the other GPUs of the "
                             "node from each task; use --gpus-per-node, or "
                             "add --gpu-bind=none or --pin=none");
}

/* The planner refuses a tp group that spans nodes; here only the sizes are
 * known, so that nobody waits in the queue for that answer. */
static int check_tp(const struct plait_layout *layout, int tasks,
                    struct plait_error *err)
{
    int tp = layout->size[PLAIT_TP], fit = tp < tasks ? tp : tasks;

    if (layout->order[0] != PLAIT_TP || tasks % tp == 0)
        return 0;
    while (tasks % fit)
        fit--;
    return plait_errorf(err, "--tp=%d does not divide the %d task%s of a "
                             "node; --tp=%d would fit",
                        tp, tasks, tasks == 1 ? "" : "s", fit);
}

int plait_local_check(const struct plait_options *options,
                      struct plait_error *err)
{
    struct plait_layout layout;
    struct plait_asked asked;

    plait_asked_read(&asked);
    plait_options_layout(options, &layout);
    if (refuse_het(err) < 0 || check_gpus(options, &asked, err) < 0)
        return -1;
    if (!asked.tasks)
        return 0;
    if (plait_layout_resolve(&layout, asked.tasks, err) < 0)
        return -1;
    return asked.per_node ? check_tp(&layout, asked.per_node, err) : 0;
}

/* The step's nodes in Slurm's order and their tasks, from slurmctld: srun's
 * environment tells only the job's. */
static slurm_step_layout_t *load_step(spank_t spank, struct plait_error *err)
{
    slurm_step_layout_t *step;
    slurm_step_id_t id;

    memset(&id, 0, sizeof(id));
    id.step_het_comp = NO_VAL;
    if (spank_get_item(spank, S_JOB_ID, &id.job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &id.step_id) != ESPANK_SUCCESS) {
        plait_errorf(err, "srun does not tell its job and step");
        return NULL;
    }
    step = slurm_job_step_layout_get(&id);
    if (!step)
        plait_errorf(err, "cannot ask slurmctld for the nodes of step %u.%u: "
                          "%s",
                     id.job_id, id.step_id, slurm_strerror(errno));
    return step;
}

/* In srun, `a : b` is heterogeneous; our program's own arguments are its
 * business. */
static int is_het(spank_t spank)
{
    char buf[65536], **argv = NULL, *p;
    FILE *file = fopen("/proc/self/cmdline", "re");
    int argc = 0, words = 0, het = 0;
    size_t n;

    if (!file)
        return 0;
    n = fread(buf, 1, sizeof(buf) - 1, file);
    fclose(file);
    buf[n] = '\0';
    if (n == sizeof(buf) - 1 ||
        spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
        return 0;
    for (p = buf; p < buf + n; p += strlen(p) + 1)
        words++;
    for (p = buf; p < buf + n && words > argc; p += strlen(p) + 1, words--)
        het |= strcmp(p, ":") == 0;
    return het;
}

static int export_plan(const struct plait_plan *plan,
                       const char *const *nodes, spank_t spank,
                       const struct plait_options *options,
                       struct plait_error *err)
{
    char *code = plait_plan_encode(plan), master[300] = "";
    struct plait_asked asked;
    uint32_t job = 0, step = 0;
    int rc;

    if (!code)
        return plait_errorf(err, "out of memory");
    plait_asked_read(&asked);
    spank_get_item(spank, S_JOB_ID, &job);
    spank_get_item(spank, S_JOB_STEPID, &step);
    for (int i = 0; i < plan->nnodes && options->rendezvous; i++)
        if (plan->first_rank[i] == 0)
            plait_master_choose(nodes[i], job, step, master, sizeof(master));
    rc = setenv(PLAIT_ENV_PLAN, code, 1) |
         setenv(PLAIT_ENV_MASTER, master, 1) |
         setenv(PLAIT_ENV_KEEP,
                asked.cpu_bind ? (asked.gpu_bind ? "cpu,gpu" : "cpu")
                               : (asked.gpu_bind ? "gpu" : ""),
                1);
    free(code);
    return rc ? plait_errorf(err, "out of memory") : 0;
}

/* The nodes in the order in which Slurm gave them tasks: a host file, and
 * since 26.05 Slurm's own placement, deal tasks in another order than that of
 * the names, by which the nodes know their place. */
static void task_order(const slurm_step_layout_t *step, int *order)
{
    for (int i = 0; i < (int)step->node_cnt; i++) {
        int at = i;

        while (step->tids && at > 0 &&
               step->tids[order[at - 1]][0] > step->tids[i][0]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

/* Plan over the nodes in task order; the plan then speaks of them in the
 * order of the request. */
static struct plait_plan *
plan_in_task_order(const slurm_step_layout_t *step,
                   const struct plait_plan_request *request,
                   struct plait_error *err)
{
    struct plait_plan_request sorted = *request;
    size_t n = (size_t)request->nnodes;
    int *order = calloc(4 * n, sizeof(*order)), *tasks = order + n;
    const char **nodes = calloc(n, sizeof(*nodes));
    struct plait_plan *plan = NULL;

    if (!order || !nodes) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    task_order(step, order);
    for (size_t i = 0; i < n; i++) {
        nodes[i] = request->nodes[order[i]];
        tasks[i] = request->tasks[order[i]];
    }
    sorted.nodes = nodes;
    sorted.tasks = tasks;
    plan = plait_plan_create(&sorted, err);
    if (!plan)
        goto error;
    memcpy(tasks + n, plan->node_rank, n * sizeof(*tasks));
    memcpy(tasks + 2 * n, plan->first_rank, n * sizeof(*tasks));
    for (size_t i = 0; i < n; i++) {
        plan->node_rank[order[i]] = tasks[n + i];
        plan->first_rank[order[i]] = tasks[2 * n + i];
        plan->tasks[order[i]] = tasks[i];
    }
error:
    free(order);
    free(nodes);
    return plan;
}

static int make_plan(const slurm_step_layout_t *step, char **nodes,
                     spank_t spank, const struct plait_options *options,
                     struct plait_error *err)
{
    struct plait_plan_request request = {
        .order_given = options->given >> PLAIT_OPTION_ORDER & 1,
        .placement = options->placement,
        .nnodes = (int)step->node_cnt,
        .nodes = (const char *const *)nodes,
    };
    int rc = -1, *tasks = calloc(step->node_cnt, sizeof(*tasks));
    struct plait_fabric *fabric = NULL;
    struct plait_plan *plan = NULL;

    if (!tasks)
        return plait_errorf(err, "out of memory");
    for (uint32_t i = 0; i < step->node_cnt; i++)
        tasks[i] = step->tasks[i];
    request.tasks = tasks;
    plait_options_layout(options, &request.layout);
    /* Two nodes stay in order whatever is between them. */
    if (step->node_cnt > 2 && options->placement == PLAIT_PLACE_TOPOLOGY) {
        request.fabric = fabric = plait_scontrol_fabric(err);
        if (!fabric)
            goto error;
    }
    plan = plan_in_task_order(step, &request, err);
    if (!plan)
        goto error;
    rc = export_plan(plan, request.nodes, spank, options, err);
    if (rc == 0 && options->show_plan)
        plait_show_plan(stderr, plan, request.nodes, fabric);
error:
    plait_plan_destroy(plan);
    plait_fabric_destroy(fabric);
    free(tasks);
    return rc;
}

int plait_local_plan(spank_t spank, const struct plait_options *options,
                     struct plait_error *err)
{
    slurm_step_layout_t *step;
    char **nodes;
    int count = 0, rc = -1;

    if (is_het(spank))
        return plait_errorf(err, HET_TEXT);
    step = load_step(spank, err);
    if (!step)
        return -1;
    nodes = plait_hostlist_create(step->node_list, &count, err);
    if (nodes && (uint32_t)count == step->node_cnt)
        rc = make_plan(step, nodes, spank, options, err);
    else if (nodes)
        plait_errorf(err, "%d names, but %u nodes in '%.200s'", count,
                     step->node_cnt, step->node_list);
    plait_hostlist_destroy(nodes, count);
    slurm_job_step_layout_free(step);
    return rc;
}
