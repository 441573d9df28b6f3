/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic rounding of an optimizer's states and of weights without masters:
 * that it is right on average, that what it draws knows nothing of each other,
 * and that a tensor is rounded the same wherever it is cut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_tables.h"
#include "kernels/dtype.h"
#include "kernels/rounding.h"
#include "tap.h"
#include "test_seed.h"

enum { ROWS = 192, COLUMNS = 501, N = ROWS * COLUMNS };

/* How many standard deviations a mean may be off: one in 5e8 is. */
static const double most = 6;

static const struct plait_ops *ops;
static struct plait_queue *q;
static uint64_t seed;
static const float rate = 0.1001f, eps = 1e-8f;
static float grad[N];
static uint16_t state[3][N], other[3][N]; /* s0, s1, weights */

/* Where a part of the tensor lies, and its first element in the arrays. */
static struct plait_update_run run_at(uint16_t s[3][N], size_t at,
                                      struct plait_origin origin, size_t n)
{
    return (struct plait_update_run){.weight = s[2] + at,
                                     .grad = grad + at,
                                     .state = {s[0] + at, s[1] + at},
                                     .origin = origin,
                                     .n = n};
}

static const struct plait_origin whole = {.tensor = 77, .columns = COLUMNS};

/* A step of AdamW. */
static int step(const struct plait_update *how,
                const struct plait_update_run *run)
{
    struct plait_update p = *how;

    p.rule = PLAIT_UPDATE_ADAMW;
    p.type = p.states = PLAIT_BF16_T;
    p.random_weights = p.random_states;
    p.lr = rate;
    p.eps = eps;
    p.step = 1;
    return ops->update(q, &p, run, 1);
}

/* Rounds g and g^2 of all elements of a tensor, and a step from 0, to `s`. */
static int round_tensor(uint64_t with, uint64_t tensor, uint16_t s[3][N])
{
    struct plait_update p = {.random_states = 1, .seed = with};
    struct plait_origin origin = {.tensor = tensor, .columns = COLUMNS};
    struct plait_update_run run = run_at(s, 0, origin, N);

    memset(s, 0, 3 * sizeof(*s));
    return step(&p, &run);
}

static int round_all(uint64_t with, uint16_t s[3][N])
{
    return round_tensor(with, whole.tensor, s);
}

static void fill_gradients(float g)
{
    for (int i = 0; i < N; i++)
        grad[i] = g;
}

/* The two neighbours of x in bf16, and where between them it lies. */
struct between {
    double low, high, share;
};

static struct between between_of(float x)
{
    uint32_t u = plait_bits_of_f32(x);
    struct between b = {plait_f32_of_bits(u & 0xffff0000),
                        plait_f32_of_bits((u & 0xffff0000) + 0x10000),
                        (u & 0xffff) / 65536.0};
    return b;
}

static double mean_of(const uint16_t *x)
{
    double sum = 0;

    for (int i = 0; i < N; i++)
        sum += plait_f32_of_bf16(x[i]);
    return sum / N;
}

/* -- the mean ---------------------------------------------------------------
 */

static bool is_unbiased(const uint16_t *x, float value)
{
    struct between b = between_of(value);
    double deviation = fabs(b.high - b.low) * sqrt(b.share * (1 - b.share) / N);
    double off = fabs(mean_of(x) - value);

    for (int i = 0; i < N; i++)
        if (plait_f32_of_bf16(x[i]) != b.low &&
            plait_f32_of_bf16(x[i]) != b.high)
            return false;
    if (!(off <= most * deviation))
        diag("%.9g: off by %g, the standard deviation is %g", value, off,
             deviation);
    return off <= most * deviation;
}

static void test_mean(void)
{
    static const float values[] = {1.001f, -1.001f, 1.5039f, 3.14159f, 1e-12f,
                                   -7e9f,  1.0f,    0,       0.99999f};
    int wrong = 0;

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        fill_gradients(values[i]);
        wrong += round_all(seed + i, state) < 0;
        wrong += !is_unbiased(state[0], values[i]);
        wrong += !is_unbiased(state[1], values[i] * values[i]);
        wrong += !is_unbiased(state[2], (float)(-rate * (double)values[i] /
                                                (fabs(values[i]) + eps)));
    }
    ok(wrong == 0,
       "%s: states and weights are neighbours of what they should be, "
       "which is their mean",
       ops->name);
}

