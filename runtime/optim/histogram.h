/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_HISTOGRAM_H
#define PLAIT_RUNTIME_OPTIM_HISTOGRAM_H

#include "runtime/optim/optim.h"

/* The distribution of the gradient's elements, for each layer of the whole
 * model, the embedding (an image model's stem) and the head. Buckets are fixed:
 * four per factor of 2, from 2^-64 to 2^32 on both sides, and one in the middle
 * for smaller magnitudes. So ranks count their own elements and the counts are
 * added, in any layout. */
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

/* `optim` must outlive it. NULL with *err. Not collective. */
struct plait_histograms *plait_histograms_create(struct plait_optim *optim,
                                                 struct plait_error *err);
void plait_histograms_destroy(struct plait_histograms *h);

/* Counts the reduced gradients times `factor`: each element of the model once,
 * without the vocabulary's padding, batch norm statistics and numbers that are
 * not finite. Gradients are copied to the host piece by piece. Collective over
 * the world; all ranks get the same. */
int plait_histograms_take(struct plait_histograms *h, double factor);

/* Number i from 0 of the last plait_histograms_take(); false: there is no such
 * one. num is 0 if the model has no such tensors. */
bool plait_histograms_get(const struct plait_histograms *h, int i,
                          struct plait_histogram *to);

/* The upper limit of a bucket. */
double plait_histogram_limit(int bucket);

#endif
