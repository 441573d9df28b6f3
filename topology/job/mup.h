/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_MUP_H
#define PLAIT_TOPOLOGY_JOB_MUP_H

#include "topology/job/job_config.h"
#include "topology/job/tensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maximal update parametrization: a model of any width learns best at the rate
 * that is best at the base width (model.mup), for optimizers whose steps are as
 * large as their rate, as Adam's. Yang et al. (2022, arXiv 2203.03466), table
 * 8. With a base depth too (model.mup_layers): CompleteP, Dey et al. (2025,
 * arXiv 2505.01618), with alpha 1. At the base nothing changes. */

/* model.hidden in base widths, and model.layers in base depths; 1 without such
 * a base. */
double plait_mup_width(const struct plait_model_config *model);
double plait_mup_depth(const struct plait_model_config *model);

/* What the model's constants become. Attention's is 0 where its scores are
 * multiplied by 1 / sqrt(head_dim) as usual. */
double plait_mup_attention(const struct plait_model_config *model);
double plait_mup_residual(const struct plait_model_config *model);
double plait_mup_logits(const struct plait_model_config *model);
/* Writes them in place of the model's own, which then computes the same without
 * mup; all that is lost is how it learns. */
void plait_mup_resolve(struct plait_model_config *model);

/* What a weight's usual numbers are multiplied by: the deviation of its first
 * values, its learning rate, and the optimizer's eps. Its weight decay is
 * divided by `rate`, so that a step's decay is the same at all widths. */
struct plait_mup_scale {
    double init, rate, eps;
};

struct plait_mup_scale plait_mup_scale(const struct plait_model_config *model,
                                       const struct plait_tensor_row *row);

#ifdef __cplusplus
}
#endif

#endif
