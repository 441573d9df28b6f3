/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin does in srun: checks the flags against the job, plans the
 * step and puts the plan into the environment that the tasks' nodes get.
 *
 * plait_local_check() runs in srun, sbatch and salloc, as soon as the flags are
 * read, so that a mistake is refused before anything waits in the queue. It can
 * only use what the command line and the environment say. plait_local_plan()
 * runs in srun when Slurm has made the step: then its nodes and tasks are
 * known, and only then can the site's limits on this job be checked for good.
 * From there on the step exists, so that a refusal has to end it
 * (plait_local_refuse).
 *
 * All that the nodes need goes through the environment of the step: the plan,
 * the address of RANK 0, the step's secret, and which of Slurm's own bindings
 * stay. A step inside of a step must not see those of the outer one:
 * plait_local_forget() and plait_local_decline(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spank_plugin/job_switches.h"
#include "spank_plugin/master.h"
#include "spank_plugin/plugin.h"
#include "spank_plugin/policy.h"
#include "spank_plugin/policy_job.h"
#include "spank_plugin/ranks.h"
#include "spank_plugin/slurm_api.h"
#include "spank_plugin/slurm_options.h"
#include "spank_plugin/spares.h"
#include "topology/base/hostlist.h"
#include "topology/base/secret.h"
#include "topology/layout/launch.h"
#include "topology/start/preflight.h"
#include "topology/start/request.h"
#include "topology/start/show_plan.h"

static int refuse_het(int components, struct plait_error *err)
{
    const char *size = getenv("SLURM_HET_SIZE");

    if (components < 2 && (!size || atoi(size) < 2))
        return 0;
    return plait_errorf(err, "heterogeneous jobs cannot be planned; use one "
                             "component, or leave out the layout flags");
}

/* srun --async (Slurm 26.05) leaves its step to the job's step manager, which
 * has no plugins. */
static int refuse_async(const struct plait_slurm_options *slurm,
                        struct plait_error *err)
{
    if (!slurm->async)
        return 0;
    return plait_errorf(err, "srun --async ends before its step can be "
                             "planned; start srun in the background instead "
                             "(srun ... &), or leave out the layout flags");
}

/* With --gpus-per-task each task sees one GPU, and NCCL loses peer-to-peer
 * copies between the GPUs of a node. */
static int check_gpus(const struct plait_options *options,
                      const struct plait_slurm_options *slurm,
                      struct plait_error *err)
{
    if (!options->pin || slurm->gpu_bind || !slurm->gpus_per_task ||
        options->measure_only)
        return 0;
    return plait_errorf(err, "--gpus-per-task hides the other GPUs of the "
                             "node from each task; use --gpus-per-node, or "
                             "add --gpu-bind=none or --pin=none");
}

/* Where it is known: a step's is that of its job, which srun is not told. */
static const char *find_partitions(const struct plait_slurm_options *slurm)
{
    const char *job = getenv("SLURM_JOB_PARTITION");

    return job && spank_context() == S_CTX_LOCAL && getenv("SLURM_JOB_ID")
               ? job
               : slurm->partition;
}

/* The planner refuses a tp group that spans nodes, but only once the job
 * runs. The sizes are known now, before it waits in the queue. Whole nodes may
 * be in one block. */
static int check_tp(const struct plait_layout *layout, int tasks,
                    enum plait_placement placement, const char *partitions,
                    struct plait_error *err)
{
    int tp = layout->size[PLAIT_TP], fit = tp < tasks ? tp : tasks;
    char order[16];

    if (layout->order[0] != PLAIT_TP) {
        if (placement == PLAIT_PLACE_LINEAR ||
            plait_layout_keeps_tp(layout, 0, tasks))
            return 0;
        plait_layout_format_order(layout, order);
        return plait_errorf(err,
                            "--rank-order=%s spreads tp groups (--tp=%d) over "
                            "several nodes; begin the order with tp, or allow "
                            "it by --placement=linear",
                            order, tp);
    }
    if (tasks % tp == 0 ||
        (tp % tasks == 0 && plait_switches_have_blocks(partitions)))
        return 0;
    while (tasks % fit)
        fit--;
    return plait_errorf(err,
                        "a node's %d task%s not divisible by --tp=%d; "
                        "--tp=%d would fit",
                        tasks, tasks == 1 ? " is" : "s are", tp, fit);
}

/* Does the model fit into the memory of the site's GPUs? Not checked where the
 * site file does not give their type. */
static int check_memory(const struct plait_job_request *request,
                        const struct plait_site *site,
                        const struct plait_layout *layout, int tasks,
                        struct plait_error *err)
{
    if (!site || !site->gpu_type_given ||
        site->too_large == PLAIT_TOO_LARGE_OFF ||
        plait_job_request_fits(request, layout, tasks, err) == 0)
        return 0;
    if (site->too_large == PLAIT_TOO_LARGE_REFUSE)
        return -1;
    slurm_info("plait: warning: %s", err->text);
    return 0;
}

int plait_local_check(const struct plait_options *options,
                      const struct plait_site *site, int components,
                      struct plait_error *err)
{
    enum plait_within within;
    struct plait_layout layout;
    struct plait_slurm_options slurm;
    struct plait_job_request request;
    struct plait_policy_job job = {0};
    char user[PLAIT_POLICY_USER];
    int rc = 0;

    plait_slurm_options_read(&slurm);
    if (refuse_het(components, err) < 0 || refuse_async(&slurm, err) < 0 ||
        plait_spares_subtract(options, &slurm, err) < 0 ||
        check_gpus(options, &slurm, err) < 0 ||
        plait_job_request_open(&request, options, site, err) < 0)
        return -1;
    if (slurm.tasks)
        rc = plait_job_request_resolve(&request, slurm.tasks, slurm.per_node,
                                       &layout, err);
    else
        plait_options_layout(options, &layout);
    if (rc == 0 && slurm.tasks)
        rc = check_memory(&request, site, &layout, slurm.tasks, err);
    plait_job_request_close(&request);
    job.partition = slurm.partition;
    job.gpus = slurm.gpus;
    job.account = slurm.account;
    job.qos = slurm.qos;
    job.user = plait_policy_user(getuid(), user);
    if (rc < 0 || (site && !options->measure_only &&
                   plait_policy_check(site, &job, &layout, &within, err) < 0))
        return -1;
    return slurm.tasks && slurm.per_node
               ? check_tp(&layout, slurm.per_node, options->placement,
                          find_partitions(&slurm), err)
               : 0;
}

/* Without --kill-on-bad-exit, the ranks that wait for one that died run until
 * the time limit. And where Slurm reserves ports (MpiParams=ports=), one of
 * those becomes MASTER_PORT, which no two steps then share. */
void plait_local_set_defaults(const struct plait_options *options,
                              uint16_t ports[2])
{
    slurm_conf_t *conf = NULL;

    plait_slurm_options_set_default("kill-on-bad-exit", "1");
    if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS)
        return;
    if (options->rendezvous && !plait_master_is_given() && conf->mpi_params &&
        strstr(conf->mpi_params, "ports="))
        plait_slurm_options_set_default("resv-ports", "1");
    if (conf->srun_port_range)
        memcpy(ports, conf->srun_port_range, 2 * sizeof(*ports));
    plait_slurm_free_conf(conf);
}

