/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/histogram.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/optim/optim_private.h"

/* Elements that are copied to the host at a time. */
#define PIECE ((size_t)1 << 18)

/* Sums over a group of tensors, followed by its buckets. */
enum { NUM, SUM, SQUARES, BUCKETS, ROW = BUCKETS + PLAIT_HISTOGRAM_BUCKETS };

struct plait_histograms {
    struct plait_optim *optim;
    int n;            /* before the layers, one per layer, the head */
    double *rows;     /* [n][ROW] */
    double *extremes; /* [n][2]: -min, max */
    float *piece;     /* [PIECE] */
};

/* -- buckets ------------------------------------------------------------- */

/* The smallest magnitude with a bucket of its own is 2^LOWEST. */
#define LOWEST (-64)

/* 2^(i/4 - 1): where the buckets of an octave begin, in frexp()'s range. */
static const double quarter[4] = {0.5, 0.59460355750136053, 0.70710678118654757,
                                  0.84089641525371454};

/* The inner edge of bucket k on either side. */
static double edge_of(int k)
{
    return ldexp(quarter[k % 4], LOWEST + 1 + k / 4);
}

static int bucket_of(double x)
{
    int exponent, k, last = PLAIT_HISTOGRAM_SIDE - 1;
    double part = frexp(fabs(x), &exponent);

    if (part == 0 || exponent <= LOWEST)
        return PLAIT_HISTOGRAM_SIDE;
    k = (exponent - LOWEST - 1) * 4 + (part >= quarter[1]) +
        (part >= quarter[2]) + (part >= quarter[3]);
    if (k > last)
        k = last;
    return x > 0 ? PLAIT_HISTOGRAM_SIDE + 1 + k : PLAIT_HISTOGRAM_SIDE - 1 - k;
}

double plait_histogram_limit(int bucket)
{
    int k = bucket - PLAIT_HISTOGRAM_SIDE;

    if (k == PLAIT_HISTOGRAM_SIDE)
        return DBL_MAX; /* it also has everything larger */
    return k < 0 ? -edge_of(-k - 1) : edge_of(k);
}

static void add_elements(double *row, double *extremes, const float *x,
                         size_t n, double factor)
{
    for (size_t i = 0; i < n; i++) {
        double v = x[i] * factor;

        if (!isfinite(v))
            continue;
        row[NUM]++;
        row[SUM] += v;
        row[SQUARES] += v * v;
        row[BUCKETS + bucket_of(v)]++;
        extremes[0] = fmax(extremes[0], -v);
        extremes[1] = fmax(extremes[1], v);
    }
}

/* -- this rank's gradients ----------------------------------------------- */

/* The groups are the same on all ranks, whatever layers they hold. */
static int group_of(const struct plait_histograms *h,
                    const struct plait_tensor *t)
{
    if (t->layer >= 0)
        return t->layer + 1;
    return strncmp(t->name, "norm.", 5) && strncmp(t->name, "head.", 5)
               ? 0
               : h->n - 1;
}

/* The slice's elements that belong to the model: without the rows that pad a
 * vocabulary, which come last. */
static size_t count_of(const struct plait_optim_slice *slice)
{
    const struct plait_tensor *t = slice->tensor;
    size_t row = t->tp_axis == 0 ? t->local_first : 0;
    size_t all =
        t->shape[0] > row ? (t->shape[0] - row) * t->local_shape[1] : 0;

    if (all <= slice->first)
        return 0;
    return all - slice->first < slice->count ? all - slice->first
                                             : slice->count;
}

static int add_slice(struct plait_histograms *h,
                     const struct plait_optim_slice *slice, double factor)
{
    struct plait_mesh *mesh = h->optim->model->mesh;
    const struct plait_shard *s =
        &h->optim->shards->shard[slice->tensor->region];
    const float *grad = s->grad + slice->at;
    int group = group_of(h, slice->tensor);
    size_t n, count = count_of(slice);

    for (size_t at = 0; at < count; at += n) {
        n = count - at < PIECE ? count - at : PIECE;
        if (mesh->ops->to_host(mesh->q, h->piece, grad + at,
                               n * sizeof(*grad)) < 0)
            return -1;
        add_elements(h->rows + (size_t)group * ROW, h->extremes + 2 * group,
                     h->piece, n, factor);
    }
    return 0;
}

int plait_histograms_take(struct plait_histograms *h, double factor)
{
    const struct plait_optim *optim = h->optim;
    struct plait_comm *world = optim->model->mesh->world;

    memset(h->rows, 0, h->n * ROW * sizeof(*h->rows));
    for (int i = 0; i < 2 * h->n; i++)
        h->extremes[i] = -INFINITY;
    for (int i = 0; i < optim->nslices; i++)
        if (!optim->slices[i].tensor->statistic &&
            plait_optim_counts(optim, &optim->slices[i]) &&
            add_slice(h, &optim->slices[i], factor) < 0)
            return -1;
    if (plait_comm_host_all_reduce(world, h->rows, (size_t)h->n * ROW,
                                   PLAIT_SUM) < 0)
        return -1;
    return plait_comm_host_all_reduce(world, h->extremes, 2 * h->n, PLAIT_MAX);
}

bool plait_histograms_get(const struct plait_histograms *h, int i,
                          struct plait_histogram *to)
{
    const struct plait_model_config *c = &h->optim->model->config->model;
    const double *row;

    if (i >= h->n)
        return false;
    row = h->rows + (size_t)i * ROW;
    *to = (struct plait_histogram){.min = -h->extremes[2 * i],
                                   .max = h->extremes[2 * i + 1],
                                   .num = row[NUM],
                                   .sum = row[SUM],
                                   .sum_squares = row[SQUARES],
                                   .bucket = row + BUCKETS};
    if (i > 0 && i < h->n - 1)
        snprintf(to->name, sizeof(to->name), "layer_%d", i - 1);
    else
        snprintf(to->name, sizeof(to->name), "%s",
                 i > 0                     ? "head"
                 : plait_is_image_model(c) ? "stem"
                                           : "embedding");
    return true;
}

/* -- life ---------------------------------------------------------------- */

struct plait_histograms *plait_histograms_create(struct plait_optim *optim,
                                                 struct plait_error *err)
{
    struct plait_histograms *h = calloc(1, sizeof(*h));

    if (!h)
        goto error;
    h->optim = optim;
    h->n = optim->model->config->model.layers + 2;
    h->rows = calloc(h->n, ROW * sizeof(*h->rows));
    h->extremes = calloc(h->n, 2 * sizeof(*h->extremes));
    h->piece = malloc(PIECE * sizeof(*h->piece));
    if (h->rows && h->extremes && h->piece)
        return h;
error:
    plait_errorf(err, "out of memory");
    plait_histograms_destroy(h);
    return NULL;
}

void plait_histograms_destroy(struct plait_histograms *h)
{
    int saved = errno;

    if (!h)
        return;
    free(h->rows);
    free(h->extremes);
    free(h->piece);
    free(h);
    errno = saved;
}
