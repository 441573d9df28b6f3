/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/plan/cost_layer.h"

#include <math.h>

#include "topology/plan/cost.h"

/* A product is made of tiles of 128 x 256, each of which takes as long as if it
 * were PLAIT_PRODUCT_FILL columns deeper. Of the last wave of tiles half is
 * idle on average; deep products are split into pieces of 4096 to have more of
 * them. Where reading the operands takes longer, the memory's bandwidth
 * counts. */
#define TILE_ROWS 128
#define TILE_COLUMNS 256
#define SPLIT 4096
/* The same for a CPU, whose tiles are as wide as a vector register. */
#define CORE_FILL 16
/* The launches of which layer_s is the time (gpu_types.c). */
#define LAUNCHES 12

double plait_cost_rate(const struct plait_gpu_type *g,
                       enum plait_precision precision)
{
    switch (precision) {
    case PLAIT_FP32:
        return g->flops32 * g->matmul;
    case PLAIT_TF32:
        return g->flops_tf32 * g->matmul;
    case PLAIT_FP8:
        if (g->flops8 > g->flops16)
            return g->flops8 * g->matmul8;
        break;
    default:
        break;
    }
    return g->flops16 * g->matmul;
}

double plait_cost_product(const struct plait_gpu_type *g,
                          const struct plait_product *p, double rate,
                          double element, double result)
{
    double tiles = fmax(1, p->rows / TILE_ROWS) *
                   fmax(1, p->columns / TILE_COLUMNS) *
                   fmax(1, p->depth / SPLIT) * p->count;
    double idle = g->units ? 1 + 0.5 * g->units / tiles : 1;
    double flops = 2 * p->rows * p->columns * p->depth * p->count;
    double fill = g->cores > 0 ? CORE_FILL : PLAIT_PRODUCT_FILL;
    double bytes = p->count * (element * p->depth * (p->rows + p->columns) +
                               result * p->rows * p->columns);

    if (flops <= 0)
        return 0;
    return fmax(flops / rate * (1 + fill / p->depth) * fmin(idle, 2),
                bytes / (g->memory_bw * g->stream));
}

/* Seconds to all-reduce `rows` rows; a reduce-scatter takes half of that. */
static double all_reduce(const struct plait_cost_layer *l, double rows,
                         const struct plait_gpu_type *g)
{
    double bytes = l->element * rows * l->hidden;

    return l->across > 1
               ? plait_cost_allreduce_flat(l->inside, l->across, bytes, g)
               : plait_cost_allreduce(l->inside, bytes, g->link_alpha,
                                      g->link_bw);
}

static double chunk_product(const struct plait_cost_layer *l, double rows,
                            double columns, double depth,
                            const struct plait_gpu_type *g)
{
    const struct plait_product p = {rows, columns, depth, 1};

    if (columns * depth <= 0)
        return 0;
    return g->layer_s / LAUNCHES +
           plait_cost_product(g, &p, plait_cost_rate(g, l->precision),
                              l->precision == PLAIT_FP8 ? 1 : l->element,
                              l->element);
}

static double in_turns(int n, double product, double transfer)
{
    return product + transfer + (n - 1) * fmax(product, transfer);
}

double plait_cost_chunked(const struct plait_cost_layer *l, int n,
                          const struct plait_gpu_type *g)
{
    double rows = l->rows / n, launch = g->layer_s / LAUNCHES, seconds = 0;
    double all = all_reduce(l, rows, g);

    for (int i = 0; i < 4; i++) {
        double to = chunk_product(l, rows, l->hidden, l->width[i], g);
        double from = chunk_product(l, rows, l->width[i], l->hidden, g);

        if (l->sequence)
            seconds += in_turns(n, to, launch + all / 2) +
                       in_turns(n, from, launch + all / 2);
        else
            seconds += in_turns(n, to, launch + all);
    }
    return seconds;
}
