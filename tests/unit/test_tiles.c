/* SPDX-License-Identifier: Apache-2.0 */
/* The products by Intel's matrix unit against ref: over its instructions in
 * plain C (tile_model.h), and by the unit itself where there is one. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_tables.h"
#include "kernels/linear.h"
#include "ops_trial.h"
#include "tap.h"

void cpu_fill_tiles_model(struct plait_ops *ops);
void cpu_fill_tiles_model_avx512(struct plait_ops *ops);

/* Rows of the operands, more than are summed before the gradient is stored; and
 * rows and columns of the gradient, of which an edge has FEW rows. */
enum { ROWS = 2100, SIDE = 32, FEW = 20 };

/* Adds the gradient of O rows to dw. */
static int add_gradient(const struct plait_ops *ops, struct plait_queue *q,
                        float *dw, size_t O)
{
    static uint16_t dout[ROWS * SIDE], inp[ROWS * SIDE];
    struct plait_linear_dw l = {.type = PLAIT_BF16_T,
                                .N = ROWS,
                                .O = O,
                                .C = SIDE,
                                .dout.x = dout,
                                .inp.x = inp,
                                .dw = dw,
                                .accumulate = 1};

    for (size_t n = 0; n < ROWS; n++)
        for (size_t i = 0; i < SIDE; i++) {
            if (i < O)
                dout[n * O + i] = (uint16_t)(0x3f00 + (n * 37 + i * 11) % 191);
            inp[n * SIDE + i] = (uint16_t)(0xbe80 + (n * 53 + i * 7) % 227);
        }
    for (size_t i = 0; i < O * SIDE; i++)
        dw[i] = 1e-3f * (float)i;
    return ops->linear_backward_weight(q, &l) | ops->queue_sync(q);
}

/* Whether blocks at an edge are summed as whole ones are. */
static int edge_is_like_whole(const struct plait_ops *ops)
{
    static float whole[SIDE * SIDE], edge[FEW * SIDE];
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_queue *q = ops->queue_create(dev, 0);
    int same = add_gradient(ops, q, whole, SIDE) == 0 &&
               add_gradient(ops, q, edge, FEW) == 0 &&
               memcmp(whole, edge, sizeof(edge)) == 0;

    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return same;
}

int main(void)
{
    static struct plait_ops table[3];
    const struct plait_ops *list[4] = {NULL};
    const char *why = NULL;
    int wide, n = 0;

    if (plait_cpu_isa(&why) == NULL)
        return skip_all(why);
    wide = cpu_isa() >= CPU_AVX512BF16 && cpu_isa() < CPU_NEON;
    /* in the quick tier with the packing of only one class */
    if (all_tier() || !wide)
        list[n++] = other_table(&table[0], "tiles in C", cpu_fill_tiles_model);
#ifdef HAVE_X86_VECTORS
    if (wide)
        list[n++] = other_table(&table[1], "tiles in C, packed by AVX-512",
                                cpu_fill_tiles_model_avx512);
#endif
#ifdef HAVE_X86_TILES
    if (cpu_may_use_tiles())
        list[n++] = other_table(&table[2], "tiles", cpu_fill_tiles_amx);
#endif
    for (int i = 0; i < n; i++)
        if (!edge_is_like_whole(list[i])) { /* trial_run_all() counts alone */
            printf("Bail out! %s: a block at an edge has other bits\n",
                   list[i]->name);
            return 1;
        }
    setenv("PLAIT_TEST_CASES", "linear", 0);
    if (!all_tier()) /* without the largest */
        setenv("PLAIT_TEST_ELEMENTS", "250000", 0);
    return trial_run_all(list);
}
