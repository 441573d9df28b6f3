/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_OUTLIER_H
#define PLAIT_RUNTIME_OPTIM_OUTLIER_H

#include <stdbool.h>

/* Outliers of a series by the robust z-score: the distance of a number from the
 * median of the last ones, in median absolute deviations, scaled to standard
 * deviations of a normal distribution (Iglewicz and Hoaglin, 1993). Outliers in
 * the window hardly move median and deviation, so that all numbers may be
 * added; after a lasting change of level the median follows. Pure. */
#define PLAIT_OUTLIER_WINDOW 128

struct plait_outlier_window {
    int n;    /* numbers in it */
    int next; /* where the next one goes */
    double at[PLAIT_OUTLIER_WINDOW];
};

/* The z-score of x against the window; NaN while the window is less than a
 * quarter full, and if x is not finite: an overflow is no outlier. */
double plait_outlier_score(const struct plait_outlier_window *window, double x);
/* Ignores numbers that are not finite. */
void plait_outlier_add(struct plait_outlier_window *window, double x);
/* Whether a score is far above the usual. Only that side: small losses and
 * norms do no harm. */
bool plait_outlier_is(double score);

#endif
