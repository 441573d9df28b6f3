/* SPDX-License-Identifier: Apache-2.0 */
/* What a run learns about itself: noise scale, outliers, the batch size that
 * follows the noise scale; and the noise that train.noise adds. */
#include <math.h>
#include <string.h>

#include "runtime/data/data.h"
#include "runtime/optim/run_state.h"
#include "runtime/parallel/small_batch.h"
#include "runtime/train/watchdog/watchdog.h"
#include "tap.h"

static uint64_t drawn;

/* Independent normal numbers of mean 0 and deviation 1. */
static double normal(void)
{
    return plait_sample_weight(99, drawn++, 1) - 1;
}

/* -- the noise scale ----------------------------------------------------- */

#define DIM 60
#define BIG 48

/* Mean gradient of n sequences: `truth` + noise of covariance diag(spread). */
static void draw_mean(const double *truth, const double *spread, int n,
                      double *mean)
{
    int i, k;

    for (k = 0; k < DIM; k++)
        mean[k] = truth[k];
    for (i = 0; i < n; i++)
        for (k = 0; k < DIM; k++)
            mean[k] += sqrt(spread[k]) * normal() / n;
}

static double square(const double *x)
{
    double sum = 0;
    int k;

    for (k = 0; k < DIM; k++)
        sum += x[k] * x[k];
    return sum;
}

/* One step of the meter: the batch in parts of `small` sequences, of which
 * `count` are measured. */
static void meter_step(struct plait_noise_scale *s, const double *truth,
                       const double *spread, int small, int count)
{
    double whole[DIM] = {0}, part[DIM], squares = 0;
    int i, k;

    for (i = 0; i < BIG / small; i++) {
        draw_mean(truth, spread, small, part);
        for (k = 0; k < DIM; k++)
            whole[k] += part[k] * small / BIG;
        if (i < count)
            squares += square(part) / count;
    }
    plait_noise_scale_add(s, BIG, square(whole), small, squares);
}

static void noise_scale(void)
{
    static const int parts[][2] = {{24, 2}, {6, 8}, {1, 48}, {6, 1}};
    struct plait_noise_scale s = {0};
    double truth[DIM], spread[DIM], trace = 0, want;
    size_t i;
    int k;

    ok(isnan(plait_noise_scale_value(&s)), "nothing is known at first");
    for (k = 0; k < DIM; k++) {
        truth[k] = normal() / 8;
        spread[k] = k < 10 ? 2 : 0.1;
        trace += spread[k];
    }
    want = trace / square(truth);
    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        double sum = 0, got;

        s = (struct plait_noise_scale){0};
        for (k = 0; k < 2000; k++) {
            meter_step(&s, truth, spread, parts[i][0], parts[i][1]);
            if (k % 200 == 199)
                sum += plait_noise_scale_value(&s) / 10;
        }
        got = sum;
        ok(fabs(got - want) <= 0.1 * want,
           "%d parts of %d sequences: noise scale %.2f, in truth %.2f",
           parts[i][1], parts[i][0], got, want);
    }
    s = (struct plait_noise_scale){0};
    plait_noise_scale_add(&s, 8, 3, 2, 9);
    /* |G|^2 = (8*3 - 2*9) / 6 = 1, tr = (9 - 3) / (1/2 - 1/8) = 16 */
    ok(fabs(plait_noise_scale_value(&s) - 16) < 1e-9, "one step, by hand");
    plait_noise_scale_add(&s, 8, INFINITY, 2, 9);
    plait_noise_scale_add(&s, 8, 1, 2, NAN);
    ok(fabs(plait_noise_scale_value(&s) - 16) < 1e-9,
       "an overflow is passed over");
    s = (struct plait_noise_scale){0};
    plait_noise_scale_add(&s, 8, 1, 2, 9);
    ok(isnan(plait_noise_scale_value(&s)), "a gradient that is all noise");
}

/* -- which parts are measured -------------------------------------------- */

