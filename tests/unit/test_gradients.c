/* SPDX-License-Identifier: Apache-2.0 */
/* Compares every backward op of ref, or of the GPU with argument "cuda", with
 * finite differences of its forward. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gradients.h"
#include "tap.h"
#include "test_seed.h"

const struct plait_ops *ops;
struct plait_device *dev;
struct plait_queue *q;
const int *s;
float (*x)[FLOATS_MOST], (*dx)[FLOATS_MOST], (*stat)[FLOATS_MOST];
float *r, *y;
uint64_t *keys;
int32_t *tokens;

static uint64_t seed, drawn;
static void *reserved[16];
static unsigned nreserved;

void *reserve(size_t bytes)
{
    void *p = NULL;

    if (nreserved < sizeof(reserved) / sizeof(*reserved))
        p = ops->pinned_alloc(dev, bytes);
    if (p == NULL)
        exit(99);
    reserved[nreserved++] = p;
    return p;
}

static void reserve_all(void)
{
    x = reserve(INPUTS_MOST * sizeof(*x));
    dx = reserve(INPUTS_MOST * sizeof(*dx));
    stat = reserve(2 * sizeof(*stat));
    r = reserve(sizeof(*stat));
    y = reserve(sizeof(*stat));
    tokens = reserve(FLOATS_MOST * sizeof(*tokens));
    keys = reserve(2 * sizeof(*keys));
    keys[0] = 0x9e3779b97f4a7c15;
    keys[1] = 17;
}

void settle(void)
{
    ops->queue_sync(q);
}

float uniform(void)
{
    return (float)plait_rounding_bits(seed, drawn++) * 0x1p-31f - 1;
}

void report(bool pass, const char *fmt, ...)
{
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ok(pass, "%s", text);
}

static double loss(const struct check *c)
{
    double sum = 0;

    c->forward(y);
    settle();
    for (size_t i = 0; i < c->outputs; i++)
        sum += (double)y[i] * r[i];
    return sum;
}

/* The seven-point formula. Its error is of order h^6, so that h may be long
 * enough for the forward's rounding, which is divided by h, to be small. */
static double difference(const struct check *c, float *at)
{
    static const double weight[] = {-1, 9, -45, 45, -9, 1};
    static const float offset[] = {-3, -2, -1, 1, 2, 3};
    const float h = 0x1p-4f, kept = *at;
    double sum = 0;

    for (int i = 0; i < 6; i++) {
        *at = kept + offset[i] * h;
        sum += weight[i] * loss(c);
    }
    *at = kept;
    return sum / (60 * (double)h);
}

/* Inputs beyond the limits of a gate, 7 and -7, and between them, but none so
 * near that a difference would reach across. */
static void enlarge(float *at, size_t n, float times)
{
    for (size_t i = 0; i < n; i++) {
        at[i] *= times;
        if (fabsf(fabsf(at[i]) - 7) < 0.25f)
            at[i] *= 1.1f;
    }
}

static void run(const struct check *c)
{
    size_t bad = 0, seen = 0;

    s = c->shape;
    for (int k = 0; k < INPUTS_MOST; k++)
        for (size_t i = 0; i < FLOATS_MOST; i++) {
            x[k][i] = uniform();
            dx[k][i] = 0;
        }
    if (s[7])
        enlarge(x[0], c->inputs[0], (float)s[7]);
    for (size_t i = 0; i < FLOATS_MOST; i++) {
        r[i] = uniform();
        tokens[i] = (int32_t)(plait_rounding_bits(seed, drawn++) % 7);
    }
    c->forward(y);
    settle();
    c->backward();
    settle();
    for (int k = 0; k < INPUTS_MOST; k++) {
        double squares = 0, rms;

        for (size_t i = 0; i < c->inputs[k]; i++)
            squares += (double)dx[k][i] * dx[k][i];
        rms = sqrt(squares / (double)(c->inputs[k] + (c->inputs[k] == 0)));
        for (size_t i = 0; i < c->inputs[k]; i++, seen++) {
            double d = difference(c, &x[k][i]);

            if (!(fabs(dx[k][i] - d) <= 1e-4 * rms + 1e-3 * fabs(d)) &&
                bad++ < 4)
                diag("input %d [%zu]: %.7g, difference %.7g", k, i,
                     (double)dx[k][i], d);
        }
    }
    ok(bad == 0 && seen > 0, "%s: %zu gradients", c->name, seen);
}

size_t count_wrong(const struct check *c, size_t n, double slack)
{
    size_t bad = 0;

    for (size_t i = 0; i < n; i++) {
        double d = difference(c, &x[0][i]);

        if (!(fabs(dx[1][i] - d) <= slack + 1e-3 * fabs(d)) && bad++ < 4)
            diag("[%zu]: %.7g, difference %.7g", i, (double)dx[1][i], d);
    }
    return bad;
}

void run_checks(const struct check *checks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        run(&checks[i]);
}

int main(int argc, char **argv)
{
    const char *why = NULL;

    seed = test_seed();
    ops = argc > 1 && strcmp(argv[1], "cuda") == 0 ? plait_ops_cuda(&why)
                                                   : plait_ops_ref();
    if (ops == NULL)
        return skip_all(why);
    dev = ops->device_create(0, 1);
    q = ops->queue_create(dev, 0);
    if (dev == NULL || q == NULL)
        return 1;
    reserve_all();
    check_layers();
    check_norms();
    check_tokens();
    check_attention();
    check_routes();
    while (nreserved > 0)
        ops->pinned_free(dev, reserved[--nreserved]);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return done_testing();
}
