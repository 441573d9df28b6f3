/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_TILES_H
#define PLAIT_KERNELS_CPU_TILES_H

/* Products of bf16 matrices by the matrix unit of Intel's cores (AMX), whose
 * eight registers are tiles of 16 rows of 64 bytes. An instruction adds the
 * product of two tiles to a third: c [16,16] of fp32 += a [16,32] . b [32,16],
 * where b lies in words of two values that are neighbours in k, and so does a
 * as it is, row by row.
 *
 * A block of 32 x 32 of the result is in four tiles. Each step of 32 values of
 * k loads two tiles of a and two of b for four instructions of 16 cycles: 4 KB
 * in 64 cycles. Of these one operand comes from L1 and the other, 32 bytes a
 * cycle, from L2, which gives some 48.
 *
 * The two functions and four macros that follow are all that the kernels use of
 * the unit.
 * tests/unit/tile_model.h has them in plain C. */
#include "kernels/cpu/vec.h"
#ifdef __AVX512F__
#include "kernels/cpu/bf16.h"
#endif

enum {
    TILE = 16,                /* rows of a tile, and words of a row */
    TILE_WORDS = TILE * TILE, /* 1 KB */
    STEP = 2 * TILE,          /* values of k that a tile has */
    SIDE = 2 * TILE,          /* rows and columns of a block */
    TILES_DEEP = 16 * STEP,   /* values of k of a block: one operand is 32 KB,
                               * of an L1 cache of 48 KB */
    PANEL_WORDS = SIDE * TILES_DEEP / 2,
    BLOCK_WORDS = SIDE * SIDE
};

#ifndef TILE_MODEL
#include <immintrin.h>

/* Eight tiles of 16 x 64 bytes. Each thread does this before, and
 * tile_release() after its work: a system saves the tiles of a thread that has
 * not released them whenever it takes the core away. */