static void small_batches(void)
{
    static const struct {
        int tp, cp, dp, pp, zero, schedule, microbatches, sequences, count;
        const char *why;
    } rows[] = {
        {1, 1, 1, 1, 0, PLAIT_SCHEDULE_1F1B, 1, 0, 0, "one micro-batch"},
        {1, 1, 1, 1, 0, PLAIT_SCHEDULE_1F1B, 4, 2, 1, NULL},
        {1, 1, 2, 1, 0, PLAIT_SCHEDULE_1F1B, 1, 2, 2, NULL},
        {2, 1, 4, 2, 1, PLAIT_SCHEDULE_ZB_H1, 3, 6, 4, NULL},
        {1, 1, 4, 1, 2, PLAIT_SCHEDULE_1F1B, 3, 2, 12, NULL},
        {1, 1, 4, 1, 3, PLAIT_SCHEDULE_1F1B, 1, 2, 4, NULL},
        {1, 1, 1, 1, 3, PLAIT_SCHEDULE_1F1B, 3, 2, 3, NULL},
        {1, 1, 2, 2, 2, PLAIT_SCHEDULE_GPIPE, 3, 0, 0, "gpipe and zb-h1"},
        {1, 1, 1, 2, 0, PLAIT_SCHEDULE_ZB_H1, 3, 0, 0, "gpipe and zb-h1"},
        {1, 2, 2, 1, 0, PLAIT_SCHEDULE_1F1B, 3, 0, 0, "context parallel"},
        {8, 1, 1, 1, 0, PLAIT_SCHEDULE_1F1B, 3, 0, 0, "tp above kv_heads"},
        {8, 1, 2, 1, 0, PLAIT_SCHEDULE_1F1B, 3, 6, 2, NULL},
    };
    struct plait_job_config c = {.model.kv_heads = 4};
    struct plait_layout layout;
    const char *none = NULL;
    size_t i;

    plait_layout_init(&layout);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plait_small_batch small;
        const char *why = NULL;

        layout.size[PLAIT_TP] = rows[i].tp;
        layout.size[PLAIT_CP] = rows[i].cp;
        layout.size[PLAIT_DP] = rows[i].dp;
        layout.size[PLAIT_PP] = rows[i].pp;
        c.parallel.zero = rows[i].zero;
        c.parallel.schedule = rows[i].schedule;
        small = plait_small_batch_choose(&c, &layout,
                                         2 * rows[i].dp * rows[i].microbatches,
                                         rows[i].microbatches, &why);
        ok(small.sequences == rows[i].sequences &&
               small.count == rows[i].count &&
               (why ? rows[i].why && strstr(why, rows[i].why) : !rows[i].why),
           "dp %d, zero %d, %d micro-batches: %d parts of %d%s%s", rows[i].dp,
           rows[i].zero, rows[i].microbatches, small.count, small.sequences,
           why ? ": " : "", why ? why : "");
    }
    c = (struct plait_job_config){.model = {.kv_heads = 4, .qk_norm = true}};
    plait_layout_init(&layout);
    plait_small_batch_choose(&c, &layout, 6, 3, &none);
    ok(!none, "with qk_norm, too");
    layout.size[PLAIT_TP] = 2;
    plait_small_batch_choose(&c, &layout, 6, 3, &none);
    ok(none && strstr(none, "qk_norm or mla with tp"), "but not over tp");
}

/* -- outliers ------------------------------------------------------------ */

static void outliers(void)
{
    struct plait_outlier_window w = {0};
    int i, flagged = 0, known = 0;

    for (i = 0; i < 2000; i++) {
        double x = 3 + 0.5 * normal(), z = plait_outlier_score(&w, x);

        known += !isnan(z);
        flagged += plait_outlier_is(z);
        plait_outlier_add(&w, x);
    }
    ok(known == 2000 - 32 && !flagged,
       "normal numbers: a score from the 33rd on, none an outlier");
    ok(fabs(plait_outlier_score(&w, 3 + 0.5 * 4) - 4) < 1,
       "4 deviations above score about 4: %.2f", plait_outlier_score(&w, 5));
    ok(plait_outlier_is(plait_outlier_score(&w, 8)) &&
           isnan(plait_outlier_score(&w, INFINITY)) &&
           !plait_outlier_is(plait_outlier_score(&w, -100)) &&
           !plait_outlier_is(plait_outlier_score(&w, NAN)),
       "far above is one; far below and an overflow are not");
    for (i = 0; i < 20; i++)
        plait_outlier_add(&w, 1000);
    ok(plait_outlier_is(plait_outlier_score(&w, 8)),
       "20 outliers of 128 hide no other");
    for (i = 0; i < 80; i++)
        plait_outlier_add(&w, 1000 + i % 5);
    ok(!plait_outlier_is(plait_outlier_score(&w, 1002)),
       "a level that lasts becomes the usual one");
    plait_outlier_add(&w, NAN);
    ok(isfinite(plait_outlier_score(&w, 1)), "what is no number stays out");

    w = (struct plait_outlier_window){0};
    for (i = 0; i < 32; i++)
        plait_outlier_add(&w, i < 16 ? i : 100 + i);
    /* median (15 + 116) / 2 = 65.5; deviations 50.5 .. 65.5, twice each */
    ok(fabs(plait_outlier_score(&w, 151.5) - 86 / (1.4826 * 58)) < 1e-12,
       "by hand: %.6f", plait_outlier_score(&w, 151.5));
    w = (struct plait_outlier_window){0};
    for (i = 0; i < 50; i++)
        plait_outlier_add(&w, 2);
    ok(plait_outlier_score(&w, 2) == 0 &&
           !plait_outlier_is(plait_outlier_score(&w, 2.000001)) &&
           plait_outlier_is(plait_outlier_score(&w, 2.1)),
       "equal numbers: rounding is none");
}

