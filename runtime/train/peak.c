/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/peak.h"
#include "topology/base/clock.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "kernels/linear.h"

#define FILL ((size_t)1 << 16) /* values; matrices are 2^i times as many */

/* Fill the two operands, which follow the result, with values in [-1, 1): a GPU
 * multiplies zeros at a higher clock. The result's memory serves as work
 * space. What is filled is copied until all is. */
static int fill_operands(struct plait_mesh *mesh, enum plait_dtype type,
                         size_t n, char *buffer)
{
    size_t size = plait_dtype_size(type);
    char *operands = buffer + n * n * size;
    uint32_t x = 1;
    float *values = malloc(FILL * sizeof(*values));
    int rc = values ? 0 : -1;

    for (size_t i = 0; i < FILL && rc == 0; i++) {
        x = x * 1664525 + 1013904223;
        values[i] = (float)(x >> 8) / (1 << 23) - 1;
    }
    if (rc == 0)
        rc = mesh->ops->to_device(mesh->q, buffer, values,
                                  FILL * sizeof(*values));
    if (rc == 0)
        rc = mesh->ops->cast(mesh->q, &(struct plait_cast){.to = type,
                                                           .from = PLAIT_F32,
                                                           .dst = operands,
                                                           .src = buffer,
                                                           .n = FILL});
    for (size_t i = FILL; i < 2 * n * n && rc == 0; i *= 2)
        rc = mesh->ops->copy(mesh->q, operands + i * size, operands, i * size);
    free(values);
    return rc;
}

/* Mean seconds of `count` products of square matrices, measured while all ranks
 * do the same, because they may share cores. INFINITY: a product failed, or w
 * is NULL; the other ranks do not wait for this one. */
static double time_products(struct plait_mesh *mesh, size_t matrix, size_t n,
                            void *buffer, struct plait_weight *w, int count)
{
    struct plait_linear l = {
        .N = n, .inp.x = (char *)buffer + matrix, .w = w, .out = buffer};
    double start;
    int rc = w ? 0 : -1;

    plait_comm_barrier(mesh->world);
    start = plait_clock_now();
    for (int i = 0; i < count && rc == 0; i++)
        rc = mesh->ops->linear_forward(mesh->q, &l);
    if (rc == 0)
        rc = mesh->ops->queue_sync(mesh->q);
    plait_comm_barrier(mesh->world); /* cores stay busy until here */
    return rc < 0 ? INFINITY : (plait_clock_now() - start) / count;
}

/* The best round counts, after one to warm up, because other processes may use
 * the cores for a moment. A round is long compared with the barriers around it,
 * and short compared with a time slice. A round's time is that of the slowest
 * rank: a rank that began late measured only a part of it. */
int plait_peak_measure(struct plait_mesh *mesh, enum plait_dtype type,
                       int rounds, double *flops)
{
    size_t n = mesh->ops->gpu ? 4096 : 512;
    size_t matrix = n * n * plait_dtype_size(type);
    char *buffer = mesh->ops->alloc(mesh->dev, 3 * matrix);
    double seconds[PLAIT_PEAK_ROUNDS + 1], best = INFINITY;
    struct plait_weight *w = NULL;

    if (buffer && fill_operands(mesh, type, n, buffer) == 0)
        w = mesh->ops->weight_create(
            mesh->dev,
            &(struct plait_weight_data){type, n, n, buffer + 2 * matrix});
    for (int i = 0; i <= rounds; i++)
        seconds[i] = time_products(mesh, matrix, n, buffer, w,
                                   i == 0           ? 1
                                   : mesh->ops->gpu ? 10
                                                    : 2);
    mesh->ops->weight_destroy(w);
    mesh->ops->free(mesh->dev, buffer);
    if (plait_comm_host_all_reduce(mesh->world, seconds, (size_t)rounds + 1,
                                   PLAIT_MAX) < 0)
        return -1;
    for (int i = 1; i <= rounds; i++)
        best = fmin(best, seconds[i]);
    if (!isfinite(best) || best <= 0)
        return -1;
    *flops = 2.0 * n * n * n / best * plait_comm_size(mesh->world);
    return 0;
}
