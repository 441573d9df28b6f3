/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/cpu.h"

/* The products of a linear layer in bf16 by vdpbf16ps, for processors that
 * have it and no matrix unit. Blocks follow Goto and van de Geijn, "Anatomy of
 * High-Performance Matrix Multiplication" (2008); what the products feed
 * (bias, GELU, the sum with a residual) is done while a block is in L2.
 * Each element is summed in an order that depends on k alone. */
#define HIGH 8              /* rows, and */
#define WIDE 3              /* vectors of columns in registers */
#define PANEL (WIDE * VLEN) /* columns */
#define DEEP 192            /* words of k: a packed panel stays in L1 */
#define AHEAD 256           /* values: where the packers prefetch */
#define ROWS 512            /* rows of a task, at most; of HIGH */
#define GROUP 4             /* panels of a task, at most */
#define STRIP 64            /* rows of the gradient in a task; of HIGH */
#define LONG 1024           /* words of k packed for a strip at once */

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t over(size_t n, size_t d)
{
    return (n + d - 1) / d;
}

/* Where a block's sum begins (from NULL: at 0) and where it goes; `past` the
 * caches if it is not wanted again soon, in whole lines. */
struct block_sum {
    const float *from;
    float *to;
    size_t from_row, to_row;
    int past;
};

/* [HIGH, PANEL] of s = a . b over n words of k; word (i, k) of a lies at
 * i * row + k * col, b is packed [n, PANEL]. */
INLINE void block(struct block_sum s, const word *a, size_t row, size_t col,
                  const uint32_t *b, size_t n)
{
    __m512 sum[HIGH][WIDE];

#pragma GCC unroll 8
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++)
            sum[i][j] = s.from != NULL
                            ? _mm512_loadu_ps(s.from + (size_t)i * s.from_row +
                                              j * VLEN)
                            : _mm512_setzero_ps();
    for (size_t k = 0; k < n; k++) {
        __m512bh y[WIDE];

#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++)
            y[j] = (__m512bh)_mm512_loadu_si512(b + k * PANEL + j * VLEN);
#pragma GCC unroll 8
        for (int i = 0; i < HIGH; i++) {
            __m512bh x =
                (__m512bh)_mm512_set1_epi32((int)a[(size_t)i * row + k * col]);

#pragma GCC unroll 3
            for (int j = 0; j < WIDE; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], y[j], x);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++) {
            float *to = s.to + (size_t)i * s.to_row + j * VLEN;

            if (s.past)
                _mm512_stream_ps(to, sum[i][j]);
            else
                _mm512_storeu_ps(to, sum[i][j]);
        }
}

/* -- packing ------------------------------------------------------------ */

/* dst [n, PANEL] = the first n words of `cols` rows of b, turned over; the
 * columns beyond are 0. */
static void pack_turned(uint32_t *dst, const uint16_t *b, size_t ldb,
                        size_t cols, size_t n)
{
    for (size_t j = 0; j < PANEL; j += 16)
        for (size_t k = 0; k < n; k += 16) {
            __m512i r[16];

            for (size_t i = 0; i < 16; i++)
                r[i] = j + i < cols
                           ? _mm512_maskz_loadu_epi32(first(n - k),
                                                      b + (j + i) * ldb + 2 * k)
                           : _mm512_setzero_si512();
            for (size_t i = 0; i < 16; i++)
                __builtin_prefetch(b + (j + i) * ldb + 2 * k + AHEAD);
            turn(r);
            for (size_t i = 0; i < min(16, n - k); i++)
                _mm512_storeu_si512(dst + (k + i) * PANEL + j, r[i]);
        }
}

/* Both values of each word added to sum */
INLINE __m512 add_words(__m512 sum, __m512i words)
{
    __m512i high = _mm512_and_si512(words, _mm512_set1_epi32(-65536));

    sum += _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    return sum + _mm512_castsi512_ps(high);
}

