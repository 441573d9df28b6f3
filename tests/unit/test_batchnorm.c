/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/image.h"
#include "tap.h"

/* Two properties of batch norms: a ghost norm of k groups equals k independent
 * batch norms, and a norm that four ranks compute together equals that of the
 * whole batch. Whole runs are in tests/parity/image.py. */

enum { GROUPS = 4, ROWS = 33, C = 19, ALL = GROUPS * ROWS * C };

static uint64_t state;

static float draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 33) / (1u << 30) - 1);
}

struct norm {
    float stats[2 * GROUPS * C], sums[2 * GROUPS * C];
    float out[ALL], dx[ALL], dresidual[ALL];
};

static float x[ALL], dout[ALL], residual[ALL], gamma_[C], beta[C];

/* Runs the norm on data from row `first` on; computes statistics and sums that
 * b does not give. */
static void run(const struct plait_ops *ops, struct plait_queue *q,
                struct plait_batchnorm b, size_t first, struct norm *n)
{
    const struct plait_image_ops *o = ops->image;
    size_t at = first * C;
    bool stats = b.stats == NULL, sums = b.sums == NULL;

    b.x = x + at;
    b.gamma = gamma_;
    b.beta = beta;
    b.residual = residual + at;
    b.out = n->out + at;
    b.dout = dout + at;
    b.dx = n->dx + at;
    b.dresidual = n->dresidual + at;
    if (stats)
        b.stats = n->stats;
    if (sums)
        b.sums = n->sums;
    if (stats)
        o->batchnorm_stats(q, &b);
    o->batchnorm_forward(q, &b);
    if (!b.relu)
        b.out = NULL;
    if (sums)
        o->batchnorm_sums(q, &b);
    o->batchnorm_backward(q, &b);
}

static double worst(const float *a, const float *b, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - b[i]) <= most))
            most = fabs((double)a[i] - b[i]);
    return most;
}

static struct plait_batchnorm norm_of(size_t groups, size_t rows, int relu)
{
    return (struct plait_batchnorm){.groups = groups,
                                    .rows = rows,
                                    .C = C,
                                    .eps = 1e-5f,
                                    .relu = relu,
                                    .count = rows};
}

static void ghost(const struct plait_ops *ops, struct plait_queue *q)
{
    static struct norm ghosts, each;
    int good = 1;

    run(ops, q, norm_of(GROUPS, ROWS, 1), 0, &ghosts);
    for (size_t g = 0; g < GROUPS; g++) {
        run(ops, q, norm_of(1, ROWS, 1), g * ROWS, &each);
        good &=
            !memcmp(each.stats, ghosts.stats + g * C, C * sizeof(float)) &&
            !memcmp(each.stats + C, ghosts.stats + (GROUPS + g) * C,
                    C * sizeof(float)) &&
            !memcmp(each.sums, ghosts.sums + g * 2 * C, 2 * C * sizeof(float));
    }
    good &= !memcmp(each.out, ghosts.out, sizeof(each.out)) &&
            !memcmp(each.dx, ghosts.dx, sizeof(each.dx)) &&
            !memcmp(each.dresidual, ghosts.dresidual, sizeof(each.dresidual));
    ok(good,
       "%s: a ghost norm of %d groups is %d independent norms, bit for "
       "bit",
       ops->name, GROUPS, GROUPS);
}

/* Gathers and joins each rank's statistics, and adds up its sums. No
 * activation: rounding could decide whether a value is above 0. */
static void synchronous(const struct plait_ops *ops, struct plait_queue *q)
{
    static struct norm whole, rank;
    struct plait_batchnorm one = norm_of(1, ROWS, 0);
    float each[GROUPS * 2 * C], stats[2 * C], sums[2 * C] = {0};
    struct plait_batchnorm_join all = {
        .n = GROUPS, .C = C, .each = each, .stats = stats};
    double off, of_stats, of_sums;

    run(ops, q, norm_of(1, GROUPS * ROWS, 0), 0, &whole);
    for (size_t g = 0; g < GROUPS; g++) {
        one.x = x + g * ROWS * C;
        one.stats = each + g * 2 * C;
        ops->image->batchnorm_stats(q, &one);
    }
    ops->image->batchnorm_join(q, &all);
    one.stats = stats;
    for (size_t g = 0; g < GROUPS; g++) {
        run(ops, q, one, g * ROWS, &rank);
        for (size_t i = 0; i < 2 * (size_t)C; i++)
            sums[i] += rank.sums[i];
    }
    one.sums = sums;
    one.count = GROUPS * ROWS;
    for (size_t g = 0; g < GROUPS; g++)
        run(ops, q, one, g * ROWS, &rank);
    of_stats = worst(stats, whole.stats, 2 * C);
    of_sums = worst(sums, whole.sums, 2 * C);
    off = fmax(worst(rank.out, whole.out, ALL), worst(rank.dx, whole.dx, ALL));
    /* Sums of 132 numbers near 1, added in another order. */
    ok(of_stats <= 1e-6 && of_sums <= 2e-5 && off <= 4e-6,
       "%s: the norm of %d ranks is the whole batch's: statistics off by %.2g, "
       "sums by %.2g, the rest by %.2g",
       ops->name, GROUPS, of_stats, of_sums, off);
}

static void check(const struct plait_ops *ops)
{
    struct plait_device *dev = ops->device_create(0, 2);
    struct plait_queue *q = ops->queue_create(dev, 0);

    ghost(ops, q);
    synchronous(ops, q);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

int main(void)
{
    state = 5;
    for (int i = 0; i < ALL; i++) {
        x[i] = 2 * draw() + 1;
        dout[i] = draw();
        residual[i] = draw();
    }
    for (int i = 0; i < C; i++) {
        gamma_[i] = draw();
        beta[i] = draw();
    }
    check(plait_ops_ref());
    check(plait_ops_cpu());
    return done_testing();
}