static int get_step_id(spank_t spank, slurm_step_id_t *id)
{
    memset(id, 0, sizeof(*id));
    id->step_het_comp = NO_VAL;
    return spank_get_item(spank, S_JOB_ID, &id->job_id) == ESPANK_SUCCESS &&
                   spank_get_item(spank, S_JOB_STEPID, &id->step_id) ==
                       ESPANK_SUCCESS
               ? 0
               : -1;
}

/* The step's nodes in Slurm's order and their tasks, from slurmctld: srun's
 * environment has only the job's. */
static slurm_step_layout_t *load_step_layout(spank_t spank, slurm_step_id_t *id,
                                             struct plait_error *err)
{
    slurm_step_layout_t *step;

    if (get_step_id(spank, id) < 0) {
        plait_errorf(err, "srun does not give its job and step");
        return NULL;
    }
    step = slurm_job_step_layout_get(id);
    if (!step)
        plait_errorf(err,
                     "cannot ask slurmctld for the nodes of step %u.%u: "
                     "%s",
                     id->job_id, id->step_id, slurm_strerror(errno));
    return step;
}

/* What the nodes need beside the plan: PLAIT_ENV_KEEP, PLAIT_ENV_SITE, and
 * the secret. */
static int export_variables(const struct plait_site *site,
                            enum plait_within within)
{
    struct plait_preflight_bound bound = plait_preflight_bound(site);
    char secret[PLAIT_SECRET_SIZE], text[64], rate[40] = "";
    struct plait_slurm_options slurm;

