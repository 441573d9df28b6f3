/* SPDX-License-Identifier: Apache-2.0 */
/* Rows times a weight in bf16 by the matrix unit: a linear layer's forward, and
 * the gradient of its input. What follows the product is done while a block is
 * in L1. Each element is summed in an order that depends on k alone. */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows_product.h"
#include "kernels/cpu/tiles.h"

/* A task is a part of the result. It packs its columns of b, 512 values of k at
 * a time, for all of its rows: b is read and packed once for 1024 rows. Packed
 * (128 KB) and with the sums (512 KB) they fit into an L2 cache of 2 MB, and
 * rows of a from L3 are used for 128 columns: 8 bytes a cycle. */
enum { ROWS = 1024, COLS = 128, TASK_WORDS = COLS * (TILES_DEEP / 2 + ROWS) };

static size_t tasks(const struct rows_product *p)
{
    return over(p->M, p->rows) * over(p->N, p->cols);
}

/* As large as leaves each of several threads some tasks. */
static void set_task(struct rows_product *p, size_t threads)
{
    p->rows = min(ROWS, rounded_up(p->M, SIDE));
    p->cols = COLS;
    while (threads > 1 && tasks(p) < 4 * threads && p->cols > SIDE)
        p->cols /= 2;
    while (threads > 1 && tasks(p) < 4 * threads && p->rows > 4 * SIDE)
        p->rows = rounded_up(p->rows / 2, SIDE);
}

struct tiles_place {
    uint32_t *b; /* [COLS / SIDE][PANEL_WORDS] */
    float *sum;  /* [COLS / SIDE][ROWS / SIDE][SIDE, SIDE] */
};

INLINE void pack_columns(const struct rows_product *p, uint32_t *dst, size_t k0,
                         size_t steps, size_t j)
{
    const uint16_t *b = p->b;

    if (p->transposed)
        pack_tiles(
            COLUMNS_OF_COLUMNS, dst,
            (struct tile_source){b + j * p->K + k0, p->K, p->N - j, p->K - k0},
            steps);
    else
        pack_tiles(
            COLUMNS_OF_ROWS, dst,
            (struct tile_source){b + k0 * p->N + j, p->N, p->K - k0, p->N - j},
            steps);
}

/* The rows and columns of x, over the values of k from k0 on. */
static void multiply_piece(const struct rows_product *p,
                           const struct tiles_place *t, struct piece x,
                           size_t k0)
{
    const uint16_t *a = p->a;
    size_t steps = over(min(TILES_DEEP, p->K - k0), STEP);
    int last = k0 + TILES_DEEP >= p->K;
    struct tile_rows r = {.stride = p->lda * sizeof(*a),
                          .half = TILE * p->lda * sizeof(*a),
                          .step = STEP * sizeof(*a)};

    for (size_t i = 0; i < x.rows; i += SIDE)
        for (size_t c = 0; c < x.cols; c += SIDE) {
            size_t block = (c * ROWS / SIDE + i) / SIDE;
            /* A sum over all of k at once needs no memory of its own. */
            float *sum =
                k0 == 0 && last ? t->sum : t->sum + block * BLOCK_WORDS;
            struct tile_sum s = {k0 > 0 ? sum : NULL, sum, SIDE, SIDE};

            r.at = (const char *)(a + (x.i + i) * p->lda + k0);
            multiply_tiles(s, r, t->b + c / SIDE * PANEL_WORDS, steps);
            if (last)
                finish(PLAIT_BF16_T, p, sum, SIDE,
                       (struct piece){x.i + i, min(SIDE, x.rows - i), x.j + c,
                                      min(SIDE, x.cols - c)});
        }
}

