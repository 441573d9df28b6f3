/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_AVERAGING_H
#define PLAIT_RUNTIME_OPTIM_AVERAGING_H

#include "kernels/kernels.h"

/* How replicas that have trained apart are averaged when they meet. All vectors
 * are fp32, of n elements, on the queue's device. Where a formula has a sum
 * over the replicas, the caller computes it between two calls. 0, or -1 with
 * errno. */
struct plait_vectors {
    const struct plait_ops *ops;
    struct plait_queue *q;
    size_t n;
};

/* w -= common: the change of a replica since the last meeting. */
int plait_average_difference(const struct plait_vectors *v, float *w,
                             const float *common);

/* Local SGD (Stich, arXiv 1805.09767; Lin et al., arXiv 1808.07217, algorithm
 * 1): common += sum / replicas, w = common. At the call `w` holds the sum of
 * the differences. */
int plait_average_local(const struct plait_vectors *v, float *w, float *common,
                        int replicas);

/* DiLoCo (Douillard et al., arXiv 2311.08105, algorithm 1): SGD with Nesterov
 * momentum, as in torch.optim.SGD, on the outer gradient g = -sum / replicas:
 * momentum = mu momentum + g, common -= lr (g + mu momentum); then w = common.
 * At the call `w` holds the sum of the differences. `momentum` is stored
 * negated. */
struct plait_outer_sgd {
    int replicas;
    double lr, mu;
};
int plait_average_diloco(const struct plait_vectors *v, float *w, float *common,
                         float *momentum, const struct plait_outer_sgd *s);

/* Streaming DiLoCo (Douillard et al., arXiv 2501.18512, algorithm 2): what the
 * replica has learned since it sent its difference is kept in part: w = alpha w
 * + (1 - alpha) common. */
int plait_average_mix(const struct plait_vectors *v, float *w,
                      const float *common, double alpha);

/* SMA (Koliousis et al., arXiv 1901.02244, algorithm 1): a learner's correction
 * c = alpha (w - z), computed from its weights before the step's update and
 * subtracted from them after it. */
int plait_average_correction(const struct plait_vectors *v, float *c,
                             const float *w, const float *z, double alpha);
/* The update of the average model z: change = sum + mu change, z += change;
 * `sum` is that of all learners' corrections. */
int plait_average_sma(const struct plait_vectors *v, float *z, float *change,
                      const float *sum, double mu);

#endif