/* 32 columns of what pack_rows() does, a line of each row at once. */
INLINE void pack_wide(uint32_t *dst, size_t width, const uint16_t *b,
                      size_t ldb, size_t rows, float *sums)
{
    /* Word i: column i of the low row, and (32 on) of the high one */
    __m512i left = _mm512_set_epi32(
        0x002f000f, 0x002e000e, 0x002d000d, 0x002c000c, 0x002b000b, 0x002a000a,
        0x00290009, 0x00280008, 0x00270007, 0x00260006, 0x00250005, 0x00240004,
        0x00230003, 0x00220002, 0x00210001, 0x00200000);
    __m512i right = _mm512_add_epi16(left, _mm512_set1_epi16(16));
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};

    for (size_t k = 0; k < rows; k += 2) {
        const uint16_t *x = b + k * ldb;
        __m512i low = _mm512_loadu_si512(x), high = _mm512_setzero_si512();
        __m512i words[2];

        if (k + 1 < rows)
            high = _mm512_loadu_si512(x + ldb);
        __builtin_prefetch(x + 16 * ldb);
        __builtin_prefetch(x + 17 * ldb);
        words[0] = _mm512_permutex2var_epi16(low, left, high);
        words[1] = _mm512_permutex2var_epi16(low, right, high);
        _mm512_storeu_si512(dst + k / 2 * width, words[0]);
        _mm512_storeu_si512(dst + k / 2 * width + 16, words[1]);
        if (sums != NULL) {
            sum[0] = add_words(sum[0], words[0]);
            sum[1] = add_words(sum[1], words[1]);
        }
    }
    for (size_t k = 0; sums != NULL && k < 2; k++)
        _mm512_storeu_ps(sums + 16 * k,
                         _mm512_loadu_ps(sums + 16 * k) + sum[k]);
}

/* dst [n, width] = words of rows (2k, 2k + 1) of b, of which there are
 * `rows`; columns beyond `cols` are 0. sums [width] (NULL: none) += the
 * columns. */
static void pack_rows(uint32_t *dst, size_t width, const uint16_t *b,
                      size_t ldb, size_t rows, size_t cols, float *sums)
{
    size_t j = 0;

    for (; j + 32 <= min(width, cols); j += 32)
        if (sums != NULL)
            pack_wide(dst + j, width, b + j, ldb, rows, sums + j);
        else
            pack_wide(dst + j, width, b + j, ldb, rows, NULL);
    for (; j < width; j += 16) {
        size_t n = j < cols ? cols - j : 0;
        __m512 sum = _mm512_setzero_ps();

        for (size_t k = 0; k < rows; k += 2) {
            const uint16_t *x = b + k * ldb + j;
            __m512i words = half_words(x, n);

            if (k + 1 < rows)
                words = _mm512_or_si512(
                    words, _mm512_slli_epi32(half_words(x + ldb, n), 16));
            __builtin_prefetch(x + 16 * ldb);
            __builtin_prefetch(x + 17 * ldb);
            _mm512_storeu_si512(dst + k / 2 * width + j, words);
            sum = add_words(sum, words);
        }
        if (sums != NULL)
            _mm512_storeu_ps(sums + j, _mm512_loadu_ps(sums + j) + sum);
    }
}

/* -- rows times a weight: forward, and the gradient of the input --------- */

struct rows_product {
    size_t M, N, K; /* K even */
    const uint16_t *a, *b;
    int turned;                   /* b is [N,K], not [K,N] */
    const uint16_t *bias, *slope; /* multiply by gelu'(slope[i]) */
    uint16_t *dst, *pre;
    int gelu, accumulate;
    size_t rows, group; /* of a task: rows, panels */
};

struct rows_place {
    float *sum;     /* [GROUP, ROWS, PANEL] */
    uint32_t *b;    /* [DEEP, PANEL] */
    uint32_t *tail; /* [HIGH, DEEP] */
};

enum { ROWS_WORDS = ROWS * GROUP * PANEL + DEEP * PANEL + HIGH * DEEP };

/* What is left of the rows after blocks of HIGH, with zeros below. */
static void copy_tail(uint32_t *tail, const uint16_t *a, size_t lda,
                      size_t rows, size_t n)
{
    memset(tail, 0, HIGH * DEEP * sizeof(*tail));
    for (size_t i = 0; i < rows; i++)
        memcpy(tail + i * DEEP, a + i * lda, n * sizeof(*tail));
}

/* Rows i .. of columns j .., summed over all of k and still in L1. What is
 * to be done with them is constant wherever this is used. */
INLINE void finish_as(int gelu, int slope, int accumulate,
                      const struct rows_product *p, const float *sum, size_t i,
                      size_t rows, size_t j, size_t cols)
{
    for (size_t c = 0; c < cols; c += VLEN) {
        size_t n = min(VLEN, cols - c), to = i * p->N + j + c;
        vec bias = {0};

        if (p->bias != NULL)
            bias = vec_load(PLAIT_BF16_T, p->bias, j + c, n);
        for (size_t r = 0; r < rows; r++, to += p->N) {
            vec x = vec_load(PLAIT_F32, sum, r * PANEL + c, VLEN) + bias;

            if (gelu && p->pre != NULL)
                vec_store(PLAIT_BF16_T, p->pre, to, n, x);
            if (gelu)
                x = gelu_near(vec_rounded(PLAIT_BF16_T, x));
            if (slope)
                x *= gelu_slope_near(vec_load(PLAIT_BF16_T, p->slope, to, n));
            if (accumulate)
                x += vec_load(PLAIT_BF16_T, p->dst, to, n);
            vec_store(PLAIT_BF16_T, p->dst, to, n, x);
        }
    }
}

