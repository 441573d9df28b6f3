/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_COST_LAYER_H
#define PLAIT_TOPOLOGY_PLAN_COST_LAYER_H

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds of a layer's matrix products, and of products that overlap with
 * transfers; cost.h has those of communication alone. */

/* [rows, depth] by [depth, columns], `count` times. */
struct plait_product {
    double rows, columns, depth, count;
};

/* Filling a tile's pipeline and writing its result takes as long as this many
 * columns of its depth. */
#define PLAIT_PRODUCT_FILL 64

/* FLOP/s of large products in this precision. */
double plait_cost_rate(const struct plait_gpu_type *gpu,
                       enum plait_precision precision);
/* `rate`: from plait_cost_rate(); `element`, `result`: bytes of an element of
 * the operands and of the result. */
double plait_cost_product(const struct plait_gpu_type *gpu,
                          const struct plait_product *product, double rate,
                          double element, double result);

/* A layer under tensor parallelism, whose rows are gathered before products
 * and whose sums are reduced behind them (runtime/mesh/tensor_parallel.h). */
struct plait_cost_layer {
    double rows, hidden;
    /* The dimension of each matrix that is not `hidden`, as split over the
     * ranks. 0: a transfer without a product beside it. */
    double width[4];
    double element; /* bytes, of what is transferred */
    enum plait_precision precision;
    bool sequence;
    int inside, across; /* ranks: on each node, nodes */
};

/* The layer's forward and backward without weight gradients, where rows are
 * sent in n chunks: while one is transferred, the product works on the one
 * before, so that a product of P and a transfer of T seconds for each chunk
 * take
 *     P + T + (n - 1) max(P, T)
 * T includes the latency of a whole transfer, and P what a product of fewer
 * tiles loses; each includes a launch. So few chunks are best where products
 * are short. */
double plait_cost_chunked(const struct plait_cost_layer *layer, int n,
                          const struct plait_gpu_type *gpu);

#ifdef __cplusplus
}
#endif
#endif