static void observation(void)
{
    struct plait_run_state s = {0};
    struct plait_observation seen;
    int i, outliers = 0;

    for (i = 0; i < 100; i++) {
        plait_run_state_observe(&s, 2 + 0.1 * normal(), 1 + 0.1 * normal(),
                                &seen);
        outliers += seen.outlier;
    }
    plait_run_state_observe(&s, 2, 9, &seen);
    ok(!outliers && seen.outlier && seen.norm_z > 20 && fabs(seen.loss_z) < 2 &&
           isnan(seen.noise_scale),
       "a gradient norm is an outlier where the loss is none");
    ok(s.losses.n == 101 && s.norms.n == 101, "and goes into the window");
}

/* -- a batch size that follows the noise scale ----------------------------- */

static void follow(void)
{
    struct plait_job_config c = {
        .train.global_batch = 24,
        .batch = {.growth.is_auto = true, .min = 12, .max = 200}};
    struct plait_growth g = {0};
    int i, good = 1;

    for (i = 0; i < 49; i++) {
        plait_growth_follow(&g, &c, 12, 1000);
        good &= plait_growth_batch(&g, &c, i) == 24;
    }
    ok(good, "49 steps of a batch are kept, whatever the noise");
    plait_growth_follow(&g, &c, 12, NAN);
    ok(g.batch == 24, "an unknown noise changes nothing");
    plait_growth_follow(&g, &c, 12, 100);
    ok(g.batch == 96, "doubled twice, to below the noise scale of 100");
    for (i = 0; i < 50; i++)
        plait_growth_follow(&g, &c, 12, 1000);
    ok(g.batch == 192, "doubled to below the bound of 200");
    for (i = 0; i < 50; i++)
        plait_growth_follow(&g, &c, 12, 150);
    ok(g.batch == 192, "kept near the noise scale");
    for (i = 0; i < 50; i++)
        plait_growth_follow(&g, &c, 48, 1);
    ok(g.batch == 48, "halved while a multiple of 48");
    for (i = 0; i < 100; i++)
        plait_growth_follow(&g, &c, 1, 1);
    ok(g.batch == 12, "halved to the lower bound");
    ok(plait_growth_most(&c) == 200, "the largest is the bound");
}

/* The schedule interleaved runs as many micro-batches at once as there are
 * stages. */
static void follow_in_chunks(void)
{
    struct plait_job_config c = {
        .train = {.global_batch = 48, .micro_batch = 2},
        .batch = {.growth.is_auto = true, .min = 6, .max = 200}};
    struct plait_growth g = {0};
    struct plait_layout layout;

    plait_layout_init(&layout);
    layout.size[PLAIT_DP] = 3;
    layout.size[PLAIT_PP] = 4;
    c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED;
    c.parallel.virtual_stages = 1;
    ok(plait_growth_unit(&c, &layout) == 6, "dp * micro_batch with one chunk");
    c.parallel.virtual_stages = 2;
    for (int i = 0; i < 200; i++)
        plait_growth_follow(&g, &c, plait_growth_unit(&c, &layout), 1);
    ok(g.batch == 24, "with chunks, halved to whole rounds of the pipeline");
}