static void rows_task(const struct rows_product *p, const struct tiles_place *t,
                      size_t task)
{
    size_t across = over(p->N, p->cols);
    size_t i = task / across * p->rows, j = task % across * p->cols;
    struct piece x = {i, min(p->rows, p->M - i), j, min(p->cols, p->N - j)};

    for (size_t k0 = 0; k0 < p->K; k0 += TILES_DEEP) {
        size_t steps = over(min(TILES_DEEP, p->K - k0), STEP);

        for (size_t c = 0; c < x.cols; c += SIDE)
            pack_columns(p, t->b + c / SIDE * PANEL_WORDS, k0, steps, j + c);
        multiply_piece(p, t, x, k0);
    }
}

/* Copies row i of a, with zeros up to whole tiles. Run by a team. */
static void copy_rows(const struct rows_product *p, uint16_t *copy)
{
    const uint16_t *a = p->a;
    size_t wide = rounded_up(p->K, STEP);

#pragma omp for
    for (size_t i = 0; i < rounded_up(p->M, SIDE); i++) {
        size_t n = i < p->M ? p->K : 0;

        if (n > 0)
            memcpy(copy + i * p->lda, a + i * p->K, n * sizeof(*a));
        memset(copy + i * p->lda + n, 0, (wide - n) * sizeof(*a));
    }
}

/* Whether the tiles cannot be loaded from a itself: it is not whole tiles, or
 * its rows lie multiples of 4 KB apart, where they all have the same place in
 * the L1 cache. */
static int must_copy(const struct rows_product *p)
{
    return p->M % SIDE != 0 || p->K % STEP != 0 || p->K * 2 % 4096 == 0;
}

static void rows_team(struct rows_product *p, uint16_t *copy, size_t *taken,
                      uint32_t *own)
{
    struct tiles_place t = {own, (float *)own + COLS * TILES_DEEP / 2};
    struct rows_product mine = *p;
    size_t task;

    if (copy != NULL) {
        copy_rows(p, copy);
        mine.a = copy;
    }
    tile_configure();
    while ((task = __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED)) < tasks(p))
        rows_task(&mine, &t, task);
    tile_release();
}

static int rows_run(struct plait_queue *q, struct rows_product *p)
{
    size_t threads = (size_t)q->dev->threads, taken = 0;
    size_t own = threads * TASK_WORDS * sizeof(uint32_t), copied = 0;
    char *room;
    uint16_t *copy = NULL;

    p->lda = p->K;
    if (must_copy(p)) {
        p->lda = rounded_up(p->K, STEP) + STEP;
        if (p->lda * 2 % 4096 == 0)
            p->lda += STEP;
        copied = rounded_up(p->M, SIDE) * p->lda * sizeof(*copy);
    }
    room = cpu_scratch(q, CPU_SCRATCH_LIBRARY, own + copied);
    if (room == NULL)
        return -1;
    if (copied > 0)
        copy = (uint16_t *)(room + own);
    set_task(p, threads);
#pragma omp parallel num_threads(cpu_threads(q, p->M * p->N * p->K / 64))
    rows_team(p, copy, &taken,
              (uint32_t *)room + (size_t)omp_get_thread_num() * TASK_WORDS);
    return 0;
}

/* Fewer rows than a tile has leave the unit idle, and packing does not pay. */
static int has_tiles(const struct rows_product *p)
{
    return p->type == PLAIT_BF16_T && p->M >= TILE && p->K > 0;
}

static int linear_forward(struct plait_queue *q, const struct plait_linear *l)
{
    struct rows_product p = forward_product(l);

    return has_tiles(&p) ? rows_run(q, &p) : cpu_linear_forward(q, l);
}

static int linear_backward_input(struct plait_queue *q,
                                 const struct plait_linear_dinp *l)
{
    struct rows_product p = input_product(l);

    return has_tiles(&p) ? rows_run(q, &p) : cpu_linear_backward_input(q, l);
}

void CPU_NAME(cpu_fill_tiles)(struct plait_ops *ops)
{
    ops->linear_forward = linear_forward;
    ops->linear_backward_input = linear_backward_input;
    CPU_NAME(cpu_fill_tiles_weight)(ops);
}