/* Infinities and NaN stay what they are. */
static void test_special(void)
{
    int wrong = 0;

    for (int sign = 0; sign < 2; sign++) {
        fill_gradients(sign ? -INFINITY : INFINITY);
        wrong += round_all(seed, state) < 0;
        for (int i = 0; i < N; i++) /* the step is of infinity by infinity */
            wrong += state[0][i] != (sign ? 0xff80 : 0x7f80) ||
                     state[1][i] != 0x7f80 ||
                     !isnan(plait_f32_of_bf16(state[2][i]));
    }
    fill_gradients(NAN);
    wrong += round_all(seed, state) < 0;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++)
            wrong += !isnan(plait_f32_of_bf16(state[k][i]));
    ok(wrong == 0, "%s: infinities and NaN", ops->name);
}

/* Between the largest number of bf16 and what would be the next; the bits of
 * infinity are those. Denormal ones of fp32 are half way between two of
 * bf16. */
static void test_ends(void)
{
    uint32_t ends[] = {0x7f7f8000, 0xff7f8000, 0x00408000, 0x80408000};
    int up, wrong = 0;

    for (int k = 0; k < 4; k++) {
        uint16_t low = (uint16_t)(ends[k] >> 16);

        fill_gradients(plait_f32_of_bits(ends[k]));
        wrong += round_all(seed, state) < 0;
        up = 0;
        for (int i = 0; i < N; i++) {
            wrong += state[0][i] != low && state[0][i] != low + 1;
            up += state[0][i] != low;
        }
        wrong += !(fabs(up - N / 2.0) <= most * sqrt(N) / 2);
    }
    ok(wrong == 0, "%s: the largest and the denormal are rounded both ways",
       ops->name);
}

/* -- what is drawn ----------------------------------------------------------
 */

/* The correlation of who is rounded up in x and in y, `apart` elements
 * later. */
static double correlation(const uint16_t *x, const uint16_t *y, int apart)
{
    double mx = mean_of(x), my = mean_of(y), xx = 0, yy = 0, xy = 0;

    for (int i = 0; i + apart < N; i++) {
        double a = plait_f32_of_bf16(x[i]) - mx;
        double b = plait_f32_of_bf16(y[i + apart]) - my;

        xx += a * a;
        yy += b * b;
        xy += a * b;
    }
    return xy / sqrt(xx * yy);
}

static void test_independence(void)
{
    static const int apart[] = {1, 2, 16, 64, COLUMNS, COLUMNS - 1};
    double bound = most / sqrt(N - COLUMNS), worst;
    int wrong = 0;

    fill_gradients(1.237f); /* a third of the way up; its square 0.86 */
    wrong += round_all(seed, state) < 0;
    wrong += round_all(seed + 1, other) < 0;
    worst = 0;
    for (int k = 0; k < 3; k++) {
        worst = fmax(worst, fabs(correlation(state[k], state[(k + 1) % 3], 0)));
        worst = fmax(worst, fabs(correlation(state[k], other[k], 0)));
        for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
            worst =
                fmax(worst, fabs(correlation(state[k], state[k], apart[i])));
    }
    wrong += round_tensor(seed, whole.tensor + 1, other) < 0;
    for (int k = 0; k < 3; k++)
        worst = fmax(worst, fabs(correlation(state[k], other[k], 0)));
    ok(wrong == 0 && worst <= bound,
       "%s: states, neighbours, steps and tensors are correlated by %.5f at "
       "most, "
       "within %.5f",
       ops->name, worst, bound);
}

/* -- cuts -------------------------------------------------------------------
 */

static void fill_randomly(void)
{
    for (int i = 0; i < N; i++)
        grad[i] = (float)plait_rounding_bits(seed, (uint64_t)i) * 0x1p-31f - 1;
}

/* The tensor in pieces of every length up to 999, as ZeRO may cut it. */
static int round_pieces(const struct plait_update *p)
{
    struct plait_origin origin = whole;
    size_t n;

    for (size_t at = 0, i = 0; at < N; at += n, i++) {
        struct plait_update_run run;

        n = 1 + (i * 367) % 999;
        n = N - at < n ? N - at : n;
        origin.first = at;
        run = run_at(other, at, origin, n);
        if (step(p, &run) < 0)
            return -1;
    }
    return 0;
}

