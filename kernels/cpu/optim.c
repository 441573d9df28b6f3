/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of squares on a CPU, of which a norm of all gradients is made. */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Blocks of fixed size are summed separately and added in order, so that the
 * bits do not depend on the number of threads. */
#define BLOCK 65536

static double block_squares(const float *x, size_t n)
{
    double sums[VLEN] = {0}, total = 0;
    size_t i = 0;

    for (; i + VLEN <= n; i += VLEN)
        for (size_t k = 0; k < VLEN; k++)
            sums[k] += (double)x[i + k] * x[i + k];
    for (; i < n; i++)
        total += (double)x[i] * x[i];
    for (size_t k = 0; k < VLEN; k++)
        total += sums[k];
    return total;
}

/* Number of blocks of a list of n; the last one may be shorter. */
static size_t blocks_of(size_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

/* Sums of blocks b .. end-1, counted through all lists. */
static void sum_blocks(double *sums, const struct plait_floats *l, size_t b,
                       size_t end)
{
    for (size_t first = 0; first < end; first += blocks_of(l->n), l++)
        for (; b < end && b < first + blocks_of(l->n); b++) {
            size_t at = (b - first) * BLOCK, left = l->n - at;

            sums[b] = block_squares(l->x + at, left < BLOCK ? left : BLOCK);
        }
}

static int sum_squares(struct plait_queue *q, double *result,
                       const struct plait_floats *lists, int n)
{
    size_t blocks = 0;
    double *sums, total = 0;

    for (int i = 0; i < n; i++)
        blocks += blocks_of(lists[i].n);
    sums = cpu_scratch(q, CPU_SCRATCH_OP, blocks * sizeof(double));
    if (sums == NULL)
        return -1;
#pragma omp parallel num_threads(blocks > 1 ? q->dev->threads : 1)
    {
        size_t threads = (size_t)omp_get_num_threads();
        size_t t = (size_t)omp_get_thread_num();

        sum_blocks(sums, lists, blocks * t / threads,
                   blocks * (t + 1) / threads);
    }
    for (size_t b = 0; b < blocks; b++)
        total += sums[b];
    *result += total;
    return 0;
}

void CPU_NAME(cpu_fill_optim)(struct plait_ops *ops)
{
    ops->sum_squares = sum_squares;
}
