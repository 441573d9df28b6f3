/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/optim/averaging.h"
#include "runtime/optim/learners.h"
#include "tap.h"
#include "test_seed.h"

/* The rules by which replicas average, against the papers' formulas in double
 * for one number at a time, over 100 meetings of random vectors. The replicas
 * are vectors of one process; the sums that the runtime makes over ranks are
 * made here. */

#define MEETINGS 100
#define REPLICAS 3

static const size_t sizes[] = {1,   2,   3,   7,   15,  16,   17,  31, 33,  64,
                               100, 127, 129, 255, 513, 1000, 777, 5,  999, 48};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

static double random_number(void)
{
    return 2.0 * rand() / RAND_MAX - 1;
}

struct replicas {
    struct plait_vectors v;
    float *w[REPLICAS], *common, *momentum, *c, *sum;
    /* the same by the formulas */
    double *want[REPLICAS], *want_common, *want_momentum;
};

static void set_up(struct replicas *r, const struct plait_ops *ops,
                   struct plait_queue *q, size_t n)
{
    size_t i;
    int k;

    r->v = (struct plait_vectors){ops, q, n};
    r->common = calloc(n, sizeof(float));
    r->momentum = calloc(n, sizeof(float));
    r->c = calloc(n, sizeof(float));
    r->sum = calloc(n, sizeof(float));
    r->want_common = calloc(n, sizeof(double));
    r->want_momentum = calloc(n, sizeof(double));
    for (i = 0; i < n; i++)
        r->want_common[i] = r->common[i] = (float)random_number();
    for (k = 0; k < REPLICAS; k++) {
        r->w[k] = calloc(n, sizeof(float));
        r->want[k] = calloc(n, sizeof(double));
        for (i = 0; i < n; i++)
            r->want[k][i] = r->w[k][i] = r->common[i];
    }
}

static void clean_up(struct replicas *r)
{
    int k;

    for (k = 0; k < REPLICAS; k++) {
        free(r->w[k]);
        free(r->want[k]);
    }
    free(r->common);
    free(r->momentum);
    free(r->c);
    free(r->sum);
    free(r->want_common);
    free(r->want_momentum);
}

/* Each replica takes an SGD step with its own gradient. */
static void step_apart(struct replicas *r)
{
    size_t i;
    int k;

    for (k = 0; k < REPLICAS; k++)
        for (i = 0; i < r->v.n; i++) {
            float step = (float)(0.1 * random_number());

            r->w[k][i] -= step;
            r->want[k][i] -= step;
        }
}

/* Makes every replica the sum of all. */
static void sum_replicas(struct replicas *r)
{
    size_t i;
    int k;

    for (i = 0; i < r->v.n; i++) {
        float sum = 0;

        for (k = 0; k < REPLICAS; k++)
            sum += r->w[k][i];
        for (k = 0; k < REPLICAS; k++)
            r->w[k][i] = sum;
    }
}

static void meet_local(struct replicas *r)
{
    size_t i;
    int k;

    for (k = 0; k < REPLICAS; k++)
        plait_average_difference(&r->v, r->w[k], r->common);
    sum_replicas(r);
    plait_average_local(&r->v, r->w[0], r->common, REPLICAS);
    for (i = 0; i < r->v.n; i++) {
        double mean = 0;

        for (k = 0; k < REPLICAS; k++)
            mean += r->want[k][i] / REPLICAS;
        r->want_common[i] = mean;
    }
}

static void meet_diloco(struct replicas *r)
{
    double lr = 0.7, mu = 0.9;
    size_t i;
    int k;

    for (k = 0; k < REPLICAS; k++)
        plait_average_difference(&r->v, r->w[k], r->common);
    sum_replicas(r);
    plait_average_diloco(&r->v, r->w[0], r->common, r->momentum,
                         &(struct plait_outer_sgd){REPLICAS, lr, mu});
    for (i = 0; i < r->v.n; i++) {
        double g = 0, *m = &r->want_momentum[i];

        for (k = 0; k < REPLICAS; k++)
            g += (r->want_common[i] - r->want[k][i]) / REPLICAS;
        *m = mu * *m + g;
        r->want_common[i] -= lr * (g + mu * *m);
    }
}