static void finish(const struct rows_product *p, const float *sum, size_t i,
                   size_t rows, size_t j, size_t cols)
{
    if (p->gelu)
        finish_as(1, 0, 0, p, sum, i, rows, j, cols);
    else if (p->slope != NULL && p->accumulate)
        finish_as(0, 1, 1, p, sum, i, rows, j, cols);
    else if (p->slope != NULL)
        finish_as(0, 1, 0, p, sum, i, rows, j, cols);
    else if (p->accumulate)
        finish_as(0, 0, 1, p, sum, i, rows, j, cols);
    else
        finish_as(0, 0, 0, p, sum, i, rows, j, cols);
}

static void pack_panel(const struct rows_product *p, uint32_t *dst, size_t k0,
                       size_t k, size_t j, size_t cols)
{
    if (p->turned)
        pack_turned(dst, p->b + j * p->K + k0, p->K, cols, k / 2);
    else
        pack_rows(dst, PANEL, p->b + k0 * p->N + j, p->N, k, cols, NULL);
}

/* The panel that is packed after the one at work; k 0: none. */
struct next_panel {
    size_t k0, k, j;
};

/* Its share part / parts on the way from memory to L2, which the sums leave
 * idle. */
static void prefetch_panel(const struct rows_product *p,
                           const struct next_panel *next, size_t part,
                           size_t parts)
{
    size_t high = p->turned ? min(PANEL, p->N - next->j) : next->k;
    size_t wide = p->turned ? next->k : PANEL, ld = p->turned ? p->K : p->N;
    const uint16_t *b = p->b + (p->turned ? next->j * p->K + next->k0
                                          : next->k0 * p->N + next->j);

    if (next->k == 0)
        return;
    for (size_t i = high * part / parts; i < high * (part + 1) / parts; i++)
        for (size_t j = 0; j < wide; j += 32)
            __builtin_prefetch(b + i * ld + j, 0, 2);
}

/* `rows` rows from i0 of the columns from j, over k of the sum. */
static void panel_rows(const struct rows_product *p, const struct rows_place *t,
                       float *sum, size_t i0, size_t rows, size_t j, size_t k0,
                       size_t k, const struct next_panel *next)
{
    const uint16_t *a = p->a + i0 * p->K + k0;
    size_t cols = min(PANEL, p->N - j);
    int whole = k == p->K, last = k0 + k == p->K;

    for (size_t i = 0; i < rows; i += HIGH) {
        float *c = whole ? sum : sum + i * PANEL;
        size_t high = min(HIGH, rows - i);
        struct block_sum s = {k0 > 0 ? c : NULL, c, PANEL, PANEL, 0};

        prefetch_panel(p, next, i / HIGH, over(rows, HIGH));
        if (high == HIGH)
            block(s, (const word *)(a + i * p->K), p->K / 2, 1, t->b, k / 2);
        else
            block(s, t->tail, DEEP, 1, t->b, k / 2);
        if (last)
            finish(p, c, i0 + i, high, j, cols);
    }
}

/* `rows` rows from i0, columns j0 .. end - 1 */
static void rows_task(const struct rows_product *p, const struct rows_place *t,
                      size_t i0, size_t rows, size_t j0, size_t end)
{
    size_t whole = rows / HIGH * HIGH;

    for (size_t k0 = 0; k0 < p->K; k0 += 2 * DEEP) {
        size_t k = min(2 * DEEP, p->K - k0);

        if (whole < rows)
            copy_tail(t->tail, p->a + (i0 + whole) * p->K + k0, p->K,
                      rows - whole, k / 2);
        for (size_t j = j0; j < end; j += PANEL) {
            struct next_panel next = {k0, k, j + PANEL};

            if (next.j >= end)
                next = (struct next_panel){
                    k0 + k, min(2 * DEEP, p->K - k0 - k), j0};
            pack_panel(p, t->b, k0, k, j, min(PANEL, end - j));
            panel_rows(p, t, t->sum + (j - j0) * ROWS, i0, rows, j, k0, k,
                       &next);
        }
    }
}

static size_t tasks(const struct rows_product *p)
{
    return over(p->M, p->rows) * over(p->N, p->group * PANEL);
}

