/* SPDX-License-Identifier: Apache-2.0 */
/* The public library: which task of a job gets which rank and GPU. */
#include "topology/plan/plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/api/job.h"
#include "topology/plan/cost.h"
#include "topology/plan/traffic.h"

struct task {
    int node, local, gpu;
};

struct plait_job_plan {
    struct plait_plan *plan;
    char **names; /* [nnodes] owned, each of them too */
    int ntasks;
    struct task *tasks; /* in Slurm's order */
    struct plait_cost cost, linear;
    struct plait_error warning; /* "" without one */
};

void plait_job_plan_destroy(struct plait_job_plan *plan)
{
    int saved = errno;

    if (plan) {
        for (int i = 0; plan->names && i < plan->plan->nnodes; i++)
            free(plan->names[i]);
        free(plan->names);
        free(plan->tasks);
        plait_plan_destroy(plan->plan);
        free(plan);
    }
    errno = saved;
}

/* gpus[local rank] for the node with the most tasks; -1: no GPU is left. */
static int *order_gpus(const struct plait_job *job,
                       const struct plait_layout *layout)
{
    const struct plait_node *node = job->node;
    int most = node ? node->ngpus : 0, *gpus;

    for (int i = 0; i < job->nnodes; i++)
        most = job->tasks[i] > most ? job->tasks[i] : most;
    gpus = malloc((size_t)most * sizeof(*gpus));
    if (!gpus)
        return NULL;
    for (int i = 0; i < most; i++)
        gpus[i] = node ? -1 : i;
    if (node)
        plait_node_order_gpus(node, NULL, node->ngpus, layout->size[PLAIT_TP],
                              gpus);
    return gpus;
}

static int list_tasks(struct plait_job_plan *plan, const struct plait_job *job)
{
    int world = plait_layout_world(&plan->plan->layout);
    int *gpus = order_gpus(job, &plan->plan->layout);

    plan->tasks = malloc((size_t)world * sizeof(*plan->tasks));
    if (!gpus || !plan->tasks) {
        free(gpus);
        return -1;
    }
    for (int i = 0; i < job->nnodes; i++)
        for (int local = 0; local < job->tasks[i]; local++)
            plan->tasks[plan->ntasks++] =
                (struct task){.node = i, .local = local, .gpu = gpus[local]};
    free(gpus);
    return 0;
}

static int copy_names(struct plait_job_plan *plan, const struct plait_job *job)
{
    plan->names = calloc((size_t)job->nnodes, sizeof(*plan->names));
    if (!plan->names)
        return -1;
    for (int i = 0; i < job->nnodes; i++)
        if (!(plan->names[i] = strdup(job->names[i])))
            return -1;
    return 0;
}

static bool is_default_order(const struct plait_layout *layout)
{
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (layout->order[i] != (enum plait_axis)i)
            return false;
    return true;
}

struct plait_job_plan *plait_job_plan_create(const struct plait_job *job,
                                             struct plait_error *err)
{
    struct plait_plan_request request = {
        .layout = job->layout,
        .order_given = !is_default_order(&job->layout),
        .placement = job->placement,
        .nnodes = job->nnodes,
        .nodes = (const char *const *)job->names,
        .tasks = job->tasks,
        .fabric = job->fabric,
        .node = job->node,
        .gpu = &job->gpu,
    };
    struct plait_traffic traffic;
    struct plait_job_plan *plan = calloc(1, sizeof(*plan));

    if (!plan) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (job->config) {
        plait_traffic_set(&traffic, job->config, &job->layout);
        request.traffic = &traffic;
    }
    plait_plan_check_fabric(&request, &plan->warning);
    if (!(plan->plan = plait_plan_create(&request, err)))
        goto error;
    if (copy_names(plan, job) < 0 || list_tasks(plan, job) < 0 ||
        plait_cost_plan(&request, plan->plan, &plan->cost, &plan->linear,
                        NULL) < 0) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    return plan;
error:
    plait_job_plan_destroy(plan);
    return NULL;
}

const char *plait_job_plan_warning(const struct plait_job_plan *plan)
{
    return plan->warning.text[0] ? plan->warning.text : NULL;
}

int plait_job_plan_tasks(const struct plait_job_plan *plan)
{
    return plan->ntasks;
}

/* NULL with EINVAL: no such task. */
static const struct task *find_task(const struct plait_job_plan *plan,
                                    int index)
{
    if (index >= 0 && index < plan->ntasks)
        return &plan->tasks[index];
    errno = EINVAL;
    return NULL;
}

const char *plait_job_plan_node(const struct plait_job_plan *plan, int task)
{
    const struct task *t = find_task(plan, task);

    return t ? plan->names[t->node] : NULL;
}

int plait_job_plan_local_rank(const struct plait_job_plan *plan, int task)
{
    const struct task *t = find_task(plan, task);

    return t ? t->local : -1;
}

int plait_job_plan_gpu(const struct plait_job_plan *plan, int task)
{
    const struct task *t = find_task(plan, task);

    return t ? t->gpu : -1;
}

int plait_job_plan_rank(const struct plait_job_plan *plan, int task)
{
    const struct task *t = find_task(plan, task);

    return t ? plan->plan->first_rank[t->node] + t->local : -1;
}

int plait_job_plan_node_rank(const struct plait_job_plan *plan, int task)
{
    const struct task *t = find_task(plan, task);

    return t ? plan->plan->node_rank[t->node] : -1;
}

int plait_job_plan_coordinate(const struct plait_job_plan *plan, int task,
                              enum plait_axis axis)
{
    int rank = plait_job_plan_rank(plan, task);

    if (rank < 0)
        return -1;
    return plait_layout_coordinate(&plan->plan->layout, rank, axis);
}

double plait_job_plan_seconds(const struct plait_job_plan *plan,
                              enum plait_axis axis,
                              enum plait_placement placement)
{
    const struct plait_cost *cost =
        placement == PLAIT_PLACE_LINEAR ? &plan->linear : &plan->cost;

    if (axis == PLAIT_NAXES)
        return cost->step;
    if ((unsigned)axis < PLAIT_NAXES)
        return cost->axis[axis];
    errno = EINVAL;
    return -1;
}
