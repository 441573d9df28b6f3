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
                       double scale)
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
    orthogonal_reference(want, shape[0], shape[1]);
    plait_orthogonalize(o, there, 1, shape[0], shape[1]);
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
                       double most)
{
    struct plait_orthogonal *o =
        plait_orthogonal_create(mesh, type, LARGEST, 128);
    double worst = 0;

    for (int i = 0; o && i < NSHAPES; i++) {
        double now = worst_of(mesh, type, o, shapes[i], i % 2 ? 1e-3 : 10);

        if (!(now <= worst))
            worst = now;
    }
    ok(o && worst <= most, "%s in %s: off by %.2g of the largest, at most %g",
       mesh->ops->name, plait_dtype_name(type), worst, most);
    plait_orthogonal_destroy(o);
}

/* Diagonal matrices, whose singular values can be read off. */
static void check_values(struct plait_mesh *mesh)
{
    struct plait_orthogonal *o =
        plait_orthogonal_create(mesh, PLAIT_F32, 16, 4);
    float x[16] = {0};
    int good = o != NULL;

    for (int i = 0; i < 4; i++)
        x[i * 5] = powf(0.3f, (float)i);
    plait_orthogonalize(o, x, 1, 4, 4);
    for (int i = 0; i < 16; i++)
        good &= i % 5 ? fabsf(x[i]) < 1e-6f : x[i] > 0.65f && x[i] < 1.25f;
    ok(good, "singular values 1 to 0.03 become about 1");
    memset(x, 0, sizeof(x));
    plait_orthogonalize(o, x, 1, 4, 4);
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

    check_type(&mesh, PLAIT_F32, 1e-5);
    check_type(&mesh, PLAIT_BF16_T, 0.1);
    check_type(&mesh, PLAIT_FP16_T, 0.02);
    check_values(&mesh);
    ops->queue_destroy(mesh.q);
    ops->device_destroy(dev);
}

int main(void)
{
    check(plait_ops_ref());
    check(plait_ops_cpu());
    return done_testing();
}