/* As large as leaves every thread some tasks to choose from. */
static void rows_cut(struct rows_product *p, int threads)
{
    size_t enough = threads > 1 ? 4 * (size_t)threads : 1;

    p->rows = ROWS;
    p->group = GROUP;
    while (tasks(p) < enough && p->group > 1)
        p->group /= 2;
    while (tasks(p) < enough && p->rows > 64)
        p->rows /= 2;
}

static int rows_run(struct plait_queue *q, struct rows_product *p)
{
    size_t wide = 0, n = 0;
    uint32_t *room =
        cpu_scratch(q, CPU_SCRATCH_LIBRARY,
                    (size_t)q->dev->threads * ROWS_WORDS * sizeof(*room));

    if (room == NULL)
        return -1;
    rows_cut(p, q->dev->threads);
    wide = p->group * PANEL;
    n = tasks(p);
#pragma omp parallel for num_threads(cpu_threads(q, p->M * p->N * p->K / 64))  \
    schedule(dynamic)
    for (size_t task = 0; task < n; task++) {
        size_t i0 = task % over(p->M, p->rows) * p->rows;
        size_t j0 = task / over(p->M, p->rows) * wide;
        uint32_t *own = room + (size_t)omp_get_thread_num() * ROWS_WORDS;
        struct rows_place t = {
            .sum = (float *)own,
            .b = own + ROWS * GROUP * PANEL,
            .tail = own + ROWS * GROUP * PANEL + DEEP * PANEL,
        };

        rows_task(p, &t, i0, min(p->rows, p->M - i0), j0, min(j0 + wide, p->N));
    }
    return 0;
}

static int linear_forward(struct plait_queue *q, void *out, void *pre,
                          const void *inp, struct plait_weight *w,
                          const void *bias, enum plait_activation act, size_t N)
{
    struct rows_product p = {.M = N,
                             .N = w->O,
                             .K = w->C,
                             .a = inp,
                             .b = w->data,
                             .turned = 1,
                             .bias = bias,
                             .dst = out,
                             .pre = pre,
                             .gelu = act == PLAIT_ACT_GELU};

    if (w->type != PLAIT_BF16_T || w->C % 2 != 0)
        return cpu_linear_forward(q, out, pre, inp, w, bias, act, N);
    return rows_run(q, &p);
}

static int linear_backward_input(struct plait_queue *q, void *dinp,
                                 const void *dout, struct plait_weight *w,
                                 enum plait_activation act, const void *pre,
                                 int accumulate, size_t N)
{
    struct rows_product p = {.M = N,
                             .N = w->C,
                             .K = w->O,
                             .a = dout,
                             .b = w->data,
                             .dst = dinp,
                             .slope = act == PLAIT_ACT_GELU ? pre : NULL,
                             .accumulate = accumulate};

    if (w->type != PLAIT_BF16_T || w->O % 2 != 0)
        return cpu_linear_backward_input(q, dinp, dout, w, act, pre, accumulate,
                                         N);
    return rows_run(q, &p);
}

/* -- the gradient of a weight -------------------------------------------- */

struct weight_product {
    size_t O, C, N; /* dw [O,C] summed over N rows */
    const uint16_t *dout, *inp;
    float *dw, *dbias;
    int accumulate;
    uint32_t *b; /* inp packed: [panels][words of N, PANEL] */
};

struct strip_place {
    uint32_t *a; /* [LONG, STRIP] */
    float *tile; /* [STRIP, PANEL] */
    float *sums; /* [STRIP] */
};

enum { STRIP_WORDS = LONG * STRIP + STRIP * PANEL + STRIP };

/* One strip's part in one panel of columns, over some of its words of k. */
struct strip_part {
    size_t o, rows, c, cols; /* of dw */
    int begins, ends;        /* the words packed at once */
    int add, past;           /* to dw; past the caches */
};

/* dw comes from memory: ask for a block while the one before is summed. */
static void prefetch_block(const float *dw, size_t C)
{
    for (size_t i = 0; i < HIGH; i++)
        for (size_t j = 0; j < PANEL; j += 16)
            __builtin_prefetch(dw + i * C + j, 1);
}

/* Rows i .. of the part: between dw and the tile, whole or at an edge. */
static void strip_block(const struct weight_product *p,
                        const struct strip_place *t,
                        const struct strip_part *s, size_t i, const word *a,
                        const uint32_t *b, size_t n)
{
    size_t rows = min(HIGH, s->rows - i);
    float *dw = p->dw + (s->o + i) * p->C + s->c, *tile = t->tile + i * PANEL;
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
    block(sum, a, 1, STRIP, b, n);
    for (size_t r = 0; !whole && s->ends && r < rows; r++)
        for (size_t j = 0; j < s->cols; j++)
            dw[r * p->C + j] =
                tile[r * PANEL + j] + (s->add ? dw[r * p->C + j] : 0);
}