    plait_slurm_options_read(&slurm);
    snprintf(text, sizeof(text), "%s%s%s%s", slurm.cpu_bind ? "cpu," : "",
             slurm.gpu_bind ? "gpu," : "", slurm.mem_bind ? "mem," : "",
             plait_master_is_given() ? "port,"
             : slurm.resv_ports      ? "resv,"
                                     : "");
    if (plait_secret_create(secret, sizeof(secret)) < 0 ||
        setenv(PLAIT_ENV_STEP_SECRET, secret, 1) ||
        setenv(PLAIT_ENV_KEEP, text, 1))
        return -1;
    if (bound.least > 0)
        snprintf(rate, sizeof(rate), "rate=%.4g:%.4g,", bound.least,
                 bound.link);
    snprintf(text, sizeof(text), "%s%s%s%s%s",
             within == PLAIT_WITHIN_NVLINK ? "nvlink," : "",
             site && site->export.nccl_ib_hca ? "nccl," : "",
             site && site->export.ucx_net_devices ? "ucx," : "",
             site && site->export.fi_cxi_device_name ? "cxi," : "", rate);
    return setenv(PLAIT_ENV_SITE, text, 1);
}

static int export_plan(const struct plait_plan *plan, const char *const *nodes,
                       const slurm_step_id_t *id,
                       const struct plait_options *options,
                       struct plait_error *err)
{
    char *code = plait_plan_encode(plan), master[300] = "";
    int rc;

    if (!code)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < plan->nnodes && options->rendezvous; i++)
        if (plan->first_rank[i] == 0)
            plait_master_choose(nodes[i], id->job_id, id->step_id, master,
                                sizeof(master));
    rc = setenv(PLAIT_ENV_PLAN, code, 1) | setenv(PLAIT_ENV_MASTER, master, 1);
    free(code);
    return rc ? plait_errorf(err, "out of memory") : 0;
}

/* The nodes in the order of their first tasks. With a host file, and since
 * 26.05 with Slurm's own placement, that is not the order of the step's node
 * list. */
static void sort_by_first_task(const slurm_step_layout_t *step, int *order)
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

/* Plan over the nodes in the order of their tasks, and write the plan's
 * arrays back in the order of the request. */
static struct plait_plan *
plan_in_task_order(const slurm_step_layout_t *step,
                   const struct plait_plan_request *request,
                   struct plait_error *err)
{
    struct plait_plan_request sorted = *request;
    size_t n = (size_t)request->nnodes;
    int *order = calloc(5 * n, sizeof(*order)), *tasks = order + n;
    const char **nodes = calloc(n, sizeof(*nodes));
    struct plait_plan *plan = NULL;

    if (!order || !nodes) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    sort_by_first_task(step, order);
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
    memcpy(tasks + 3 * n, plan->domain, n * sizeof(*tasks));
    for (size_t i = 0; i < n; i++) {
        plan->node_rank[order[i]] = tasks[n + i];
        plan->first_rank[order[i]] = tasks[2 * n + i];
        plan->tasks[order[i]] = tasks[i];
        plan->domain[order[i]] = tasks[3 * n + i];
    }
error:
    free(order);
    free(nodes);
    return plan;
}

static int unset_variable(void *arg, const char *name, const char *value)
{
    (void)arg;
    (void)value;
    return unsetenv(name);
}

void plait_local_mark(unsigned given)
{
    char names[200] = "";
    size_t used = 0;

    for (int i = 0; i < PLAIT_NOPTIONS; i++)
        if (given >> i & 1)
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used ? "," : "",
                                     plait_option_flag((enum plait_option)i));
    if (used)
        setenv(PLAIT_ENV_FLAGS, names, 1);
    else
        unsetenv(PLAIT_ENV_FLAGS);
}

void plait_local_decline(void)
{
    setenv(PLAIT_ENV_PLAN, PLAIT_NO_PLAN, 1);
}

/* Slurm keeps a step that srun made and did not launch until its job ends, and
 * later ones wait for its processors. So this one is launched, and ends on the
 * nodes. */
struct plait_agreement *plait_local_refuse(spank_t spank)
{
    slurm_step_id_t id;

    setenv(PLAIT_ENV_PLAN, PLAIT_REFUSED_PLAN, 1);
    unsetenv(PLAIT_ENV_AGREE);
    plait_agreement_be_silent();
    return get_step_id(spank, &id) == 0 ? plait_agreement_refuse(&id) : NULL;
}

/* torchrun's variables are kept where they are not the outer plan's: all of
 * them where it ran with --rendezvous=none, and MASTER_PORT where the user has
 * set another one since. */
