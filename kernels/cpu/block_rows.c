/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>

#include "kernels/cpu/block.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/rows_product.h"

/* Rows times a weight: a linear layer's forward, and the gradient of its input.
 * What follows the product (bias, GELU, adding to the old values) is done while
 * a block is in L1. Each element is summed in an order that depends on k alone.
 *
 * Tasks run along the columns. Alternative tried: tasks of 64 to 512 rows in
 * the order of a Hilbert curve (arXiv 2601.16294), each panel packed once for
 * neighbouring tasks. On one Zen 5 core the products of GPT-2 124M and of a
 * model 384 wide took 0.98 to 1.13 times as long, and a square of 3072 0.97 to
 * 1.24 times: the products run at 220 to 236 GFLOP/s in fp32 and 430 to 470 in
 * bf16, and are not limited by memory. */

#define DEEP 768          /* words of k packed at once */
#define ROWS (128 * HIGH) /* rows of a task, at most */

/* The most panels of a task: those of widened rows, which are widened once for
 * all of them. */
enum { PANELS = 96 / PANEL };

struct rows_place {
    float *sum;     /* [PANELS][ROWS, PANEL] */
    uint32_t *b;    /* [PANELS][DEEP, PANEL] */
    uint32_t *tail; /* [HIGH, DEEP]: rows that must be copied before the
                     * product */
};

enum { ROWS_WORDS = PANELS * (ROWS + DEEP) * PANEL + HIGH * DEEP };

/* Number of columns of a task. Where rows are used in place, few columns leave
 * room in L2 for the sums of more rows, so that b is packed less often. */
INLINE size_t span(enum plait_dtype type)
{
    return is_widened(type) ? PANELS * PANEL : over(32, PANEL) * PANEL;
}

/* Copies n words of `rows` rows that must be widened, or that are fewer than a
 * block has; the missing rows are 0. */
INLINE void copy_words(enum plait_dtype type, uint32_t *tail, const void *a,
                       size_t lda, size_t rows, size_t n)
{
    for (size_t i = 0; i < HIGH; i++)
        for (size_t k = 0; k < n; k += VLEN) {
            uvec words = {0};

            if (i < rows)
                words = load_words(type, a, i * lda + k * values(type), n - k);
            store_words(tail + i * DEEP + k, words);
        }
}

/* Prefetches what finish() will read and write, while the block is summed. */
INLINE void prefetch_result(enum plait_dtype type, const struct rows_product *p,
                            size_t i, size_t rows, size_t j)
{
    const void *all[] = {p->dst, p->pre, p->slope};

    for (size_t m = 0; m < 3; m++)
        for (size_t r = 0; all[m] != NULL && r < rows; r++) {
            const char *to = at(type, all[m], (i + r) * p->N + j);

            for (size_t c = 0; c < PANEL; c += 64 / plait_dtype_size(type))
                __builtin_prefetch(at(type, to, c), 1);
            __builtin_prefetch(at(type, to, PANEL - 1), 1);
        }
}

/* A task's rows, and its panels of b: `words` words from value k0 of k on,
 * columns from j on. */
struct panel {
    size_t k0, words, j, cols;
    size_t i, rows;
};

INLINE void pack_panels(enum plait_dtype type, const struct rows_product *p,
                        uint32_t *dst, const struct panel *x)
{
    for (size_t c = 0; c < x->cols; c += PANEL, dst += DEEP * PANEL) {
        size_t cols = min(PANEL, x->cols - c), j = x->j + c;

        if (p->transposed)
            pack_transposed(type, dst, at(type, p->b, j * p->K + x->k0), p->K,
                            cols, x->words);
        else
            pack_rows(type, dst, PANEL,
                      (struct rows_of){at(type, p->b, x->k0 * p->N + j), p->N,
                                       x->words * values(type), cols},
                      NULL);
    }
}

/* The cache lines of those panels in b, to be prefetched during `blocks` blocks
 * of n words. */