/* -- multiplicative noise ------------------------------------------------ */

#define DRAWS 40000

/* Gradients of the noisy loss, g = sum z_n g_n / M with fixed g_n: their mean
 * is that of the g_n, their covariance s^2 / M^2 sum g_n g_n'. */
static void noisy_gradient(void)
{
    enum { M = 4 };
    static const double g[M][2] = {{1, 2}, {-1, 0.5}, {3, -1}, {0.5, 0.5}};
    double mean[2] = {0}, cov[3] = {0}, want[3] = {0}, s = 0.7;
    int i, n;

    for (i = 0; i < DRAWS; i++) {
        double x[2] = {0};

        for (n = 0; n < M; n++) {
            float z = plait_sample_weight(5, (int64_t)i * M + n, s);

            x[0] += z * g[n][0] / M;
            x[1] += z * g[n][1] / M;
        }
        mean[0] += x[0] / DRAWS;
        mean[1] += x[1] / DRAWS;
        x[0] -= 0.875; /* the mean of g */
        x[1] -= 0.5;
        cov[0] += x[0] * x[0] / DRAWS;
        cov[1] += x[0] * x[1] / DRAWS;
        cov[2] += x[1] * x[1] / DRAWS;
    }
    for (n = 0; n < M; n++) {
        want[0] += s * s / (M * M) * g[n][0] * g[n][0];
        want[1] += s * s / (M * M) * g[n][0] * g[n][1];
        want[2] += s * s / (M * M) * g[n][1] * g[n][1];
    }
    ok(fabs(mean[0] - 0.875) < 0.015 && fabs(mean[1] - 0.5) < 0.015,
       "the mean of noisy gradients is the gradient: %.4f, %.4f", mean[0],
       mean[1]);
    for (i = 0; i < 3; i++)
        ok(fabs(cov[i] - want[i]) < 0.03 * sqrt(want[0] * want[2]),
           "covariance %d: %.5f, stated %.5f", i, cov[i], want[i]);
}

static void noise(void)
{
    double sum = 0, squares = 0, next = 0, far = 0, fourth = 0, before = 0;
    int i, same = 0;

    for (i = 0; i < DRAWS; i++) {
        double z = (plait_sample_weight(7, i, 0.5) - 1) / 0.5;

        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
        next += z * before;
        before = z;
        far += z * (plait_sample_weight(8, i, 0.5) - 1) / 0.5;
        same +=
            plait_sample_weight(7, i, 0.5) == plait_sample_weight(7, i, 0.5);
    }
    /* within 5 standard errors */
    ok(fabs(sum / DRAWS) < 5 / sqrt(DRAWS), "mean 1: off by %.4f deviations",
       sum / DRAWS);
    ok(fabs(squares / DRAWS - 1) < 5 * sqrt(2. / DRAWS),
       "the deviation asked for: %.4f of it", sqrt(squares / DRAWS));
    ok(fabs(fourth / DRAWS - 3) < 5 * sqrt(96. / DRAWS),
       "normal: fourth moment %.3f", fourth / DRAWS);
    ok(fabs(next / DRAWS) < 5 / sqrt(DRAWS) &&
           fabs(far / DRAWS) < 5 / sqrt(DRAWS),
       "neighbours and seeds are independent: %.4f, %.4f", next / DRAWS,
       far / DRAWS);
    ok(same == DRAWS && plait_sample_weight(7, INT64_C(1) << 60, 0) == 1,
       "a function of seed and number; none without deviation");
}

/* The timeout is 20 times the median step. */
static void timeouts(void)
{
    double t[63];
    int i;

    for (i = 0; i < 63; i++)
        t[i] = i % 9 == 8 ? 500 : 10 + i % 3;
    ok(plait_watchdog_limit(t, 4) == 0, "four steps are too few");
    ok(plait_watchdog_limit(t, 63) == 20 * 11, "20 medians: %g",
       plait_watchdog_limit(t, 63));
    for (i = 0; i < 63; i++)
        t[i] = 0.01;
    ok(plait_watchdog_limit(t, 5) == 60, "a minute at least");
}

int main(void)
{
    noise_scale();
    small_batches();
    outliers();
    observation();
    follow();
    follow_in_chunks();
    noise();
    noisy_gradient();
    timeouts();
    return done_testing();
}
