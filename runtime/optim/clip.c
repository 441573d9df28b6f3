/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/moments.h"
#include "runtime/optim/optim_private.h"

/* The norm of the gradients and the clipping: on the host, which must wait for
 * the norm, or on the device. */

int plait_optim_run_captured(struct plait_optim *optim,
                             struct plait_graph_capture *capture,
                             int (*work)(void *arg))
{
    struct plait_mesh *mesh = optim->model->mesh;

    return mesh->graphs.optim
               ? plait_graph_capture_run(capture, mesh, work, optim)
               : work(optim);
}

static int queue_norm(void *arg)
{
    struct plait_optim *optim = arg;
    struct plait_mesh *mesh = optim->model->mesh;

    if (mesh->ops->fill_zero(mesh->q, optim->sum, sizeof(*optim->sum)) < 0)
        return -1;
    return mesh->ops->sum_squares(mesh->q, optim->sum, optim->squares,
                                  optim->nsquares);
}

int plait_optim_sum_squares(struct plait_optim *optim, double *sum)
{
    struct plait_mesh *mesh = optim->model->mesh;

    if (plait_optim_run_captured(optim, &optim->norm, queue_norm) < 0)
        return -1;
    return mesh->ops->to_host(mesh->q, sum, optim->sum, sizeof(*sum));
}

/* Factors and directions are computed on the host and need grad_scale.
 * Statistics must not change in a skipped step, which the host must know of,
 * and QK-clip follows none. */
bool plait_optim_clips(const struct plait_optim *optim)
{
    const struct plait_mesh *mesh = optim->model->mesh;

    return mesh->ops->gpu && plait_comm_records(mesh->world) && !optim->host &&
           !optim->rule->factor && !optim->rule->direction &&
           !optim->model->statistics && !plait_optim_balances(optim) &&
           !optim->replicas && !optim->qk_clip;
}

int plait_optim_queue_squares(struct plait_optim *optim, double *pinned)
{
    struct plait_mesh *mesh = optim->model->mesh;

    if (plait_optim_run_captured(optim, &optim->norm, queue_norm) < 0)
        return -1;
    return mesh->ops->copy_out(mesh->q, pinned, optim->sum, sizeof(*pinned));
}

int plait_optim_queue_scale(struct plait_optim *optim, double clip,
                            double factor)
{
    struct plait_mesh *mesh = optim->model->mesh;
    struct plait_clip c = {.sum_squares = optim->sum,
                           .factor = factor,
                           .clip = clip,
                           .norm = &optim->now->norm,
                           .scale = &optim->now->grad_scale};

    if (plait_comm_size(mesh->world) > 1) {
        if (plait_comm_all_reduce(mesh->world,
                                  &(struct plait_buffers){
                                      optim->sum, optim->sum + 1, 1, PLAIT_F64},
                                  PLAIT_SUM, mesh->q, NULL) < 0)
            return -1;
        c.sum_squares = optim->sum + 1;
    }
    return mesh->ops->clip_scale(mesh->q, &c);
}
