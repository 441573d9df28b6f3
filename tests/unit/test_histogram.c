/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/optim/histogram.h"
#include "runtime/parallel/shard.h"
#include "test_seed.h"

/* Histograms of random gradients, against counting each element. One process,
 * with the optimizer's state on the device and in the host's memory. */

static const char yaml[] =
    "model: {family: gpt2, layers: 2, hidden: 32, heads: 4, vocab: 97,\n"
    "        seq_len: 16}\n";
#define FACTOR 0.75
enum { GROUPS = 4, SIDE = PLAIT_HISTOGRAM_SIDE };

static const char *const names[GROUPS] = {"embedding", "layer_0", "layer_1",
                                          "head"};
static struct counted {
    double bucket[PLAIT_HISTOGRAM_BUCKETS];
    double num, sum, squares, size, min, max;
} want[GROUPS];

struct job {
    struct plait_job_config *config;
    struct plait_mesh *mesh;
    struct plait_model *model;
    struct plait_optim *optim;
    struct plait_histograms *h;
};

static int setup(struct job *j, const char *precision, const char *offload)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);
    const char *set[] = {precision, offload};
    struct plait_layout layout;
    struct plait_error err = {""};

    memset(j, 0, sizeof(*j));
    plait_layout_init(&layout);
    j->config =
        plait_job_config_parse("test", yaml, strlen(yaml), set, 2, &err);
    j->mesh = plait_mesh_create(
        ops, dev, plait_comm_create(PLAIT_COMM_SELF, ops, dev, NULL, &err),
        &layout, &err);
    if (j->config && j->mesh)
        j->model = plait_model_create(j->config, j->mesh, &err);
    if (j->model)
        j->optim = plait_optim_create(j->model, &err);
    if (j->optim)
        j->h = plait_histograms_create(j->optim, &err);
    return ok(j->h != NULL, "%s, %s%s", precision, offload, err.text) ? 0 : -1;
}

static void teardown(struct job *j)
{
    const struct plait_ops *ops = j->mesh->ops;
    struct plait_device *dev = j->mesh->dev;
    struct plait_comm *world = j->mesh->world;

    plait_histograms_destroy(j->h);
    plait_optim_destroy(j->optim);
    plait_model_destroy(j->model);
    plait_mesh_destroy(j->mesh);
    plait_comm_destroy(world);
    ops->device_destroy(dev);
    plait_job_config_destroy(j->config);
}

/* -- counting each element ------------------------------------------------- */

static uint64_t state;

static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

/* Draws numbers of all magnitudes that have a bucket, and of some that have
 * none. */
static float draw_element(void)
{
    double kind = draw(), size = exp2(draw() * 140 - 90);

    if (kind < 0.01)
        return kind < 0.004 ? NAN : kind < 0.007 ? INFINITY : -INFINITY;
    if (kind < 0.05)
        return 0;
    return (float)(draw() < 0.5 ? -size : size);
}

static void count_element(struct counted *to, double x)
{
    int b = 0;

    if (!isfinite(x))
        return;
    /* On either side of 0, a bucket includes its limit that is nearer to 0. */
    while (x > 0 ? x >= plait_histogram_limit(b) : x > plait_histogram_limit(b))
        b++;
    to->bucket[b]++;
    to->num++;
    to->sum += x;
    to->size += fabs(x);
    to->squares += x * x;
    to->min = fmin(to->min, x);
    to->max = fmax(to->max, x);
}

static int group_of(const struct plait_tensor *t)
{
    if (t->layer >= 0)
        return 1 + t->layer;
    return strncmp(t->name, "norm.", 5) ? 0 : GROUPS - 1;
}

/* Draws all gradients; those of the vocabulary's padding are not counted. */
static void fill_gradients(const struct job *j)
{
    const struct plait_optim_slice *slices;
    int n = plait_optim_slices(j->optim, &slices);

    for (int i = 0; i < GROUPS; i++)
        want[i] = (struct counted){.min = INFINITY, .max = -INFINITY};
    for (int i = 0; i < n; i++) {
        const struct plait_tensor *t = slices[i].tensor;
        float *grad = j->model->regions[t->region].grad + t->offset;
        size_t count = t->shape[0] * (t->ndim > 1 ? t->shape[1] : 1);

        for (size_t k = 0; k < t->count; k++) {
            grad[k] = draw_element();
            if (k < count)
                count_element(&want[group_of(t)], grad[k] * FACTOR);
        }
    }
}

static bool is_near(double a, double b, double size)
{
    return fabs(a - b) <= 1e-12 * size;
}

static void check_take(const struct job *j)
{
    struct plait_histogram got;
    int i;

    fill_gradients(j);
    if (!ok(plait_histograms_take(j->h, FACTOR) == 0, "taken"))
        return;
    for (i = 0; plait_histograms_get(j->h, i, &got) && i < GROUPS; i++) {
        const struct counted *w = &want[i];

        ok(!strcmp(got.name, names[i]) && got.num == w->num && w->num > 0 &&
               !memcmp(got.bucket, w->bucket, sizeof(w->bucket)),
           "%s: %.0f elements, each bucket", got.name, got.num);
        ok(got.min == w->min && got.max == w->max &&
               is_near(got.sum, w->sum, w->size) &&
               is_near(got.sum_squares, w->squares, w->squares),
           "%s: least, most, sum and squares", got.name);
    }
    ok(i == GROUPS && !plait_histograms_get(j->h, i, &got), "no more than %d",
       GROUPS);
}

static void check_limits(void)
{
    int ascending = 1;

    for (int b = 1; b < PLAIT_HISTOGRAM_BUCKETS; b++)
        ascending &= plait_histogram_limit(b - 1) < plait_histogram_limit(b);
    ok(ascending, "buckets ascend");
    ok(plait_histogram_limit(SIDE) == 0x1p-64 &&
           plait_histogram_limit(SIDE - 1) == -0x1p-64 &&
           plait_histogram_limit(SIDE + 4) == 0x1p-63 &&
           plait_histogram_limit(PLAIT_HISTOGRAM_BUCKETS - 1) == DBL_MAX,
       "from 2^-64 on, four to a factor of 2, to the end");
}

int main(void)
{
    static const char *const precisions[] = {"train.precision=fp32",
                                             "train.precision=bf16"};
    static const char *const offloads[] = {"parallel.offload=none",
                                           "parallel.offload=optimizer"};
    struct job j;

    state = test_seed();
    check_limits();
    for (int p = 0; p < 2; p++)
        for (int o = 0; o < 2; o++) {
            if (setup(&j, precisions[p], offloads[o]) == 0)
                check_take(&j);
            teardown(&j);
        }
    plait_histograms_destroy(NULL);
    return done_testing();
}
