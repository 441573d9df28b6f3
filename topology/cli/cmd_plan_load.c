/* SPDX-License-Identifier: Apache-2.0 */
/* What plait plan is told: the nodes, the switches between them, and the type
 * of their GPUs. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"
#include "topology/job/site.h"
#include "topology/start/scontrol.h"
#include "topology/start/switches.h"

void plait_plan_set_node(const struct plan_job *job, struct plait_gpu_type *gpu)
{
    if (job->node && job->node->ngpus && !job->task_list)
        plait_gpu_type_set_node(gpu, job->node->ngpus);
    else if (job->task_list || job->node_list)
        plait_gpu_type_set_node(gpu, job->tasks[0]);
    if (job->leaf_gpus)
        gpu->leaf_gpus = job->leaf_gpus;
}

/* GPUs below the fullest leaf switch, where there are several leaves: --auto
 * ranks layouts by that. */
static int count_leaf(struct plan_job *job, struct plait_error *err)
{
    int n = plait_fabric_switches(job->fabric), leaves = 0, most = 0;
    int *gpus = calloc((size_t)n + 1, sizeof(*gpus));

    if (!gpus)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < job->request.nnodes; i++) {
        int leaf = plait_fabric_leaf(job->fabric, job->names[i]);

        if (leaf < 0)
            continue;
        leaves += gpus[leaf] == 0;
        gpus[leaf] += job->tasks[i];
        most = gpus[leaf] > most ? gpus[leaf] : most;
    }
    if (leaves > 1)
        job->leaf_gpus = most;
    free(gpus);
    return 0;
}

static struct plait_fabric *read_fabric(const struct plan_job *job,
                                        struct plait_error *err)
{
    const struct plait_plan_request *r = &job->request;

    return job->fabric_file
               ? plait_fabric_create_for(job->fabric_file, job->topology,
                                         r->nodes, r->nnodes, err)
               : plait_scontrol_topology(job->topology, err);
}

/* Switches that are not known are no reason to refuse a plan, which srun would
 * not do either, unless the user names a topology. */
static int load_fabric(struct plan_job *job, struct plait_error *err)
{
    struct plait_error warning = {""}, why;

    if (!job->fabric_file && !job->topology)
        return 0;
    job->fabric = read_fabric(job, &why);
    if (!job->fabric && job->topology) {
        job->status = PLAIT_EXIT_USAGE;
        return plait_errorf(err, "--topology=%.60s: %s", job->topology,
                            why.text);
    }
    if (!job->fabric)
        plait_errorf(&warning, "%s; the nodes stay in Slurm's order", why.text);
    else
        job->fabric =
            plait_switches_check(&job->request, job->fabric, &warning);
    if (warning.text[0])
        fprintf(stderr, "plait: warning: %s\n", warning.text);
    return job->fabric && job->find_layout ? count_leaf(job, err) : 0;
}

/* The name of a machine's GPUs in the table, or NULL. */
static const char *guess_type(const struct plait_node *node)
{
    return node && node->ngpus ? plait_gpu_type_of(&node->gpus[0]) : NULL;
}

static const char *guess_here(void)
{
    struct plait_error ignored;
    struct plait_node *here = plait_node_create(1, &ignored);
    const char *name = guess_type(here);

    plait_node_destroy(here);
    return name;
}

/* The type that the user names, or else that of the node's file, of the site's
 * nodes, of this machine. */
static const char *choose_type(struct plan_job *job,
                               const struct plait_site *site)
{
    const char *name = job->options.gpu_name;
    bool unknown = false;

    job->gpu_known = true;
    if (name)
        job->gpu_from = "--gpu-type";
    else if ((name = guess_type(job->node)))
        job->gpu_from = job->hwloc_file ? job->hwloc_file : job->nccl_file;
    else if (site->gpu_type_given)
        job->gpu_from = "the site's file";
    else if (!(unknown = job->node && job->node->ngpus) &&
             (name = guess_here()))
        job->gpu_from = "this machine's";
    else {
        job->gpu_known = false;
        job->gpu_from = unknown ? "assumed: the model of the node's GPUs is "
                                  "of no known type; --gpu-type names one"
                                : "assumed: nothing says which; --gpu-type "
                                  "does";
    }
    return name;
}

/* All that follows takes the type by its name. */
static int load_gpu_type(struct plan_job *job, struct plait_error *err)
{
    const char *path =
        job->options.site_file ? job->options.site_file : plait_site_path();
    struct plait_site *site = plait_site_create(path, err);
    const char *name;
    int rc;

    if (!site)
        return -1;
    name = choose_type(job, site);
    rc = plait_site_gpu_type(site, name, &job->gpu, err);
    plait_site_destroy(site);
    job->options.gpu_name = name;
    job->request.gpu = &job->gpu;
    return rc;
}

int plait_plan_load(struct plan_job *job, struct plait_error *err)
{
    char odd[256];

    if (job->hwloc_file &&
        !(job->node = plait_node_create_xml(job->hwloc_file, err)))
        return -1;
    if (job->nccl_file &&
        !(job->node = plait_node_create_nccl(job->nccl_file, err)))
        return -1;
    job->request.node = job->node;
    if (job->node && plait_node_find_odd(job->node, odd, sizeof(odd)))
        fprintf(stderr, "plait: %s\n", odd);
    if (load_gpu_type(job, err) < 0)
        return -1;
    if (job->options.model_file &&
        !(job->config = model_options_config(&job->options, err))) {
        job->status = model_options_status(&job->options);
        return -1;
    }
    if (plait_plan_load_nodes(job, err) < 0 || load_fabric(job, err) < 0)
        return -1;
    plait_plan_set_node(job, &job->gpu);
    return 0;
}
