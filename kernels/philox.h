/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_PHILOX_H
#define PLAIT_KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PLAIT_RANDOM_INLINE static __host__ __device__ inline
#else
#define PLAIT_RANDOM_INLINE static inline
#endif

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011): four random words as a function of a key and a counter, of which
 * `low` and `high` are the two halves. */
PLAIT_RANDOM_INLINE void plait_philox(uint64_t key, uint64_t low, uint64_t high,
                                      uint32_t out[4])
{
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
    uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * c0;
        uint64_t b = (uint64_t)0xCD9E8D57 * c2;

        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
