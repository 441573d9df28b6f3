/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "topology/job/fits.h"

/* What can be planned for other software, but plait-train cannot train. */

/* Model shapes that can only be planned. */
static int check_trained_model(const struct plait_model_config *m,
                               struct plait_error *err)
{
    const char *key = m->mla.n            ? "mla"
                      : m->shared_experts ? "shared_experts"
                      : m->dense_layers   ? "dense_layers"
                                          : NULL;

    if (key)
        return plait_errorf(err,
                            "model.%s: plait-train does not train it; plait "
                            "estimate, simulate and plan plan it with "
                            "--framework=megatron",
                            key);
    return 0;
}

int plait_fits_trainer(const struct plait_job_config *config,
                       struct plait_error *err)
{
    const struct plait_parallel_config *p = &config->parallel;
    int layers = config->model.layers;

    errno = EINVAL;
    if (p->recompute_layers && p->recompute_layers < layers)
        return plait_errorf(err,
                            "parallel.recompute_layers %d of %d: plait-train "
                            "recomputes all layers or none",
                            p->recompute_layers, layers);
    if (p->offload_layers && p->offload_layers < layers)
        return plait_errorf(err,
                            "parallel.offload_layers %d of %d: plait-train "
                            "offloads all layers or none",
                            p->offload_layers, layers);
    if (p->grad_sync != PLAIT_GRAD_BUCKETED && p->zero)
        return plait_errorf(err,
                            "parallel.grad_sync %s: parallel.zero must be "
                            "0, not %d",
                            p->grad_sync == PLAIT_GRAD_NAIVE ? "naive" : "flat",
                            p->zero);
    return check_trained_model(&config->model, err);
}
