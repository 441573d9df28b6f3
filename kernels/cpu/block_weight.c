/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>

#include "kernels/cpu/block.h"
#include "kernels/cpu/cpu.h"
#include "kernels/linear.h"

/* The gradient of a linear layer's weight; the order of summation depends on
 * the number of rows alone. */

#define DEEP 512  /* words of k summed at once */
#define STRIP 96  /* rows of the gradient in a task, at most */
#define LONG 1024 /* words of k packed at once: the inputs stay in L3 */

struct weight_product {
    enum plait_dtype type;
    size_t O, C, N; /* dw [O,C] summed over N rows */
    const void *dout, *inp;
    float *dw, *dbias;
    int accumulate;
    size_t strip; /* rows of dw in a task; packed, they fill one or two
                   * PANELs */
    uint32_t *b;  /* inp, packed: [panels][LONG, PANEL] at most */
};

struct strip_place {
    uint32_t *a;     /* [strip / HIGH][n words of k, HIGH]: what a block reads
                      * lies together, so that L1 holds it */
    uint32_t *lines; /* [LINE, strip]: before they are laid out so */
    float *tile;     /* [STRIP, PANEL] */
    float *sums;     /* [STRIP] */
};

enum { STRIP_WORDS = (LONG + LINE + PANEL + 1) * STRIP };
_Static_assert(STRIP / 2 % HIGH == 0, "a strip consists of whole blocks");

/* A strip's rows in one panel of columns of dw. */
struct strip_part {
    size_t o, rows, c, cols; /* of dw */
    int begins, ends;        /* whether these are the first, the last of the
                              * packed words */
    int add, past;           /* add to dw; store past the caches */
    size_t i;                /* the row that is at work */
};

/* dw is read from memory: prefetches the next block of it while one is
 * summed. */
INLINE void prefetch_block(const float *dw, size_t C)
{
    for (size_t i = 0; i < HIGH; i++)
        for (size_t j = 0; j < PANEL; j += LINE)
            __builtin_prefetch(dw + i * C + j, 1);
}

/* One block from row s->i of the part on. Whole blocks are read from dw and
 * stored to it directly, those at an edge by way of the tile. */
INLINE void strip_block(enum plait_dtype type, const struct weight_product *p,
                        const struct strip_place *t, const struct strip_part *s,
                        struct block x, struct fetch *f)
{
    size_t rows = min(HIGH, s->rows - s->i);
    float *dw = p->dw + (s->o + s->i) * p->C + s->c;
    float *tile = t->tile + s->i * PANEL;
    int whole = rows == HIGH && s->cols == PANEL, add = s->begins && s->add;
    struct block_sum sum = {s->begins ? NULL : tile, tile, PANEL, PANEL, 0};

    if (add && whole) {
        sum.from = dw;
        sum.from_row = p->C;
    }
    if (s->ends && whole) {
        sum.to = dw;
        sum.to_row = p->C;
        sum.past = s->past;
    }
    multiply_block(type, sum, x, (struct ahead){0}, f);
    for (size_t r = 0; !whole && s->ends && r < rows; r++)
        for (size_t j = 0; j < s->cols; j++)
            dw[r * p->C + j] =
                tile[r * PANEL + j] + (s->add ? dw[r * p->C + j] : 0);
}

/* The packed words of b that follow those of a part, to be prefetched during
 * its blocks of n words. With narrower vectors the processor's own prefetches
 * are early enough, and these instructions cost up to 12 %. */
INLINE struct fetch fetch_columns(const uint32_t *next, size_t rows, size_t n)
{
    struct fetch f = {.row = (const char *)next,
                      .lines = 1,
                      .stride = 64,
                      .left = DEEP * PANEL / LINE};

    f.each = over(f.left, over(rows, HIGH) * over(n, LINE));
    return f;
}

/* A part, over the n words of k that are packed in t->a and (its columns) in
 * b. */
INLINE void strip_panel(enum plait_dtype type, const struct weight_product *p,
                        const struct strip_place *t, struct strip_part *s,
                        const uint32_t *b, size_t n)
{
    for (size_t k = 0; k < n; k += DEEP) {
        size_t words = min(DEEP, n - k);
        struct fetch f = fetch_columns(b + (k + DEEP) * PANEL, s->rows, words);

        s->begins = k == 0;
        s->ends = k + DEEP >= n;
        for (size_t i = 0; i < s->rows; i += HIGH) {
            if (s->begins && s->add)
                prefetch_block(p->dw + (s->o + i) * p->C + s->c + PANEL, p->C);
            s->i = i;
            strip_block(type, p, t, s,
                        (struct block){(const word *)(t->a + i * n + k * HIGH),
                                       1, HIGH, b + k * PANEL, words},
                        VLEN == 16 ? &f : NULL);
        }
    }
}

/* n words of k, from k0 on: k is handled in such chunks. */
struct chunk {
    size_t k0, n;
    int add, last; /* add to dw; the last chunk */
};

