/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_FIT_H
#define PLAIT_FIT_H

/* Something that took `seconds`, and by the cost model (topology/cost.h)
 * takes alpha * rounds + bytes / bandwidth. */
struct plait_sample {
    double rounds, bytes, seconds;
};

/* The alpha (seconds, at least 0) and bandwidth (bytes/s) that leave the
 * least squares of relative errors: a message of 1 KiB says as much as one
 * of 64 MiB. -1 with EDOM where the samples do not tell a bandwidth. */
int plait_fit(const struct plait_sample *samples, int n, double *alpha,
              double *bandwidth);

/* Root mean square of the relative errors of a fit. */
double plait_fit_error(const struct plait_sample *samples, int n, double alpha,
                       double bandwidth);

/* Sorts `values`; n > 0. */
double plait_median(double *values, int n);

#endif
