/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_NOISE_SCALE_H
#define PLAIT_RUNTIME_OPTIM_NOISE_SCALE_H

/* The gradient noise scale B_simple = tr(S) / |G|^2 in sequences, with G the
 * true gradient and S the covariance of the gradients of single sequences
 * (McCandlish et al., arXiv 1812.06162, appendix A.1): about the batch above
 * which a larger one saves few steps. It is estimated from the squared norms of
 * gradients of two batch sizes. Pure. */

/* Moving averages over about the last 50 steps; zeroed: no steps yet. As in the
 * paper, the ratio of the averages is reported and not an average of ratios:
 * the estimates of one step are unbiased, their ratio is not. */
struct plait_noise_scale {
    double square; /* of |G|^2 */
    double trace;  /* of tr(S) */
    double weight; /* sum of the weights of all steps, tends to 1 */
};

/* Adds one step: the squared norm of the mean gradient of `big` sequences, and
 * the mean of the squared norms for its parts of `small` sequences each, small
 * < big. Ignored if not finite. */
void plait_noise_scale_add(struct plait_noise_scale *scale, double big,
                           double big_square, double small,
                           double small_square);

/* In sequences; NaN if nothing was added yet, or the noise hides |G|^2. */
double plait_noise_scale_value(const struct plait_noise_scale *scale);

#endif
