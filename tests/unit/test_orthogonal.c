/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "orthogonal_reference.h"
#include "runtime/optim/orthogonal.h"
#include "tap.h"

/* Muon's orthogonalization against the same in double, and against its purpose:
 * singular values near 1. */

static const size_t shapes[][2] = {{1, 1},    {1, 40},  {40, 1},  {2, 2},
                                   {7, 5},    {5, 7},   {64, 64}, {33, 128},
                                   {129, 31}, {96, 100}};
enum { NSHAPES = sizeof(shapes) / sizeof(shapes[0]), LARGEST = 128 * 129 };

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) / (1u << 30) - 1;
}

static void to_type(struct plait_mesh *mesh, enum plait_dtype type, void *dst,
                    const float *src, size_t n)
{
    mesh->ops->cast(
        mesh->q,
        &(struct plait_cast){
            .to = type, .from = PLAIT_F32, .dst = dst, .src = src, .n = n});
}

static void from_type(struct plait_mesh *mesh, enum plait_dtype type,
                      float *dst, const void *src, size_t n)
{
    mesh->ops->cast(
        mesh->q,
        &(struct plait_cast){
            .to = PLAIT_F32, .from = type, .dst = dst, .src = src, .n = n});
}

/* The largest difference over the largest number. */
static double worst_of(struct plait_mesh *mesh, enum plait_dtype type,
                       struct plait_orthogonal *o, const size_t *shape,
                       double scale, int is_express)
{
    static uint64_t random = 5;
    size_t n = shape[0] * shape[1], i;
    float *x = malloc(n * sizeof(*x));
    double *want = malloc(n * sizeof(*want)), worst = 0, largest = 0;
    void *there = mesh->ops->alloc(mesh->dev, n * sizeof(float));

    for (i = 0; i < n; i++)
        x[i] = (float)(uniform(&random) * scale);
    to_type(mesh, type, there, x, n);
    from_type(mesh, type, x, there, n);
    for (i = 0; i < n; i++)
        want[i] = x[i];
    orthogonal_reference(want, shape[0], shape[1], is_express);
    plait_orthogonalize(o, there, 1, 1, shape[0], shape[1]);
    from_type(mesh, type, x, there, n);
    for (i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (i = 0; i < n; i++)
        if (!(fabs(x[i] - want[i]) <= worst))
            worst = fabs(x[i] - want[i]);
    mesh->ops->free(mesh->dev, there);
    free(x);
    free(want);
    return worst / largest;
}

static void check_type(struct plait_mesh *mesh, enum plait_dtype type,
                       enum plait_muon_coefficients kind, double most)
{
    struct plait_orthogonal *o =
        plait_orthogonal_create(mesh, type, kind, 1, LARGEST, 128);
    double worst = 0;

    for (int i = 0; o && i < NSHAPES; i++) {
        double now = worst_of(mesh, type, o, shapes[i], i % 2 ? 1e-3 : 10,
                              kind == PLAIT_MUON_POLAR_EXPRESS);

        if (!(now <= worst))
            worst = now;
    }
    ok(o && worst <= most,
       "%s in %s, %s: off by %.2g of the largest, at most %g", mesh->ops->name,
       plait_dtype_name(type), plait_muon_coefficient_names[kind], worst, most);
    plait_orthogonal_destroy(o);
}

/* In 16 bits, where the singular values are not far apart: tiny ones grow to 1
 * by a factor of 1000, and so do the rounding errors beside them. */
static void check_wide(struct plait_mesh *mesh, enum plait_dtype type,
                       double most)
{
    static const size_t shape[2] = {33, 128};
    struct plait_orthogonal *o = plait_orthogonal_create(
        mesh, type, PLAIT_MUON_POLAR_EXPRESS, 1, LARGEST, 128);
    double worst = o ? worst_of(mesh, type, o, shape, 1, 1) : INFINITY;

    ok(worst <= most, "%s in %s, polar-express, wide: off by %.2g, at most %g",
       mesh->ops->name, plait_dtype_name(type), worst, most);
    plait_orthogonal_destroy(o);
}

/* -- the polynomials of the Polar Express ---------------------------------- */

static double value_of(const double p[3], double x)
{
    return p[0] * x + p[1] * x * x * x + p[2] * pow(x, 5);
}

/* The extrema of p inside of the interval, which must be two. */
static int extrema_of(const double p[3], double x[2])
{
    double d = 9 * p[1] * p[1] - 20 * p[0] * p[2];

    if (!(d > 0))
        return -1;
    x[0] = sqrt((-3 * p[1] - sqrt(d)) / (10 * p[2]));
    x[1] = sqrt((-3 * p[1] + sqrt(d)) / (10 * p[2]));
    return 0;
}

/* Of odd polynomials of degree 5, the one nearest to 1 on [low, high] is that
 * whose error has its largest value at four points there, with signs that
 * alternate (Chebyshev). Iteration i sees [low, high], begun at [1e-3, 1]; its
 * polynomial is made for at least 0.024 high on and then multiplied such that
 * its values lie about 1 on all of [low, high] (section 4.3 of the paper). */
static void check_best(void)
{
    double low = 1e-3, high = 1;

    for (int i = 0; i < PLAIT_ORTHOGONAL_ITERATIONS; i++) {
        const double *p =
            plait_orthogonal_polynomial(PLAIT_MUON_POLAR_EXPRESS, i);
        double from = fmax(low, 0.02407327424182761 * high), x[2] = {0};
        double error[4], middle;
        int rc = extrema_of(p, x);

        /* without that factor the error alternates about 1 */
        middle = (value_of(p, from) + value_of(p, x[0])) / 2;
        error[0] = value_of(p, from) / middle - 1;
        error[1] = value_of(p, x[0]) / middle - 1;
        error[2] = value_of(p, x[1]) / middle - 1;
        error[3] = value_of(p, high) / middle - 1;
        ok(rc == 0 && from < x[0] && x[0] < x[1] && x[1] < high &&
               error[0] < 0 && fabs(error[0] + error[1]) < 1e-9 &&
               fabs(error[0] - error[2]) < 1e-9 &&
               fabs(error[1] - error[3]) < 1e-9,
           "polynomial %d is the best on %.4f to %.4f: off by %.4f", i, from,
           high, fabs(error[0]));
        ok(fabs(value_of(p, low) + value_of(p, x[0]) - 2) < 1e-9,
           "and multiplied to lie about 1");
        low = value_of(p, low);
        high = 2 - low;
    }
    ok(low > 0.87 && low < 0.88, "values from 1e-3 on become %.4f to %.4f", low,
       high);
}

/* What five iterations make of x, as orthogonalization does. */
static double five_times(enum plait_muon_coefficients kind, double x)
{
    double by = kind == PLAIT_MUON_POLAR_EXPRESS ? 1.01 : 1;

    x /= by; /* of the norm */
    for (int i = 0; i < PLAIT_ORTHOGONAL_ITERATIONS; i++)
        x = value_of(plait_orthogonal_polynomial(kind, i), x / by);
    return x;
}

/* Among 2000 values from 1e-3 to 1. */
static double farthest(enum plait_muon_coefficients kind)
{
    double most = 0;

    for (int k = 0; k <= 2000; k++)
        most = fmax(most, fabs(five_times(kind, pow(10, -3 * k / 2000.0)) - 1));
    return most;
}

static void check_convergence(void)
{
    double quintic = farthest(PLAIT_MUON_QUINTIC);
    double polar = farthest(PLAIT_MUON_POLAR_EXPRESS);

    ok(polar < 0.16 && quintic > 0.5,
       "singular values from 1e-3 to 1 are off by %.3f, by quintic %.3f", polar,
       quintic);
}

/* Diagonal matrices, whose singular values can be read off. */
static void check_express(struct plait_mesh *mesh)
{
    struct plait_orthogonal *o = plait_orthogonal_create(
        mesh, PLAIT_F32, PLAIT_MUON_POLAR_EXPRESS, 1, 16, 4);
    static const float values[4] = {1, 0.1f, 0.01f, 0.002f};
    float x[16] = {0};
    double norm = 0;
    int good = o != NULL;

    for (int i = 0; i < 4; i++) {
        x[i * 5] = values[i];
        norm += values[i] * values[i];
    }
    plait_orthogonalize(o, x, 1, 1, 4, 4);
    for (int i = 0; i < 4; i++)
        good &= fabs(x[i * 5] - five_times(PLAIT_MUON_POLAR_EXPRESS,
                                           values[i] / sqrt(norm))) < 1e-4 &&
                fabsf(x[i * 5] - 1) < 0.16f;
    ok(good, "singular values 1 to 0.002: %g %g %g %g", (double)x[0],
       (double)x[5], (double)x[10], (double)x[15]);
    plait_orthogonal_destroy(o);
}

/* Norms of 1e-6 and 1e-8 beside the least one, 1e-7: the latter stays small. */
static void check_least(struct plait_mesh *mesh,
                        enum plait_muon_coefficients kind)
{
    struct plait_orthogonal *o =
        plait_orthogonal_create(mesh, PLAIT_F32, kind, 2, 1, 1);
    bool polar = kind == PLAIT_MUON_POLAR_EXPRESS;
    float x[2] = {1e-6f, 1e-8f};
    double want[2] = {1e-6, 1e-8};
    int good = o != NULL;

    for (int i = 0; i < 2; i++)
        orthogonal_reference(want + i, 1, 1, polar);
    plait_orthogonalize(o, x, 1, 2, 1, 1);
    for (int i = 0; i < 2; i++)
        good &= fabs(x[i] - want[i]) < 1e-5 * want[i];
    ok(good, "%s: 1e-6 becomes %g, 1e-8 %g", plait_muon_coefficient_names[kind],
       (double)x[0], (double)x[1]);
    plait_orthogonal_destroy(o);
}

/* Matrices one behind the other have norms of their own. */
static void check_several(struct plait_mesh *mesh)
{
    enum { N = 3, ROWS = 4, COLS = 6, EACH = ROWS * COLS };
    struct plait_orthogonal *o = plait_orthogonal_create(
        mesh, PLAIT_F32, PLAIT_MUON_POLAR_EXPRESS, N, EACH, ROWS);
    static uint64_t random = 9;
    float x[N * EACH];
    double want[N * EACH], worst = 0;

    for (int i = 0; i < N * EACH; i++)
        want[i] = x[i] = (float)(uniform(&random) * pow(10, i / EACH));
    for (int i = 0; i < N; i++)
        orthogonal_reference(want + i * EACH, ROWS, COLS, 1);
    plait_orthogonalize(o, x, 1, N, ROWS, COLS);
    for (int i = 0; i < N * EACH; i++)
        worst = fmax(worst, fabs(x[i] - want[i]));
    ok(o && worst < 1e-4, "%d matrices at once: off by %.2g", N, worst);
    plait_orthogonal_destroy(o);
}

static void check_values(struct plait_mesh *mesh)
{
    struct plait_orthogonal *o =
        plait_orthogonal_create(mesh, PLAIT_F32, PLAIT_MUON_QUINTIC, 1, 16, 4);
    float x[16] = {0};
    int good = o != NULL;

    for (int i = 0; i < 4; i++)
        x[i * 5] = powf(0.3f, (float)i);
    plait_orthogonalize(o, x, 1, 1, 4, 4);
    for (int i = 0; i < 16; i++)
        good &= i % 5 ? fabsf(x[i]) < 1e-6f : x[i] > 0.65f && x[i] < 1.25f;
    ok(good, "singular values 1 to 0.03 become about 1");
    memset(x, 0, sizeof(x));
    plait_orthogonalize(o, x, 1, 1, 4, 4);
    for (int i = 0; i < 16; i++)
        good &= x[i] == 0;
    ok(good, "zeros stay zeros");
    plait_orthogonal_destroy(o);
}

static void check(const struct plait_ops *ops)
{
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_mesh mesh = {
        .ops = ops, .dev = dev, .q = ops->queue_create(dev, 0)};

    check_type(&mesh, PLAIT_F32, PLAIT_MUON_QUINTIC, 1e-5);
    check_type(&mesh, PLAIT_BF16_T, PLAIT_MUON_QUINTIC, 0.1);
    check_type(&mesh, PLAIT_FP16_T, PLAIT_MUON_QUINTIC, 0.02);
    check_type(&mesh, PLAIT_F32, PLAIT_MUON_POLAR_EXPRESS, 1e-4);
    check_wide(&mesh, PLAIT_FP16_T, 0.02);
    check_wide(&mesh, PLAIT_BF16_T, 8 * 0.02); /* three bits fewer */
    check_values(&mesh);
    check_express(&mesh);
    check_least(&mesh, PLAIT_MUON_QUINTIC);
    check_least(&mesh, PLAIT_MUON_POLAR_EXPRESS);
    check_several(&mesh);
    ops->queue_destroy(mesh.q);
    ops->device_destroy(dev);
}

int main(void)
{
    check_best();
    check_convergence();
    check(plait_ops_ref());
    check(plait_ops_cpu());
    return done_testing();
}