INLINE struct fetch fetch_panels(enum plait_dtype type,
                                 const struct rows_product *p,
                                 const struct panel *x, size_t blocks, size_t n)
{
    size_t deep = x->words * values(type);
    size_t line = 64 / plait_dtype_size(type); /* values */
    size_t ld = p->transposed ? p->K : p->N;
    size_t from = p->transposed ? x->j * ld + x->k0 : x->k0 * ld + x->j;
    struct fetch f = {.row = at(type, p->b, from), .stride = ld * 64 / line};

    if (!p->prefetch)
        return f;
    f.left = p->transposed ? x->cols : deep;
    f.lines = p->transposed ? over(deep, line) : over(span(type), line) + 1;
    f.each = over(f.left * f.lines, blocks * over(n, LINE));
    return f;
}

/* The rows of a for a block, in place or copied, and the rows after them. */
struct block_rows {
    const word *a;
    size_t row;
    struct ahead next;
    size_t i, high; /* which rows of the task, and how many */
};

/* The rows of a block times the task's panels. */
INLINE void block_panels(enum plait_dtype type, const struct rows_product *p,
                         const struct rows_place *t, const struct block_rows *r,
                         const struct panel *x, struct fetch *f)
{
    int last = x->k0 + x->words * values(type) == p->K;

    for (size_t j = 0; j < x->cols; j += PANEL) {
        /* A sum over all of k at once needs no memory of its own: all blocks
         * use the same lines. */
        float *c =
            x->k0 == 0 && last ? t->sum : t->sum + j * ROWS + r->i * PANEL;
        struct block_sum s = {x->k0 > 0 ? c : NULL, c, PANEL, PANEL, 0};
        struct block b = {r->a, r->row, 1, t->b + j * DEEP, x->words};
        struct piece y = {x->i + r->i, r->high, x->j + j,
                          min(PANEL, x->cols - j)};

        if (last)
            prefetch_result(type, p, y.i, y.rows, y.j);
        multiply_block(type, s, b, j == 0 ? r->next : (struct ahead){0}, f);
        if (last)
            finish(type, p, c, PANEL, y);
    }
}

/* The task's rows times the panels packed in t->b. */
INLINE void panel_rows(enum plait_dtype type, const struct rows_product *p,
                       const struct rows_place *t, const struct panel *x,
                       const struct panel *next)
{
    size_t stride = p->lda * plait_dtype_size(type), rows = x->rows;
    const char *a = at(type, p->a, x->i * p->lda + x->k0);
    size_t blocks = over(rows, HIGH) * over(x->cols, PANEL);
    struct fetch f = fetch_panels(type, p, next, blocks, x->words);

    for (size_t i = 0; i < rows; i += HIGH, a += HIGH * stride) {
        struct ahead below = {p->prefetch ? a + HIGH * stride : NULL, stride,
                              values(type) * plait_dtype_size(type)};
        size_t high = min(HIGH, rows - i);
        struct block_rows r = {(const word *)t->tail, DEEP, below, i, high};

        if (high == HIGH && !is_widened(type)) {
            r.a = (const word *)a;
            r.row = stride / sizeof(word);
        } else {
            copy_words(type, t->tail, a, p->lda, high, x->words);
        }
        block_panels(type, p, t, &r, x, &f);
    }
}

/* A task's first panels of b; words is 0 if there is no such task. */
static struct panel first_panel(const struct rows_product *p, size_t task)
{
    size_t wide = span(p->type), across = over(p->N, wide);
    size_t j = task % across * wide;
    size_t i = task / across * p->rows;
    struct panel x = {
        0, min(DEEP, p->K / values(p->type)), j, min(wide, p->N - j), i, 0};

    if (i < p->M)
        x.rows = min(p->rows, p->M - i);
    else
        x.words = 0;
    return x;
}

/* A task's rows times its panels of columns, one part of k after the other.
 * `after`: the thread's next task, whose first panels are prefetched. */
INLINE void rows_task(enum plait_dtype type, const struct rows_product *p,
                      const struct rows_place *t, size_t task, size_t after)
{
    struct panel x = first_panel(p, task);

    while (x.words > 0) {
        struct panel next = x;

        next.k0 += x.words * values(type);
        next.words = min(DEEP, (p->K - next.k0) / values(type));
        if (next.words == 0)
            next = first_panel(p, after);
        pack_panels(type, p, t->b, &x);
        panel_rows(type, p, t, &x, &next);
        if (next.k0 == 0)
            return;
        x = next;
    }
}