/* Rules after which every replica continues from the common model. */
static void go_on(struct replicas *r)
{
    size_t i;
    int k;

    for (k = 0; k < REPLICAS; k++)
        for (i = 0; i < r->v.n; i++) {
            r->w[k][i] = r->common[i];
            r->want[k][i] = r->want_common[i];
        }
}

static void meet_sma(struct replicas *r, double alpha)
{
    double mu = 0.9;
    size_t i, bytes = r->v.n * sizeof(float);
    int k;

    memset(r->sum, 0, bytes);
    for (i = 0; i < r->v.n; i++) {
        double sum = 0;

        for (k = 0; k < REPLICAS; k++)
            sum += alpha * (r->want[k][i] - r->want_common[i]);
        r->want_momentum[i] = sum + mu * r->want_momentum[i];
    }
    for (k = 0; k < REPLICAS; k++) {
        plait_average_correction(&r->v, r->c, r->w[k], r->common, alpha);
        for (i = 0; i < r->v.n; i++) {
            float step = (float)(0.01 * random_number());

            r->want[k][i] -= step + alpha * (r->want[k][i] - r->want_common[i]);
            r->w[k][i] = r->w[k][i] - step - r->c[i];
            r->sum[i] += r->c[i];
        }
    }
    plait_average_sma(&r->v, r->common, r->momentum, r->sum, mu);
    for (i = 0; i < r->v.n; i++)
        r->want_common[i] += r->want_momentum[i];
}

enum rule { LOCAL, DILOCO, SMA, NRULES };

static void run_rule(struct replicas *r, enum rule rule)
{
    if (rule == SMA) {
        meet_sma(r, 0.3);
        return;
    }
    step_apart(r);
    step_apart(r);
    if (rule == LOCAL)
        meet_local(r);
    else
        meet_diloco(r);
    go_on(r);
}

/* The 2-norm of the deviation over that of the model, all sizes together: over
 * many meetings the rounding errors of a single number may add up to more than
 * is asked of a vector. */
static double deviation(const struct replicas *models)
{
    double diff = 0, norm = 0;
    const struct replicas *r;
    size_t i;

    for (r = models; r < models + NSIZES; r++)
        for (i = 0; i < r->v.n; i++) {
            diff += pow(r->common[i] - r->want_common[i], 2);
            norm += pow(r->want_common[i], 2);
        }
    return sqrt(diff / norm);
}

static double worst_deviation(const struct plait_ops *ops,
                              struct plait_queue *q, enum rule rule)
{
    struct replicas models[NSIZES];
    double worst = 0;
    size_t s;
    int i;

    for (s = 0; s < NSIZES; s++)
        set_up(&models[s], ops, q, sizes[s]);
    for (i = 0; i < MEETINGS; i++) {
        for (s = 0; s < NSIZES; s++)
            run_rule(&models[s], rule);
        worst = fmax(worst, deviation(models));
    }
    for (s = 0; s < NSIZES; s++)
        clean_up(&models[s]);
    return worst;
}

