/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_HISTOGRAM_H
#define PLAIT_RUNTIME_OPTIM_HISTOGRAM_H

#include "runtime/optim/optim.h"

/* How the gradient's elements are distributed, for each layer of the whole
 * model, the embedding (an image model's stem) and the head. Buckets are fixed:
 * a quarter of a factor of 2 each, from 2^-64 to 2^32 on both sides of one for
 * what is smaller. So ranks count their own elements and the counts are added,
 * whatever the layout. */
struct plait_histograms;

enum {
    PLAIT_HISTOGRAM_SIDE = 96 * 4,
    PLAIT_HISTOGRAM_BUCKETS = 2 * PLAIT_HISTOGRAM_SIDE + 1
};

struct plait_histogram {
    char name[24]; /* "layer_3" */
    double min, max, num, sum, sum_squares;
    const double *bucket; /* [PLAIT_HISTOGRAM_BUCKETS], ascending */
};

/* `optim` outlives it. NULL with text. Local. */
struct plait_histograms *plait_histograms_create(struct plait_optim *optim,
                                                 struct plait_error *err);
void plait_histograms_destroy(struct plait_histograms *h);

/* Of the reduced gradients times `factor`: each element of the model once,
 * without the vocabulary's padding, the statistics of batch norms and what is
 * not finite. They are copied to the host piece by piece. Collective over the
 * world; all ranks get the same. */
int plait_histograms_take(struct plait_histograms *h, double factor);

/* Number i from 0, as last taken; false: there are no more. num is 0 where a
 * model has none. */
bool plait_histograms_get(const struct plait_histograms *h, int i,
                          struct plait_histogram *to);

/* Where a bucket ends. */
double plait_histogram_limit(int bucket);

#endif
