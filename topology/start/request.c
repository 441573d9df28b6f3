/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/request.h"

#include <string.h>

#include "topology/predict/auto.h"

int plait_job_request_open(struct plait_job_request *request,
                           const struct plait_options *options,
                           const struct plait_site *site,
                           struct plait_error *err)
{
    memset(request, 0, sizeof(*request));
    request->options = options;
    if (site)
        request->gpu = site->gpu_types[site->gpu_type];
    else
        plait_gpu_type_find("h100", &request->gpu, NULL);
    if (*options->model)
        request->config = plait_job_config_create(options->model, NULL, 0, err);
    return *options->model && !request->config ? -1 : 0;
}

void plait_job_request_close(struct plait_job_request *request)
{
    plait_job_config_destroy(request->config);
    request->config = NULL;
}

int plait_job_request_resolve(struct plait_job_request *request, int tasks,
                              int per_node, struct plait_layout *layout,
                              struct plait_error *err)
{
    if (per_node)
        request->gpu.per_node = per_node;
    *layout = request->options->layout;
    return plait_layout_choose(layout, request->options->given, request->config,
                               tasks, &request->gpu, err);
}

int plait_job_request_to_plan(struct plait_job_request *request,
                              struct plait_plan_request *plan_request,
                              struct plait_error *err)
{
    const struct plait_options *options = request->options;
    int tasks = 0;

    for (int i = 0; i < plan_request->nnodes; i++)
        tasks += plan_request->tasks[i];
    if (plait_job_request_resolve(request, tasks, plan_request->tasks[0],
                                  &plan_request->layout, err) < 0)
        return -1;
    plan_request->order_free = options->order_free;
    plan_request->order_given =
        options->given >> PLAIT_OPTION_ORDER & 1 && !options->order_free;
    plan_request->placement = options->placement;
    plan_request->gpu = &request->gpu;
    if (request->config) {
        plait_traffic_set(&request->traffic, request->config,
                          &plan_request->layout);
        plan_request->traffic = &request->traffic;
    }
    return 0;
}
