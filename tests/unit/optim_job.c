/* SPDX-License-Identifier: Apache-2.0 */
#include "optim_job.h"

#include "kernels/kernels.h"

int optim_job_open(struct optim_job *job, struct plait_job_config *config,
                   const struct plait_ops *ops, int threads, uint64_t seed,
                   struct plait_error *err)
{
    struct plait_device *dev;
    struct plait_layout layout;

    if (!config)
        return -1;
    job->config = config;
    plait_layout_init(&layout);
    dev = ops->device_create(0, threads);
    job->mesh = plait_mesh_create(
        ops, dev, plait_comm_create(PLAIT_COMM_SELF, ops, dev, NULL, err),
        &layout, err);
    if (job->mesh)
        job->model = plait_model_create(job->config, job->mesh, err);
    if (job->model)
        job->optim = plait_optim_create(job->model, err);
    if (!job->optim || plait_optim_init(job->optim, seed, err) < 0)
        return -1;
    job->nslices = plait_optim_slices(job->optim, &job->slices);
    return 0;
}

void optim_job_close(struct optim_job *job)
{
    const struct plait_ops *ops = job->mesh->ops;
    struct plait_device *dev = job->mesh->dev;
    struct plait_comm *world = job->mesh->world;

    plait_optim_destroy(job->optim);
    plait_model_destroy(job->model);
    plait_mesh_destroy(job->mesh);
    plait_comm_destroy(world);
    ops->device_destroy(dev);
    plait_job_config_destroy(job->config);
}