static size_t tasks(const struct rows_product *p)
{
    return over(p->M, p->rows) * over(p->N, span(p->type));
}

/* Run by every thread of a team. A thread takes its next task before it begins
 * with one, because it prefetches for the next. */
INLINE void rows_team(enum plait_dtype type, const struct rows_product *p,
                      size_t *taken, uint32_t *own)
{
    size_t n = tasks(p), task = __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED);
    struct rows_place t = {
        .sum = (float *)own,
        .b = own + PANELS * ROWS * PANEL,
        .tail = own + PANELS * (ROWS + DEEP) * PANEL,
    };

    while (task < n) {
        size_t after = __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED);

        rows_task(type, p, &t, task, after);
        task = after;
    }
}

/* Set the rows of a task: the most that leave every thread several tasks to
 * balance, and keep the sums of several panels in L2; all rows where sums are
 * over all of k at once. */
static void set_rows(struct rows_product *p, size_t threads)
{
    p->rows = is_widened(p->type) ? ROWS / 2 : ROWS;
    if (p->K / values(p->type) <= DEEP || p->rows > p->M)
        p->rows = over(p->M, HIGH) * HIGH;
    while (threads > 1 && tasks(p) < 8 * threads && p->rows > 8 * HIGH)
        p->rows = over(p->rows, 2 * HIGH) * HIGH;
}

/* Whether rows lie multiples of 4 KB apart, and are read in place. Then word k
 * of each has its place in the same set of the L1 cache, and a block's rows
 * evict each other: they are first copied a cache line further apart. */
static int rows_collide(const struct rows_product *p)
{
    return !is_widened(p->type) && p->K * plait_dtype_size(p->type) % 4096 == 0;
}

static int rows_run(struct plait_queue *q, struct rows_product *p)
{
    size_t threads = (size_t)q->dev->threads, taken = 0;
    size_t own = threads * ROWS_WORDS * sizeof(uint32_t);
    size_t size = plait_dtype_size(p->type);
    const char *a = p->a;
    char *room, *copy = NULL;

    p->lda = p->K + (rows_collide(p) ? 64 / size : 0);
    room = cpu_scratch(q, CPU_SCRATCH_LIBRARY,
                       own + (p->lda > p->K ? p->M * p->lda * size : 0));
    if (room == NULL)
        return -1;
    if (p->lda > p->K)
        p->a = copy = room + own;
    p->prefetch = cpu_prefetches_operands();
    set_rows(p, threads);
#pragma omp parallel num_threads(cpu_threads(q, p->M * p->N * p->K / 64))
    {
        uint32_t *mine =
            (uint32_t *)room + (size_t)omp_get_thread_num() * ROWS_WORDS;

        if (copy != NULL) {
#pragma omp for
            for (size_t i = 0; i < p->M; i++)
                memcpy(copy + i * p->lda * size, a + i * p->K * size,
                       p->K * size);
        }
        if (p->type == PLAIT_F32)
            rows_team(PLAIT_F32, p, &taken, mine);
        else
            rows_team(PLAIT_BF16_T, p, &taken, mine);
    }
    return 0;
}

static int linear_forward(struct plait_queue *q, const struct plait_linear *l)
{
    struct rows_product p = forward_product(l);

    if (!has_blocks(p.type, p.M, p.K))
        return cpu_linear_forward(q, l);
    return rows_run(q, &p);
}

static int linear_backward_input(struct plait_queue *q,
                                 const struct plait_linear_dinp *l)
{
    struct rows_product p = input_product(l);

    if (!has_blocks(p.type, p.M, p.K))
        return cpu_linear_backward_input(q, l);
    return rows_run(q, &p);
}

void CPU_NAME(cpu_fill_block_rows)(struct plait_ops *ops)
{
    ops->linear_forward = linear_forward;
    ops->linear_backward_input = linear_backward_input;
}
