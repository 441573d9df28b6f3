/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that contradict each other, and what can be planned for other software
 * but plait-train cannot train. */
#include <errno.h>

#include "topology/job/fits.h"
#include "topology/job/mup.h"

int plait_fits_idle(const struct plait_model_config *m, struct plait_error *err)
{
    errno = EINVAL;
    if (m->qk_norm_whole && !m->qk_norm)
        return plait_errorf(err, "model.qk_norm_whole: model.qk_norm is false, "
                                 "the model has no such norm");
    if (m->rope_theta_window > 0 && m->rope_theta_window < 1)
        return plait_errorf(err,
                            "model.rope_theta_window must be 0 or a number "
                            "from 1 to 1e+12, not %g",
                            m->rope_theta_window);
    if (m->rope_theta_window > 0 && !m->sliding_window)
        return plait_errorf(err,
                            "model.rope_theta_window %g: model.sliding_window "
                            "is 0, no layer has a window",
                            m->rope_theta_window);
    return 0;
}

/* Model shapes that can only be planned. */
static int check_trained_model(const struct plait_model_config *m,
                               struct plait_error *err)
{
    if (m->norm_plus_one && m->qk_norm && m->qk_norm_whole)
        return plait_errorf(err, "model.norm_plus_one with "
                                 "model.qk_norm_whole: plait-train trains one "
                                 "without the other");
    if (m->norm_place && m->experts)
        return plait_errorf(err, "model.norm_place after or both with "
                                 "model.experts: plait-train does not train "
                                 "norms after experts");
    if (m->norm_place && plait_model_factor(m->residual_multiplier) != 1)
        return plait_errorf(err,
                            "model.norm_place after or both with "
                            "model.residual_multiplier %g: plait-train trains "
                            "one without the other",
                            m->residual_multiplier);
    if (m->norm_place && plait_mup_depth(m) != 1)
        return plait_errorf(err,
                            "model.norm_place after or both cannot be "
                            "combined with a model.mup_layers (%d) other than "
                            "model.layers (%d)",
                            m->mup_layers, m->layers);
    if (m->shared_experts && m->family == PLAIT_GPT2)
        return plait_errorf(err, "model.shared_experts: plait-train trains "
                                 "them in llama models, not in gpt2");
    if (m->shared_experts && m->mlp_bias)
        return plait_errorf(err, "model.mlp_bias with model.shared_experts: "
                                 "plait-train trains one without the other");
    if (m->dense_ffn && !m->dense_layers)
        return plait_errorf(err,
                            "model.dense_ffn %d: model.dense_layers is 0, no "
                            "layer is that wide",
                            m->dense_ffn);
    if (m->mla.n)
        return plait_errorf(err,
                            "model.mla: plait-train does not train it; plait "
                            "estimate, simulate and plan plan it with "
                            "--framework=megatron");
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
