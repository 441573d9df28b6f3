/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_BLEND_H
#define PLAIT_RUNTIME_DATA_BLEND_H

#include <stdint.h>

/* Which of several sets each sample of a run comes from. For every n, each set
 * has n times its share of the first n samples, to within one sample; a set's
 * own samples are counted from 0. The result depends on the weights and the
 * sample's number alone. */
struct plait_blend;

/* Weights are positive, and count as shares of their sum: decimals of up to
 * six digits exactly, others to 2^-40 of the sum. NULL with errno. */
struct plait_blend *plait_blend_create(const double *weights, int n);
void plait_blend_destroy(struct plait_blend *blend);

/* The set of sample number `position` of the run, and its number among those of
 * the set. Increasing positions are found step by step, others by stepping from
 * the start of the period: the least number of samples in which the sets have
 * exactly their shares. */
int plait_blend_find(struct plait_blend *blend, int64_t position,
                     int64_t *in_set);

#endif