static inline void tile_configure(void)
{
    static const struct {
        uint8_t palette, start, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes __attribute__((aligned(64))) = {
        .palette = 1,
        .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };

    _tile_loadconfig(&shapes);
}

static inline void tile_release(void)
{
    _tile_release();
}

#define tile_zero(tile) _tile_zero(tile)
/* Compilers do not know what a tile's load reads, and would move stores past
 * it. */
#define tile_load(tile, from, stride)            \
    do {                                         \
        __asm__ volatile("" : : : "memory");     \
        _tile_loadd(tile, from, (long)(stride)); \
    } while (0)
#define tile_store(tile, to, stride)            \
    do {                                        \
        _tile_stored(tile, to, (long)(stride)); \
        __asm__ volatile("" : : : "memory");    \
    } while (0)
#define tile_dot(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

static inline size_t over(size_t n, size_t d)
{
    return (n + d - 1) / d;
}

static inline size_t rounded_up(size_t n, size_t d)
{
    return over(n, d) * d;
}

/* The rows of a block's operand a: `stride` bytes from row to row, `half` to
 * its second tile, `step` to the next values of k. */
struct tile_rows {
    const char *at;
    size_t stride, half, step;
};

/* Where a block's sum comes from (from NULL: begins at 0) and goes to; values
 * from row to row. */
struct tile_sum {
    const float *from;
    float *to;
    size_t from_row, to_row;
};

/* [SIDE, SIDE] of s = a . b over `steps` steps of k. b is packed: a step's two
 * tiles lie together. */
static inline void multiply_tiles(struct tile_sum s, struct tile_rows a,
                                  const uint32_t *b, size_t steps)
{
    const size_t from = s.from_row * sizeof(float);
    const size_t to = s.to_row * sizeof(float);

    if (s.from != NULL) {
        tile_load(0, s.from, from);
        tile_load(1, s.from + TILE, from);
        tile_load(2, s.from + TILE * s.from_row, from);
        tile_load(3, s.from + TILE * s.from_row + TILE, from);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (size_t k = 0; k < steps; k++) {
        tile_load(4, a.at, a.stride);
        tile_load(6, b, 64);
        tile_dot(0, 4, 6);
        tile_load(7, b + TILE_WORDS, 64);
        tile_dot(1, 4, 7);
        tile_load(5, a.at + a.half, a.stride);
        tile_dot(2, 5, 6);
        tile_dot(3, 5, 7);
        a.at += a.step;
        b += 2 * TILE_WORDS;
    }
    tile_store(0, s.to, to);
    tile_store(1, s.to + TILE, to);
    tile_store(2, s.to + TILE * s.to_row, to);
    tile_store(3, s.to + TILE * s.to_row + TILE, to);
}

/* -- packing ------------------------------------------------------------ */

typedef uint32_t tile_row __attribute__((vector_size(64)));

INLINE void transpose_rows(tile_row r[TILE])
{
#ifdef __AVX512F__
    transpose_words((__m512i *)r);
#else
    for (int i = 0; i < TILE; i++)
        for (int k = 0; k < i; k++) {
            uint32_t x = r[i][k];

            r[i][k] = r[k][i];
            r[k][i] = x;
        }
#endif
}

/* A matrix of bf16, from one of its values on: that many rows and columns are
 * left of it, ld values from row to row. */
struct tile_source {
    const uint16_t *x;
    size_t ld, rows, cols;
};

/* A tile of the source's first rows and columns as they are; 0 beyond. */
INLINE void take_rows(tile_row r[TILE], struct tile_source s)
{
    size_t bytes = min(s.cols, STEP) * sizeof(*s.x);

    if (s.rows >= TILE && s.cols >= STEP) {
#pragma GCC unroll 16
        for (size_t i = 0; i < TILE; i++)
            memcpy(&r[i], s.x + i * s.ld, sizeof(*r));
        return;
    }
    memset(r, 0, TILE * sizeof(*r));
    for (size_t i = 0; i < min(s.rows, TILE); i++)
        memcpy(&r[i], s.x + i * s.ld, bytes);
}

/* A tile whose rows have pairs of the source's: word (i, j) is of its values
 * (2i, j) and (2i + 1, j); 0 beyond. */
INLINE void take_pairs(tile_row r[TILE], struct tile_source s)
{
    size_t cols = min(s.cols, TILE);

#pragma GCC unroll 16
    for (size_t i = 0; i < TILE; i++) {
        const uint16_t *x = s.x + 2 * i * s.ld, *next = x + s.ld;

#ifdef __AVX512F__
        __m512i low = _mm512_setzero_si512(), high = low;

        if (2 * i < s.rows)
            low = half_words(x, cols);
        if (2 * i + 1 < s.rows)
            high = _mm512_slli_epi32(half_words(next, cols), 16);
        r[i] = (tile_row)_mm512_or_si512(low, high);
#else
        r[i] = (tile_row){0};
        for (size_t j = 0; j < cols; j++) {
            if (2 * i < s.rows)
                r[i][j] = x[j];
            if (2 * i + 1 < s.rows)
                r[i][j] |= (uint32_t)next[j] << 16;
        }
#endif
    }
}

/* The source from another row and column on. */
INLINE struct tile_source beyond(struct tile_source s, size_t row, size_t col)
{
    return (struct tile_source){s.x + row * s.ld + col, s.ld,
                                s.rows > row ? s.rows - row : 0,
                                s.cols > col ? s.cols - col : 0};
}

/* How a source becomes tiles. */
enum tile_packing {
    COLUMNS_OF_ROWS,    /* b = the source [k, SIDE] */
    COLUMNS_OF_COLUMNS, /* b = the source [SIDE, k] transposed */
    ROWS_OF_COLUMNS     /* a = the source [k, SIDE] transposed */
};

/* dst = `steps` steps of k of one panel, each of two tiles. `how` is a constant
 * in all callers. */
INLINE void pack_tiles(enum tile_packing how, uint32_t *dst,
                       struct tile_source s, size_t steps)
{
    for (size_t k = 0; k < steps; k++)
        for (size_t half = 0; half < SIDE; half += TILE, dst += TILE_WORDS) {
            tile_row r[TILE];

            if (how == COLUMNS_OF_COLUMNS)
                take_rows(r, beyond(s, half, k * STEP));
            else
                take_pairs(r, beyond(s, k * STEP, half));
            if (how != COLUMNS_OF_ROWS)
                transpose_rows(r);
            memcpy(dst, r, sizeof(r));
        }
}

#endif
