/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_AVERAGING_H
#define PLAIT_RUNTIME_OPTIM_AVERAGING_H

#include "kernels/kernels.h"

/* What replicas that have trained apart do when they meet. All vectors are
 * fp32, of n elements, on the queue's device; what has to be summed over the
 * replicas the caller sums between two calls. 0, or -1 with errno. */
struct plait_vectors {
    const struct plait_ops *ops;
    struct plait_queue *q;
    size_t n;
};

/* w -= common: how far a replica has come since the last meeting. */
int plait_average_difference(const struct plait_vectors *v, float *w,
                             const float *common);

/* Local SGD (Stich, arXiv 1805.09767; Lin et al., arXiv 1808.07217, algorithm
 * 1): common += sum / replicas, w = common. `w` holds the sum of the
 * differences. */
int plait_average_local(const struct plait_vectors *v, float *w, float *common,
                        int replicas);

/* DiLoCo (Douillard et al., arXiv 2311.08105, algorithm 1): the outer gradient
 * g = -sum / replicas goes through Nesterov's SGD as torch.optim.SGD has it,
 * momentum = mu momentum + g, common -= lr (g + mu momentum); then w = common.
 * `momentum` is kept as its negative. */
int plait_average_diloco(const struct plait_vectors *v, float *w, float *common,
                         float *momentum, int replicas, double lr, double mu);

/* SMA (Koliousis et al., arXiv 1901.02244, algorithm 1): a learner's
 * correction c = alpha (w - z), from its weights before the step's update;
 * c is subtracted from them after it. */
int plait_average_correction(const struct plait_vectors *v, float *c,
                             const float *w, const float *z, double alpha);
/* The average model's own move: change = sum + mu change, z += change; `sum`
 * of all learners' corrections. */
int plait_average_sma(const struct plait_vectors *v, float *z, float *change,
                      const float *sum, double mu);

#endif
