/* SPDX-License-Identifier: Apache-2.0 */
#include "wish.h"

#include <string.h>

#include "topology/auto.h"

int plait_wish_open(struct plait_wish *wish,
                    const struct plait_options *options,
                    const struct plait_site *site, struct plait_error *err)
{
    memset(wish, 0, sizeof(*wish));
    wish->options = options;
    if (site)
        wish->gpu = site->gpu_types[site->gpu_type];
    else
        plait_gpu_type_find("h100", &wish->gpu, NULL);
    if (*options->model)
        wish->config = plait_config_create(options->model, NULL, 0, err);
    return *options->model && !wish->config ? -1 : 0;
}

void plait_wish_close(struct plait_wish *wish)
{
    plait_config_destroy(wish->config);
    wish->config = NULL;
}

int plait_wish_layout(struct plait_wish *wish, int tasks, int per_node,
                      struct plait_layout *layout, struct plait_error *err)
{
    if (per_node)
        wish->gpu.per_node = per_node;
    *layout = wish->options->layout;
    return plait_layout_choose(layout, wish->options->given, wish->config,
                               tasks, &wish->gpu, err);
}

int plait_wish_request(struct plait_wish *wish,
                       struct plait_plan_request *request,
                       struct plait_error *err)
{
    const struct plait_options *options = wish->options;
    int tasks = 0;

    for (int i = 0; i < request->nnodes; i++)
        tasks += request->tasks[i];
    if (plait_wish_layout(wish, tasks, request->tasks[0], &request->layout,
                          err) < 0)
        return -1;
    request->order_free = options->order_free;
    request->order_given =
        options->given >> PLAIT_OPTION_ORDER & 1 && !options->order_free;
    request->placement = options->placement;
    request->gpu = &wish->gpu;
    if (wish->config) {
        plait_traffic_set(&wish->traffic, wish->config, &request->layout);
        request->traffic = &wish->traffic;
    }
    return 0;
}
