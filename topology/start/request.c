/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topology/job/foreign_config.h"
#include "topology/predict/auto.h"

int plait_job_request_open(struct plait_job_request *request,
                           const struct plait_options *options,
                           const struct plait_site *site,
                           struct plait_error *err)
{
    enum plait_framework framework = PLAIT_FRAMEWORK_PLAIT;

    memset(request, 0, sizeof(*request));
    errno = EINVAL;
    if (options->preflight && !options->rendezvous)
        return plait_errorf(err, "a preflight needs the port of "
                                 "--rendezvous=torch: leave out "
                                 "--rendezvous=none");
    request->options = options;
    if (site)
        request->gpu = site->gpu_types[site->gpu_type];
    else
        plait_gpu_type_find("h100", &request->gpu, NULL);
    if (*options->model)
        request->config = plait_foreign_config_create(options->model, NULL, 0,
                                                      &framework, err);
    if (request->config)
        request->config->framework = framework;
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
        plait_gpu_type_set_node(&request->gpu, per_node);
    *layout = request->options->layout;
    return plait_layout_choose(layout, request->options->given, request->config,
                               tasks, &request->gpu, err);
}

/* What would fit on as many GPUs: other sizes, or else other settings too, or
 * else how many GPUs would be enough. */
static void name_nearest(const struct plait_job_request *request, int tasks,
                         char *text, size_t size)
{
    struct plait_layout other = request->options->layout;
    struct plait_choices *found;
    char sizes[80];
    int fewest;

    for (int i = 0; i < PLAIT_NAXES; i++)
        other.size[i] = PLAIT_AUTO;
    found = plait_auto_create(request->config, &other, tasks, &request->gpu, 1);
    if (plait_layout_choose(&other, (1u << PLAIT_NAXES) - 1, request->config,
                            tasks, &request->gpu, NULL) == 0) {
        plait_layout_format_sizes(other.size, sizes, sizeof(sizes));
        snprintf(text, size, "%s would fit", sizes);
    } else if (found && found->n) {
        const struct plait_parallel_config *p = &found->choice->parallel;

        plait_layout_format_sizes(found->choice->layout.size, sizes,
                                  sizeof(sizes));
        snprintf(text, size,
                 "%s with zero %d, virtual %d, recompute %s, offload %s and "
                 "micro_batch %d would fit",
                 sizes, p->zero, p->virtual_stages,
                 plait_recompute_names[p->recompute],
                 plait_offload_names[p->offload], found->choice->micro_batch);
    } else {
        fewest = plait_auto_fewest(request->config, &request->gpu);
        snprintf(text, size, fewest ? "%d GPUs could hold it" : "nothing does",
                 fewest);
    }
    plait_choices_destroy(found);
}

int plait_job_request_fits(const struct plait_job_request *request,
                           const struct plait_layout *layout, int tasks,
                           struct plait_error *err)
{
    const struct plait_gpu_type *gpu = &request->gpu;
    struct plait_estimate e;
    char sizes[80], instead[200];

    if (!request->config ||
        plait_estimate(request->config, layout, gpu, &e, NULL) < 0 ||
        e.memory.total <= gpu->memory)
        return 0;
    name_nearest(request, tasks, instead, sizeof(instead));
    plait_layout_format_sizes(layout->size, sizes, sizeof(sizes));
    errno = EINVAL;
    return plait_errorf(err,
                        "%.100s in %s needs %.3g GB of the %.3g GB of each "
                        "%s; %s (plait plan --auto has more)",
                        request->options->model, sizes, e.memory.total / 1e9,
                        gpu->memory / 1e9, gpu->name, instead);
}

int plait_job_request_to_plan(struct plait_job_request *request,
                              struct plait_plan_request *plan_request,
                              struct plait_error *err)
{
    const struct plait_options *options = request->options;
    int tasks = plait_layout_tasks(plan_request->tasks, plan_request->nnodes);

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