static void check_ops(const struct plait_ops *ops)
{
    static const char *const names[] = {"local", "DiLoCo", "SMA"};
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_queue *q = ops->queue_create(dev, 0);
    enum rule rule;

    for (rule = LOCAL; rule < NRULES; rule++) {
        double worst = worst_deviation(ops, q, rule);

        /* A rounding error in DiLoCo's momentum is amplified by up to
         * 1 / (1 - 0.9). */
        ok(worst <= (rule == DILOCO ? 2e-6 : 1e-6),
           "%s: %s over %d meetings, worst %.1e", ops->name, names[rule],
           MEETINGS, worst);
    }
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

/* With one learner and alpha 0, neither it nor the average moves. */
static void check_alpha_0(void)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_queue *q = ops->queue_create(dev, 0);
    struct plait_vectors v = {ops, q, 4};
    float w[] = {1, -2, 0.1f, 3e-9f}, z[] = {5, 6, 7, 8}, c[4], d[4] = {0};
    float was[4], expected[] = {5, 6, 7, 8};

    memcpy(was, w, sizeof(w));
    plait_average_correction(&v, c, w, z, 0);
    ops->add_scaled(
        q, &(struct plait_add){
               .type = PLAIT_F32, .out = w, .a = w, .b = c, .s = -1, .n = 4});
    plait_average_sma(&v, z, d, c, 0.9);
    ok(!memcmp(w, was, sizeof(w)) && !memcmp(z, expected, sizeof(z)),
       "alpha 0 corrects nothing, bit for bit");
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

/* A replica keeps a part of its weights when the common model arrives. */
static void check_mix(void)
{
    const struct plait_ops *ops = plait_ops_cpu();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_queue *q = ops->queue_create(dev, 0);
    struct plait_vectors v = {ops, q, 3};
    float w[] = {1, -2, 8}, z[] = {5, 6, 0}, quarter[] = {4, 4, 2};
    int wrong = plait_average_mix(&v, w, z, 1) != 0 || w[1] != -2;

    wrong += plait_average_mix(&v, w, z, 0.25) != 0 ||
             memcmp(w, quarter, sizeof(w)) != 0;
    wrong +=
        plait_average_mix(&v, w, z, 0) != 0 || memcmp(w, z, sizeof(w)) != 0;
    ok(!wrong, "alpha 1 keeps a replica's weights, 1/4 a quarter, 0 none");
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

/* Local SGD with H = 1 may be run as synchronous SGD: with local momentum, the
 * mean of the replicas' weights takes the step of the mean gradient. */
static void check_h_1(void)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_queue *q = ops->queue_create(dev, 0);
    double m[REPLICAS][64] = {{0}}, sync_m[64] = {0}, worst = 0;
    struct replicas r;
    int step, k, i;

    set_up(&r, ops, q, 64);
    for (step = 0; step < MEETINGS; step++) {
        for (i = 0; i < 64; i++) {
            double mean = 0;

            for (k = 0; k < REPLICAS; k++) {
                double g = random_number();

                mean += g / REPLICAS;
                m[k][i] = 0.9 * m[k][i] + g;
                r.w[k][i] -= (float)(0.01 * m[k][i]);
            }
            sync_m[i] = 0.9 * sync_m[i] + mean;
            r.want_common[i] -= 0.01 * sync_m[i];
        }
        for (k = 0; k < REPLICAS; k++)
            plait_average_difference(&r.v, r.w[k], r.common);
        sum_replicas(&r);
        plait_average_local(&r.v, r.w[0], r.common, REPLICAS);
        for (k = 1; k < REPLICAS; k++)
            memcpy(r.w[k], r.common, 64 * sizeof(float));
    }
    for (i = 0; i < 64; i++)
        worst = fmax(worst, fabs(r.common[i] - r.want_common[i]));
    ok(worst <= 1e-5, "H = 1 with local momentum is synchronous, worst %.1e",
       worst);
    clean_up(&r);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

/* How many learners a search chooses if its trials have these rates; 0: a trial
 * could not be made. */
static int search_learners(const double *rate, int batch)
{
    struct plait_learner_search s = {0};

    while (plait_learner_search_add(&s, *rate, batch))
        rate++;
    return s.chosen;
}

static void check_search(void)
{
    double linear[80];

    for (int i = 0; i < 80; i++)
        linear[i] = 100 * pow(1.2, i);
    ok(search_learners((double[]){100, 109}, 8) == 1 &&
           search_learners((double[]){100, 150, 170, 171}, 8) == 3 &&
           search_learners((double[]){100, 150, 120}, 8) == 2,
       "one learner more as long as that gains a tenth");
    ok(search_learners((double[]){100, 0}, 8) == 1 &&
           search_learners(linear, 8) == 64 &&
           search_learners(linear, 1 << 22) == 4,
       "and as there is memory for, at most 64 and 2^24 sequences");
}

int main(void)
{
    srand((unsigned)(test_seed() >> 20));
    check_ops(plait_ops_ref());
    check_ops(plait_ops_cpu());
    check_alpha_0();
    check_mix();
    check_h_1();
    check_search();
    return done_testing();
}
