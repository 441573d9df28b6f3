/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "runtime/data/data.h"

/* A permutation of 0 .. n-1 that is computed, not stored: a Feistel network
 * over the next larger power of four, applied until the result is below n. Each
 * epoch has its own key, so that the sample at any position of the run can be
 * computed directly (resume, any layout) and every epoch has each sample
 * exactly once. */

enum { ROUNDS = 6 };

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t permute(uint64_t x, int half, uint64_t key)
{
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask, swap;

    for (int round = 0; round < ROUNDS; round++) {
        key += UINT64_C(0x9e3779b97f4a7c15);
        swap = right;
        right = left ^ (mix(right + key) & mask);
        left = swap;
    }
    return left << half | right;
}

int64_t plait_sample_index(uint64_t seed, int64_t nsamples, int64_t position)
{
    uint64_t n = (uint64_t)nsamples;
    uint64_t epoch = (uint64_t)position / n, x = (uint64_t)position % n;
    uint64_t key = mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + epoch);
    int half = 1;

    while (half < 31 && (UINT64_C(1) << 2 * half) < n)
        half++;
    do
        x = permute(x, half, key);
    while (x >= n);
    return (int64_t)x;
}

/* A number above 0 and at most 1. */
static double uniform(uint64_t x)
{
    return ((x >> 11) + 1) * 0x1p-53;
}

/* One of the two numbers of Box and Muller's method. */
float plait_sample_weight(uint64_t seed, int64_t position, double deviation)
{
    uint64_t key = mix(seed + UINT64_C(0xd1b54a32d192ed03));
    uint64_t a = mix(key + 2 * (uint64_t)position);
    uint64_t b = mix(key + 2 * (uint64_t)position + 1);
    double normal =
        sqrt(-2 * log(uniform(mix(a)))) * cos(2 * acos(-1.0) * uniform(mix(b)));

    return 1 + deviation * normal;
}
