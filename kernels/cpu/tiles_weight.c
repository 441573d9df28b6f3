/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a linear layer's weight in bf16 by the matrix unit; the order
 * of summation depends on the number of rows alone. */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"
#include "kernels/linear.h"

/* Rows of the gradient in a task, at most, and the values of k (rows of the
 * operands) that are summed before the gradient is read and written. A task's
 * packed rows (512 KB) stay in L2, and each panel of the other operand is read
 * for 128 rows. */
enum { STRIP = 128, LONG = 4 * TILES_DEEP };
enum { STRIP_WORDS = STRIP * (LONG / 2 + SIDE) };

struct weight_product {
    size_t O, C, N; /* dw [O,C] summed over N rows */
    const uint16_t *dout, *inp;
    float *dw;
    int accumulate;
    size_t strip; /* rows of dw in a task */
    uint32_t *b;  /* inp, packed: [panels][steps of k][2 tiles] */
};

/* The values of k from k0 on. */
struct chunk {
    size_t k0, n;
    int add; /* to dw */
};

struct strip_place {
    uint32_t *a; /* [strip / SIDE][steps of k][2 tiles] */
    float *sum;  /* [STRIP, SIDE] */
};

/* Rows o .. and columns c .. of dw. */
struct block_place {
    size_t o, rows, c, cols;
};

/* [rows, cols] of a block from one array to another; *_row: values from row to
 * row. */
static void copy_block(float *to, size_t to_row, const float *from,
                       size_t from_row, const struct block_place *x)
{
    for (size_t i = 0; i < min(SIDE, x->rows); i++)
        memcpy(to + i * to_row, from + i * from_row,
               min(SIDE, x->cols) * sizeof(*to));
}

/* Sums a block of dw over the steps from `step` on. Whole blocks are read from
 * dw and stored to it directly, those at an edge by way of `sum`, in the same
 * order of summation. */
static void add_block(const struct weight_product *p, const struct chunk *k,
                      const uint32_t *a, float *sum, struct block_place x,
                      size_t step)
{
    size_t all = over(k->n, STEP), most = TILES_DEEP / STEP;
    size_t steps = min(most, all - step);
    size_t panel = x.c / SIDE * all + step;
    int whole = x.rows >= SIDE && x.cols >= SIDE;
    int begins = step == 0 && k->add, ends = step + steps == all;
    float *dw = p->dw + x.o * p->C + x.c;
    struct tile_rows r = {(const char *)(a + step * 2 * TILE_WORDS), 64,
                          TILE_WORDS * sizeof(*a), 2 * TILE_WORDS * sizeof(*a)};
    struct tile_sum s = {step > 0 || begins ? sum : NULL, sum, SIDE, SIDE};

    if (begins && whole) {
        s.from = dw;
        s.from_row = p->C;
    } else if (begins) {
        memset(sum, 0, BLOCK_WORDS * sizeof(*sum));
        copy_block(sum, SIDE, dw, p->C, &x);
    }
    if (ends && whole) {
        s.to = dw;
        s.to_row = p->C;
    }
    multiply_tiles(s, r, p->b + panel * 2 * TILE_WORDS, steps);
    if (ends && !whole)
        copy_block(dw, p->C, sum, SIDE, &x);
}

/* The strip of rows o .. of dw, over a chunk of k. */
static void strip_task(const struct weight_product *p,
                       const struct strip_place *t, const struct chunk *k,
                       size_t o)
{
    size_t rows = min(p->strip, p->O - o), steps = over(k->n, STEP);
    size_t block = steps * 2 * TILE_WORDS;
    struct tile_source dout = {p->dout + k->k0 * p->O + o, p->O, k->n,
                               p->O - o};

    for (size_t i = 0; i < rows; i += SIDE)
        pack_tiles(ROWS_OF_COLUMNS, t->a + i / SIDE * block, beyond(dout, 0, i),
                   steps);
    for (size_t c = 0; c < p->C; c += SIDE)
        for (size_t step = 0; step < steps; step += TILES_DEEP / STEP)
            for (size_t i = 0; i < rows; i += SIDE)
                add_block(p, k, t->a + i / SIDE * block, t->sum + i * SIDE,
                          (struct block_place){o + i, rows - i, c, p->C - c},
                          step);
}

/* The whole product, run by every thread of a team; own [STRIP_WORDS]. */
static void strips_team(const struct weight_product *p, uint32_t *own)
{
    struct strip_place t = {own, (float *)own + STRIP * LONG / 2};

    tile_configure();
    for (size_t k0 = 0; k0 < p->N; k0 += LONG) {
        struct chunk k = {k0, min(LONG, p->N - k0), p->accumulate || k0 > 0};
        struct tile_source inp = {p->inp + k0 * p->C, p->C, k.n, p->C};
        size_t steps = over(k.n, STEP);

#pragma omp for schedule(dynamic)
        for (size_t c = 0; c < p->C; c += SIDE)
            pack_tiles(COLUMNS_OF_ROWS,
                       p->b + c / SIDE * steps * 2 * TILE_WORDS,
                       beyond(inp, 0, c), steps);
#pragma omp for schedule(dynamic)
        for (size_t o = 0; o < p->O; o += p->strip)
            strip_task(p, &t, &k, o);
    }
    tile_release();
}

static int strips_run(struct plait_queue *q, struct weight_product *p)
{
    size_t threads = (size_t)q->dev->threads;
    size_t shared =
        over(p->C, SIDE) * over(min(LONG, p->N), STEP) * 2 * TILE_WORDS;
    uint32_t *room =
        cpu_scratch(q, CPU_SCRATCH_LIBRARY,
                    (shared + threads * STRIP_WORDS) * sizeof(*room));

    if (room == NULL)
        return -1;
    p->b = room;
    p->strip = STRIP;
    while (over(p->O, p->strip) < 4 * threads && p->strip > SIDE)
        p->strip /= 2;
#pragma omp parallel num_threads(cpu_threads(q, p->O * p->C * p->N / 64))
    strips_team(p, room + shared + (size_t)omp_get_thread_num() * STRIP_WORDS);
    return 0;
}

static int linear_backward_weight(struct plait_queue *q,
                                  const struct plait_linear_dw *l)
{
    struct weight_product p = {.O = l->O,
                               .C = l->C,
                               .N = l->N,
                               .dout = l->dout.x,
                               .inp = l->inp.x,
                               .dw = l->dw,
                               .accumulate = l->accumulate};

    if (l->type != PLAIT_BF16_T || l->N < TILE)
        return cpu_linear_backward_weight(q, l);
    if (strips_run(q, &p) < 0)
        return -1;
    return cpu_linear_bias_gradient(q, l);
}

void CPU_NAME(cpu_fill_tiles_weight)(struct plait_ops *ops)
{
    ops->linear_backward_weight = linear_backward_weight;
}