/* A part over the n words of k packed in t->a and, for its columns, in b. */
static void strip_panel(const struct weight_product *p,
                        const struct strip_place *t, struct strip_part *s,
                        const uint32_t *b, size_t n)
{
    for (size_t k = 0; k < n; k += DEEP) {
        s->begins = k == 0;
        s->ends = k + DEEP >= n;
        for (size_t i = 0; i < s->rows; i += HIGH) {
            if (s->begins && s->add)
                prefetch_block(p->dw + (s->o + i) * p->C + s->c + PANEL, p->C);
            strip_block(p, t, s, i, (const word *)(t->a + k * STRIP + i),
                        b + k * PANEL, min(DEEP, n - k));
        }
    }
}

/* Rows o .. of dw, at most STRIP */
static void strip_task(const struct weight_product *p,
                       const struct strip_place *t, size_t o)
{
    size_t rows = min(STRIP, p->O - o), all = over(p->N, 2);
    int lines = p->C % 16 == 0 && (uintptr_t)p->dw % 64 == 0;

    memset(t->sums, 0, STRIP * sizeof(float));
    for (size_t k0 = 0; k0 < all; k0 += LONG) {
        size_t n = min(LONG, all - k0);
        int add = p->accumulate || k0 > 0;

        pack_rows(t->a, STRIP, p->dout + 2 * k0 * p->O + o, p->O,
                  min(2 * n, p->N - 2 * k0), rows,
                  p->dbias != NULL ? t->sums : NULL);
        for (size_t c = 0; c < p->C; c += PANEL) {
            struct strip_part s = {.o = o,
                                   .rows = rows,
                                   .c = c,
                                   .cols = min(PANEL, p->C - c),
                                   .add = add,
                                   .past = lines && !add && n == all};

            strip_panel(p, t, &s, p->b + c * all + k0 * PANEL, n);
        }
    }
    _mm_sfence(); /* what went past the caches is in memory */
    for (size_t i = 0; p->dbias != NULL && i < rows; i++)
        p->dbias[o + i] =
            t->sums[i] + (p->accumulate ? p->dbias[o + i] : 0);
}

static int strips_run(struct plait_queue *q, struct weight_product *p)
{
    size_t all = over(p->N, 2), panels = over(p->C, PANEL);
    size_t shared = panels * all * PANEL, strips = over(p->O, STRIP);
    uint32_t *room = cpu_scratch(
        q, CPU_SCRATCH_LIBRARY,
        (shared + (size_t)q->dev->threads * STRIP_WORDS) * sizeof(*room));

    if (room == NULL)
        return -1;
    p->b = room;
#pragma omp parallel num_threads(cpu_threads(q, p->O * p->C * p->N / 64))
    {
        uint32_t *own =
            room + shared + (size_t)omp_get_thread_num() * STRIP_WORDS;
        struct strip_place t = {
            .a = own,
            .tile = (float *)(own + LONG * STRIP),
            .sums = (float *)(own + LONG * STRIP + STRIP * PANEL),
        };

#pragma omp for schedule(dynamic)
        for (size_t j = 0; j < panels; j++)
            pack_rows(p->b + j * all * PANEL, PANEL, p->inp + j * PANEL, p->C,
                      p->N, min(PANEL, p->C - j * PANEL), NULL);
#pragma omp for schedule(dynamic)
        for (size_t s = 0; s < strips; s++)
            strip_task(p, &t, s * STRIP);
    }
    return 0;
}

static int linear_backward_weight(struct plait_queue *q, enum plait_dtype type,
                                  float *dw, float *dbias, const void *dout,
                                  const void *inp, int accumulate, size_t N,
                                  size_t O, size_t C)
{
    struct weight_product p = {.O = O,
                               .C = C,
                               .N = N,
                               .dout = dout,
                               .inp = inp,
                               .dw = dw,
                               .dbias = dbias,
                               .accumulate = accumulate};

    if (type != PLAIT_BF16_T || N == 0)
        return cpu_linear_backward_weight(q, type, dw, dbias, dout, inp,
                                          accumulate, N, O, C);
    return strips_run(q, &p);
}

void cpu_fill_bf16(struct plait_ops *ops)
{
    ops->linear_forward = linear_forward;
    ops->linear_backward_input = linear_backward_input;
    ops->linear_backward_weight = linear_backward_weight;
}
