/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_TILE_MODEL_H
#define PLAIT_TESTS_UNIT_TILE_MODEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The instructions of the matrix unit that kernels/cpu/tiles.h uses, in plain
 * C, as Intel's manual defines them: so that processors without the unit can
 * test the kernels, to the bit. A thread that has not configured its tiles
 * aborts, where the processor would trap. */
#define TILE_MODEL

static _Thread_local struct {
    int configured;
    uint32_t word[8][16][16];
} model;

static inline void tile_configure(void)
{
    memset(&model, 0, sizeof(model));
    model.configured = 1;
}

static inline void tile_release(void)
{
    model.configured = 0;
}

static inline void tile_must_be_configured(void)
{
    if (!model.configured)
        abort();
}

static inline void tile_zero(int t)
{
    tile_must_be_configured();
    memset(model.word[t], 0, sizeof(model.word[t]));
}

static inline void tile_load(int t, const void *from, size_t stride)
{
    tile_must_be_configured();
    for (size_t i = 0; i < 16; i++)
        memcpy(model.word[t][i], (const char *)from + i * stride, 64);
}

static inline void tile_store(int t, void *to, size_t stride)
{
    tile_must_be_configured();
    for (size_t i = 0; i < 16; i++)
        memcpy((char *)to + i * stride, model.word[t][i], 64);
}

/* Numbers too small for a normal fp32 are 0, as operands and as results. */
static inline float tile_flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* The fp32 number whose upper half is a bf16. */
static inline float tile_number(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return tile_flushed(x);
}

/* The even and the odd values of k are summed apart, by fused multiplications
 * that begin at 0; then both are added, and then the old value. */
static inline void tile_dot(int c, int a, int b)
{
    tile_must_be_configured();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float sum[2] = {0}, all;

            for (int k = 0; k < 16; k++) {
                uint32_t x = model.word[a][m][k], y = model.word[b][k][n];

                sum[0] = tile_flushed(
                    fmaf(tile_number(x << 16), tile_number(y << 16), sum[0]));
                sum[1] =
                    tile_flushed(fmaf(tile_number(x & 0xffff0000),
                                      tile_number(y & 0xffff0000), sum[1]));
            }
            all = tile_number(model.word[c][m][n]) +
                  tile_flushed(sum[0] + sum[1]);
            all = tile_flushed(all);
            memcpy(&model.word[c][m][n], &all, sizeof(all));
        }
}

#endif
