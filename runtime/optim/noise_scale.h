/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_NOISE_SCALE_H
#define PLAIT_RUNTIME_OPTIM_NOISE_SCALE_H

/* The gradient noise scale B_simple = tr(S) / |G|^2 in sequences, with G the
 * true gradient and S the covariance of one sequence's (McCandlish et al.,
 * arXiv 1812.06162, appendix A.1): about the batch from which on a larger one
 * saves few steps. It is found from the squared norms of gradients of two
 * batch sizes. Pure. */

/* Moving averages over about the last 50 steps; zeroed: nothing yet. The ratio
 * of the averages is reported, not an average of ratios, as the paper does:
 * the estimates of one step are unbiased, their ratio is not. */
struct plait_noise_scale {
    double square; /* of |G|^2 */
    double trace;  /* of tr(S) */
    double weight; /* of all steps so far in them, towards 1 */
};

/* One step: the squared norm of the mean gradient of `big` sequences, and the
 * mean of those of its parts of `small` sequences each, small < big. What is
 * not finite is passed over. */
void plait_noise_scale_add(struct plait_noise_scale *scale, double big,
                           double big_square, double small,
                           double small_square);

/* Sequences; NaN where nothing was added yet, or the noise hides |G|^2. */
double plait_noise_scale_value(const struct plait_noise_scale *scale);

#endif