void plait_local_forget(void)
{
    static const char *const ours[] = {PLAIT_ENV_SECRET, PLAIT_ENV_STEP_SECRET,
                                       PLAIT_ENV_KEEP,   PLAIT_ENV_SITE,
                                       PLAIT_ENV_PLAN,   PLAIT_ENV_AGREE,
                                       PLAIT_ENV_FLAGS,  PLAIT_ENV_REPORT};
    static const struct plait_launch none;
    const char *master = getenv(PLAIT_ENV_MASTER),
               *plan = getenv(PLAIT_ENV_PLAN);
    int rendezvous = !master || *master, own_port;
    char port[16] = "";

    if (!getenv(PLAIT_ENV_RANK) && (!plan || strcmp(plan, PLAIT_NO_PLAN) == 0))
        return;
    own_port = master && plait_master_is_given();
    if (own_port)
        snprintf(port, sizeof(port), "%s", getenv(PLAIT_ENV_MASTER_PORT));
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        unsetenv(ours[i]);
    plait_launch_encode(&none, rendezvous, unset_variable, NULL);
    unsetenv(PLAIT_ENV_MASTER);
    if (own_port)
        setenv(PLAIT_ENV_MASTER_PORT, port, 1);
}

static int make_plan(spank_t spank, const slurm_step_layout_t *step,
                     char **nodes, const struct plait_options *options,
                     const struct plait_site *site, struct plait_error *err)
{
    slurm_step_id_t step_id, *id = &step_id;
    enum plait_within within = PLAIT_WITHIN_NODE;
    struct plait_plan_request plan_request = {
        .nnodes = (int)step->node_cnt,
        .nodes = (const char *const *)nodes,
    };
    int rc = -1, *tasks = calloc(step->node_cnt, sizeof(*tasks));
    struct plait_fabric *fabric = NULL;
    struct plait_plan *plan = NULL;
    struct plait_job_request request;

    if (!tasks)
        return plait_errorf(err, "out of memory");
    get_step_id(spank, id);
    for (uint32_t i = 0; i < step->node_cnt; i++)
        tasks[i] = step->tasks[i];
    plan_request.tasks = tasks;
    if (plait_job_request_open(&request, options, site, err) < 0 ||
        plait_job_request_to_plan(&request, &plan_request, err) < 0)
        goto error;
    fabric = plait_job_switches(&plan_request, id->job_id);
    plan = plan_in_task_order(step, &plan_request, err);
    if (plan && plait_plan_check_order(plan, plan_request.nodes, err) < 0)
        slurm_info("plait: warning: %s", err->text);
    if (!plan ||
        (!options->measure_only &&
         plait_policy_check_job(
             site, &(struct plait_job_nodes){id->job_id, nodes, plan->nnodes},
             &plan->layout, &within, err) < 0))
        goto error;
    rc = export_variables(site, within) | plait_spares_export(options);
    if (rc < 0)
        plait_errorf(err, "cannot set srun's environment: %s", strerror(errno));
    else
        rc = export_plan(plan, plan_request.nodes, id, options, err);
    if (rc == 0)
        plait_tell_ranks(spank, plan, step, options, site);
    if (rc == 0 && options->show_plan)
        plait_show_plan(stderr, plan, plan_request.nodes, fabric,
                        (const uint32_t *const *)step->tids);
error:
    plait_plan_destroy(plan);
    plait_fabric_destroy(fabric);
    plait_job_request_close(&request);
    free(tasks);
    return rc;
}

struct plait_agreement *plait_local_plan(spank_t spank,
                                         const struct plait_options *options,
                                         const struct plait_site *site,
                                         const uint16_t ports[2],
                                         struct plait_error *err)
{
    struct plait_agreement *agreement = NULL;
    slurm_step_layout_t *step;
    slurm_step_id_t id;
    char **nodes;
    int count = 0;

    step = load_step_layout(spank, &id, err);
    if (!step)
        return NULL;
    nodes = plait_hostlist_create(step->node_list, &count, err);
    if (nodes && (uint32_t)count != step->node_cnt)
        plait_errorf(err, "%d names, but %u nodes in '%.200s'", count,
                     step->node_cnt, step->node_list);
    else if (nodes && make_plan(spank, step, nodes, options, site, err) == 0)
        agreement = plait_agreement_start(&id, (const char *const *)nodes,
                                          count, ports[0] ? ports : NULL, err);
    plait_hostlist_destroy(nodes, count);
    slurm_job_step_layout_free(step);
    return agreement;
}