/* Packs the strip's columns of dout for a chunk of k, and sums them. */
INLINE void pack_strip(enum plait_dtype type, const struct weight_product *p,
                       const struct strip_place *t, const struct chunk *k,
                       size_t o)
{
    size_t wide = min(p->strip, p->O - o);

    memset(t->sums, 0, STRIP * sizeof(float));
    for (size_t at_word = 0; at_word < k->n; at_word += LINE) {
        size_t n = min(LINE, k->n - at_word);
        size_t row = (k->k0 + at_word) * values(type);

        pack_rows(type, t->lines, p->strip,
                  (struct rows_of){at(type, p->dout, row * p->O + o), p->O,
                                   min(n * values(type), p->N - row), wide},
                  p->dbias != NULL ? t->sums : NULL);
        for (size_t i = 0; i < p->strip; i += HIGH)
            for (size_t w = 0; w < n; w++)
                memcpy(t->a + i * k->n + (at_word + w) * HIGH,
                       t->lines + w * p->strip + i, HIGH * sizeof(*t->a));
    }
}

/* Sums a chunk of k for the strip of rows o .. of dw. */
INLINE void strip_task(enum plait_dtype type, const struct weight_product *p,
                       const struct strip_place *t, const struct chunk *k,
                       size_t o)
{
    size_t rows = min(p->strip, p->O - o);
    int lines = p->C % LINE == 0 && (uintptr_t)p->dw % 64 == 0;

    pack_strip(type, p, t, k, o);
    for (size_t c = 0; c < p->C; c += PANEL) {
        struct strip_part s = {.o = o,
                               .rows = rows,
                               .c = c,
                               .cols = min(PANEL, p->C - c),
                               .add = k->add,
                               .past = lines && !k->add && k->last};

        strip_panel(type, p, t, &s, p->b + c * k->n, k->n);
    }
    vec_streamed();
    for (size_t i = 0; p->dbias != NULL && i < rows; i++)
        p->dbias[o + i] = t->sums[i] + (k->add ? p->dbias[o + i] : 0);
}

/* The whole product, run by every thread of a team; own [STRIP_WORDS]. */
INLINE void strips_team(enum plait_dtype type, const struct weight_product *p,
                        uint32_t *own)
{
    size_t all = over(p->N, values(type));
    struct strip_place t = {
        .a = own,
        .lines = own + LONG * STRIP,
        .tile = (float *)(own + (LONG + LINE) * STRIP),
        .sums = (float *)(own + (LONG + LINE + PANEL) * STRIP),
    };

    for (size_t k0 = 0; k0 < all; k0 += LONG) {
        struct chunk k = {k0, min(LONG, all - k0), p->accumulate || k0 > 0,
                          all - k0 <= LONG};
        size_t row = k0 * values(type);
        size_t rows = min(k.n * values(type), p->N - row);

#pragma omp for schedule(dynamic)
        for (size_t c = 0; c < p->C; c += PANEL)
            pack_rows(type, p->b + c * k.n, PANEL,
                      (struct rows_of){at(type, p->inp, row * p->C + c), p->C,
                                       rows, min(PANEL, p->C - c)},
                      NULL);
#pragma omp for schedule(dynamic)
        for (size_t o = 0; o < p->O; o += p->strip)
            strip_task(type, p, &t, &k, o);
    }
}

static int strips_run(struct plait_queue *q, struct weight_product *p)
{
    size_t shared =
        over(p->C, PANEL) * PANEL * min(LONG, over(p->N, values(p->type)));
    uint32_t *room = cpu_scratch(
        q, CPU_SCRATCH_LIBRARY,
        (shared + (size_t)q->dev->threads * STRIP_WORDS) * sizeof(*room));

    if (room == NULL)
        return -1;
    p->b = room;
    /* half as high if threads would not have four strips each, for balance */
    p->strip =
        over(p->O, STRIP) < 4 * (size_t)q->dev->threads ? STRIP / 2 : STRIP;
#pragma omp parallel num_threads(cpu_threads(q, p->O * p->C * p->N / 64))
    {
        uint32_t *own =
            room + shared + (size_t)omp_get_thread_num() * STRIP_WORDS;

        if (p->type == PLAIT_F32)
            strips_team(PLAIT_F32, p, own);
        else
            strips_team(PLAIT_BF16_T, p, own);
    }
    return 0;
}

static int linear_backward_weight(struct plait_queue *q,
                                  const struct plait_linear_dw *l)
{
    struct weight_product p = {.type = l->type,
                               .O = l->O,
                               .C = l->C,
                               .N = l->N,
                               .dout = l->dout.x,
                               .inp = l->inp.x,
                               .dw = l->dw,
                               .dbias = l->dbias,
                               .accumulate = l->accumulate};

    if (l->N == 0 || !has_blocks(l->type, l->N, values(l->type)))
        return cpu_linear_backward_weight(q, l);
    return strips_run(q, &p);
}

void CPU_NAME(cpu_fill_block_weight)(struct plait_ops *ops)
{
    ops->linear_backward_weight = linear_backward_weight;
}
