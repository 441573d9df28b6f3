/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PROBE_FIT_H
#define PLAIT_RUNTIME_PROBE_FIT_H

/* A transfer that took `seconds`. By the cost model (topology/plan/cost.h) it
 * takes alpha * rounds + bytes / bandwidth. */
struct plait_sample {
    double rounds, bytes, seconds;
};

/* Least squares of the relative errors, so that a message of 1 KiB has the
 * same weight as one of 64 MiB: alpha in seconds, at least 0, bandwidth in
 * bytes/s. -1 with EDOM where the samples determine no bandwidth. */
int plait_fit(const struct plait_sample *samples, int n, double *alpha,
              double *bandwidth);

/* Root mean square of the relative errors of a fit. */
double plait_fit_error(const struct plait_sample *samples, int n, double alpha,
                       double bandwidth);

/* Sorts `values`; n > 0. */
double plait_median(double *values, int n);

#endif
