/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_OUTLIER_H
#define PLAIT_RUNTIME_OPTIM_OUTLIER_H

#include <stdbool.h>

/* Outliers of a series by the robust z-score: how far a number lies from the
 * median of the last ones, in median absolute deviations, which are scaled to
 * be standard deviations of a normal distribution (Iglewicz and Hoaglin,
 * 1993). Median and deviation hardly move with outliers among the numbers, so
 * that all numbers may go in; after a lasting change of level the median
 * follows. Pure. */
#define PLAIT_OUTLIER_WINDOW 128

struct plait_outlier_window {
    int n;    /* numbers in it */
    int next; /* where the next one goes */
    double at[PLAIT_OUTLIER_WINDOW];
};

/* Of x against the window; NaN before it has a quarter of its numbers,
 * and where x is not finite: an overflow is no outlier. */
double plait_outlier_score(const struct plait_outlier_window *window, double x);
/* Numbers that are not finite are passed over. */
void plait_outlier_add(struct plait_outlier_window *window, double x);
/* Far above what is usual: losses and norms that are small do no harm. */
bool plait_outlier_is(double score);

#endif
