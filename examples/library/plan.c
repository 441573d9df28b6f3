/* SPDX-License-Identifier: Apache-2.0 */
/* Place a layout on nodes and print who is where.
 *
 *     cc plan.c -o plan $(pkg-config --cflags --libs libplait)
 *     ./plan 16 'n[1-4]' 4 [FABRIC]
 *
 * 16 ranks on the nodes n1 to n4, 4 on each, below the switches of a
 * topology.conf. */
#include <plait/plait.h>
#include <stdio.h>
#include <stdlib.h>

static void print_tasks(const struct plait_job_plan *plan)
{
    double planned, linear;

    printf("procid node gpu rank tp dp pp\n");
    for (int i = 0; i < plait_job_plan_tasks(plan); i++)
        printf("%d %s %d %d %d %d %d\n", i, plait_job_plan_node(plan, i),
               plait_job_plan_gpu(plan, i), plait_job_plan_rank(plan, i),
               plait_job_plan_coordinate(plan, i, PLAIT_TP),
               plait_job_plan_coordinate(plan, i, PLAIT_DP),
               plait_job_plan_coordinate(plan, i, PLAIT_PP));
    planned = plait_job_plan_seconds(plan, PLAIT_NAXES, PLAIT_PLACE_TOPOLOGY);
    linear = plait_job_plan_seconds(plan, PLAIT_NAXES, PLAIT_PLACE_LINEAR);
    printf("communication: %.3f ms a step, %.3f ms in Slurm's order\n",
           1e3 * planned, 1e3 * linear);
}

/* tp = 2, pp = 2, and dp whatever is left. */
static struct plait_layout *make_layout(int world, struct plait_error *err)
{
    int size[PLAIT_NAXES] = {1, 1, 1, 1, 1};

    size[PLAIT_TP] = 2;
    size[PLAIT_PP] = 2;
    size[PLAIT_DP] = PLAIT_AUTO;
    return plait_layout_create(size, NULL, world, err);
}

/* NULL with a reason in err; the caller destroys the plan. */
static struct plait_job_plan *make_plan(int world, const char *nodes, int tasks,
                                        const struct plait_fabric *fabric,
                                        struct plait_error *err)
{
    struct plait_layout *layout = make_layout(world, err);
    struct plait_job *job = layout ? plait_job_create(layout) : NULL;
    struct plait_job_plan *plan = NULL;

    if (job && plait_job_add_nodes(job, nodes, tasks, err) == 0) {
        plait_job_set_fabric(job, fabric);
        plan = plait_job_plan_create(job, err);
    }
    plait_job_destroy(job);
    plait_layout_destroy(layout);
    return plan;
}

int main(int argc, char **argv)
{
    struct plait_error err = {"out of memory"};
    struct plait_fabric *fabric;
    struct plait_job_plan *plan = NULL;
    int status = 1;

    if (argc < 4) {
        fprintf(stderr, "usage: plan WORLD NODES TASKS_PER_NODE [FABRIC]\n");
        return 2;
    }
    fabric = argc > 4 ? plait_fabric_create(argv[4], &err)
                      : plait_fabric_create_flat();
    if (fabric)
        plan = make_plan(atoi(argv[1]), argv[2], atoi(argv[3]), fabric, &err);
    if (plan) {
        if (plait_job_plan_warning(plan))
            fprintf(stderr, "plan: warning: %s\n",
                    plait_job_plan_warning(plan));
        print_tasks(plan);
        status = 0;
    } else {
        fprintf(stderr, "plan: %s\n", err.text);
    }
    plait_job_plan_destroy(plan);
    plait_fabric_destroy(fabric);
    return status;
}