/* Half of the columns, as a tp rank has them, which are then put where they
 * are in the whole. */
static int round_columns(const struct plait_update *p, size_t from, size_t to)
{
    static float part[N];
    static uint16_t s[3][N];
    size_t width = to - from;
    struct plait_update_run run = {
        .weight = s[2],
        .grad = part,
        .state = {s[0], s[1]},
        .origin = {.tensor = whole.tensor, .column = from, .columns = width},
        .n = ROWS * width};

    memset(s, 0, sizeof(s));
    for (size_t i = 0; i < run.n; i++)
        part[i] = grad[i / width * COLUMNS + from + i % width];
    if (step(p, &run) < 0)
        return -1;
    for (size_t i = 0; i < run.n; i++)
        for (int k = 0; k < 3; k++)
            other[k][i / width * COLUMNS + from + i % width] = s[k][i];
    return 0;
}

/* The last rows, as a tp rank has them. */
static int round_rows(const struct plait_update *p, size_t from)
{
    struct plait_origin origin = whole;
    struct plait_update_run run;

    origin.row = from;
    run = run_at(other, from * COLUMNS, origin, (ROWS - from) * COLUMNS);
    return step(p, &run);
}

static bool is_same(void)
{
    bool same = memcmp(state, other, sizeof(state)) == 0;

    memset(other, 0, sizeof(other));
    return same;
}

static void test_cuts(void)
{
    struct plait_update p = {.random_states = 1, .seed = seed};
    int wrong;

    fill_randomly();
    wrong = round_all(seed, state) < 0;
    memset(other, 0, sizeof(other));
    wrong += round_pieces(&p) < 0 || !is_same();
    ok(wrong == 0, "%s: the same bits in pieces of any length", ops->name);
    wrong = round_columns(&p, 0, 250) < 0 ||
            round_columns(&p, 250, COLUMNS) < 0 || !is_same();
    ok(wrong == 0, "%s: and in columns of two ranks", ops->name);
    memcpy(other, state, sizeof(state));
    for (int k = 0; k < 3; k++)
        memset(other[k] + 100 * COLUMNS, 0, (ROWS - 100) * COLUMNS * 2);
    wrong = round_rows(&p, 100) < 0 || !is_same();
    ok(wrong == 0, "%s: and in rows", ops->name);
}

/* -- what it is for ---------------------------------------------------------
 */

/* A second moment that decays by less than half of the spacing of bf16. */
static void test_decay(void)
{
    enum { STEPS = 400, FEW = 20 * COLUMNS };
    struct plait_update p = {.beta2 = 0.999f};
    double want = pow(p.beta2, STEPS), sum[2] = {0};
    int wrong = 0;

    fill_gradients(0);
    for (int random = 0; random < 2; random++) {
        struct plait_update_run run = run_at(state, 0, whole, FEW);

        for (int i = 0; i < FEW; i++)
            state[1][i] = 0x3f80; /* 1 */
        p.random_states = random;
        for (p.seed = seed; p.seed < seed + STEPS; p.seed++)
            wrong += step(&p, &run) < 0;
        for (int i = 0; i < FEW; i++)
            sum[random] += plait_f32_of_bf16(state[1][i]);
    }
    /* A rounding's deviation is at most half of the spacing, 2^-9 below 1. */
    ok(wrong == 0 && sum[0] == FEW &&
           fabs(sum[1] / FEW - want) <= most * 0x1p-9 * sqrt(1.0 * STEPS / FEW),
       "%s: after %d steps %.5f is left of a moment, which should be %.5f; to "
       "nearest all of it",
       ops->name, STEPS, sum[1] / FEW, want);
}

static void test_all(void)
{
    struct plait_device *dev = ops->device_create(0, 0);

    q = dev ? ops->queue_create(dev, 0) : NULL;
    ok(q != NULL, "%s: a queue", ops->name);
    if (q) {
        test_mean();
        test_special();
        test_ends();
        test_independence();
        test_cuts();
        test_decay();
        ops->queue_destroy(q);
    }
    if (dev)
        ops->device_destroy(dev);
}

int main(void)
{
    const struct plait_ops *tables[CPU_TABLES + 1];

    seed = test_seed();
    ops = plait_ops_ref();
    test_all();
    list_cpu_tables(tables);
    for (int i = 0; tables[i]; i++) {
        ops = tables[i];
        test_all();
    }
    return done_testing();
}
