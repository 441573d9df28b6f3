/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the site's policies with what slurmctld says of the job: partition,
 * user, account, QOS, and the GPUs of its nodes. */
#include "spank_plugin/policy_job.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "spank_plugin/slurm_api.h"
#include "topology/base/hostlist.h"

const char *plait_policy_user(uid_t uid, char name[PLAIT_POLICY_USER])
{
    struct passwd entry, *found = NULL;
    char text[16384];

    if (getpwuid_r(uid, &entry, text, sizeof(text), &found) == 0 && found &&
        strlen(found->pw_name) < PLAIT_POLICY_USER)
        snprintf(name, PLAIT_POLICY_USER, "%s", found->pw_name);
    else
        snprintf(name, PLAIT_POLICY_USER, "%u", (unsigned)uid);
    return name;
}

static const node_info_t *find_node(const node_info_msg_t *info,
                                    const char *name)
{
    for (uint32_t i = 0; i < info->record_count; i++)
        if (info->node_array[i].name &&
            strcmp(info->node_array[i].name, name) == 0)
            return &info->node_array[i];
    return NULL;
}

/* Each node may have GPUs of another type. */
static int check_nodes(const struct plait_site *site,
                       struct plait_policy_job *job,
                       const struct plait_job_nodes *nodes,
                       const struct plait_layout *layout,
                       enum plait_within *within, struct plait_error *err)
{
    node_info_msg_t *info = NULL;
    int rc = nodes->n == 1
                 ? slurm_load_node_single(&info, nodes->name[0], SHOW_ALL)
                 : slurm_load_node(0, &info, SHOW_ALL);

    if (rc != SLURM_SUCCESS || !info)
        return plait_errorf(
            err,
            "cannot check the site's limits: slurmctld does not "
            "report the GPUs of the nodes: %s",
            slurm_strerror(errno));
    for (int i = 0; i < nodes->n && rc == 0; i++) {
        const node_info_t *node = find_node(info, nodes->name[i]);
        enum plait_within here = PLAIT_WITHIN_NODE;

        job->gpus = node ? node->gres : NULL;
        rc = node ? plait_policy_check(site, job, layout, &here, err)
                  : plait_errorf(err,
                                 "cannot check the site's limits: slurmctld "
                                 "does not report the GPUs of %s",
                                 nodes->name[i]);
        *within = here > *within ? here : *within;
    }
    slurm_free_node_info_msg(info);
    return rc;
}

int plait_policy_node_name(slurm_step_id_t *id, uint32_t node,
                           char name[PLAIT_POLICY_NODE],
                           struct plait_error *err)
{
    slurm_step_layout_t *step = slurm_job_step_layout_get(id);
    char **nodes;
    int count = 0, rc = 0;

    if (!step)
        return plait_errorf(
            err,
            "cannot check the site's limits: slurmctld does not "
            "report the names of the step's nodes: %s",
            slurm_strerror(errno));
    nodes = plait_hostlist_create(step->node_list, &count, err);
    slurm_job_step_layout_free(step);
    if (!nodes)
        return -1;
    if ((uint32_t)count > node && strlen(nodes[node]) < PLAIT_POLICY_NODE)
        snprintf(name, PLAIT_POLICY_NODE, "%s", nodes[node]);
    else
        rc = plait_errorf(err, "the step has no node %u", (unsigned)node);
    plait_hostlist_destroy(nodes, count);
    return rc;
}

int plait_policy_check_job(const struct plait_site *site,
                           const struct plait_job_nodes *nodes,
                           const struct plait_layout *layout,
                           enum plait_within *within, struct plait_error *err)
{
    int by_job = 0, by_gpu = 0, rc;
    char user[PLAIT_POLICY_USER];
    job_info_msg_t *jobs = NULL;
    struct plait_policy_job job = {0};

    for (int i = 0; site && i < site->npolicies; i++) {
        const struct plait_policy *policy = &site->policies[i];

        by_job |=
            policy->partition || policy->user || policy->account || policy->qos;
        by_gpu |= policy->gpu != NULL;
    }
    if (!site || !site->npolicies)
        return 0;
    if (by_job && (plait_slurm_load_job(&jobs, nodes->job) != SLURM_SUCCESS ||
                   !jobs->record_count))
        rc = plait_errorf(err,
                          "cannot check the site's limits: slurmctld does not "
                          "report the job's partition, user, account and "
                          "QOS: %s",
                          slurm_strerror(errno));
    else {
        if (jobs) {
            job.partition = jobs->job_array[0].partition;
            job.account = jobs->job_array[0].account;
            job.qos = jobs->job_array[0].qos;
            job.user = plait_policy_user(jobs->job_array[0].user_id, user);
        }
        rc = by_gpu ? check_nodes(site, &job, nodes, layout, within, err)
                    : plait_policy_check(site, &job, layout, within, err);
    }
    if (jobs)
        slurm_free_job_info_msg(jobs);
    return rc;
}
