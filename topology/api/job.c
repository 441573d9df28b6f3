/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/api/job.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hostlist.h"

struct plait_job *plait_job_create(const struct plait_layout *layout)
{
    struct plait_job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->layout = *layout;
    plait_gpu_type_find("h100", &job->gpu, NULL);
    return job;
}

void plait_job_destroy(struct plait_job *job)
{
    int saved = errno;

    if (job) {
        plait_hostlist_destroy(job->names, job->nnodes);
        free(job->tasks);
        free(job);
    }
    errno = saved;
}

/* Room for n more nodes. */
static int grow_nodes(struct plait_job *job, int n)
{
    size_t all = (size_t)job->nnodes + (size_t)n;
    char **names = realloc(job->names, all * sizeof(*names));
    int *tasks;

    if (!names)
        return -1;
    job->names = names;
    tasks = realloc(job->tasks, all * sizeof(*tasks));
    if (!tasks)
        return -1;
    job->tasks = tasks;
    return 0;
}

int plait_job_add_nodes(struct plait_job *job, const char *list, int tasks,
                        struct plait_error *err)
{
    char **names;
    int n;

    if (tasks < 1) {
        errno = EINVAL;
        return plait_errorf(err,
                            "%d tasks on each of %.200s: at least 1 is "
                            "needed",
                            tasks, list);
    }
    names = plait_hostlist_create(list, &n, err);
    if (!names)
        return -1;
    if (n > INT_MAX - job->nnodes || grow_nodes(job, n) < 0) {
        plait_hostlist_destroy(names, n);
        return plait_errorf(err, "out of memory");
    }
    for (int i = 0; i < n; i++) {
        job->names[job->nnodes] = names[i];
        job->tasks[job->nnodes++] = tasks;
    }
    free(names);
    return 0;
}

void plait_job_set_fabric(struct plait_job *job,
                          const struct plait_fabric *fabric)
{
    job->fabric = fabric;
}

void plait_job_set_node(struct plait_job *job, const struct plait_node *node)
{
    job->node = node;
}

void plait_job_set_config(struct plait_job *job,
                          const struct plait_job_config *config)
{
    job->config = config;
}

void plait_job_set_placement(struct plait_job *job,
                             enum plait_placement placement)
{
    job->placement = placement;
}

int plait_job_set_gpu_type(struct plait_job *job, const char *type,
                           struct plait_error *err)
{
    return plait_gpu_type_find(type, &job->gpu, err);
}
