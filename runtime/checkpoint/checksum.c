/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/checksum.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* Bytes stand for a polynomial over two elements, the lowest bit of the first
 * byte for its highest power, and the sum for its remainder. What lies D bits
 * further on counts x^D times as much, so 16 bytes are added to those that
 * follow at a distance of D bits after a multiplication with x^D modulo the
 * sum's polynomial: of the first 8 bytes with x^(D+32), of the others with
 * x^(D-32), each with its bits reversed in 33. */
#define FAR_FIRST UINT64_C(0x154442bd4) /* D of 512 bits */
#define FAR_OTHER UINT64_C(0x1c6e41596)
#define NEAR_FIRST UINT64_C(0x1751997d0) /* of 128 */
#define NEAR_OTHER UINT64_C(0x0ccaa009e)
enum { LANES = 4, LANE = 16, LEAST = LANES * LANE };

__attribute__((target("pclmul,sse2"))) static inline __m128i
move_on(__m128i x, __m128i by, __m128i next)
{
    __m128i first = _mm_clmulepi64_si128(x, by, 0x00);
    __m128i other = _mm_clmulepi64_si128(x, by, 0x11);

    return _mm_xor_si128(_mm_xor_si128(first, other), next);
}

static inline __attribute__((target("sse2"))) __m128i
load_lane(const unsigned char *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Of whole lanes, LEAST bytes or more. */
__attribute__((target("pclmul,sse2"))) static uint32_t
sum_lanes(uint32_t crc, const unsigned char *at, size_t size)
{
    const __m128i far =
        _mm_set_epi64x((long long)FAR_OTHER, (long long)FAR_FIRST);
    const __m128i near =
        _mm_set_epi64x((long long)NEAR_OTHER, (long long)NEAR_FIRST);
    unsigned char rest[LANE];
    __m128i x[LANES], sum;
    int i;

    for (i = 0; i < LANES; i++)
        x[i] = load_lane(at + i * LANE);
    /* The sum so far counts as if it were added to the first bytes; zlib's
     * has its bits inverted. */
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)~crc));
    for (at += LEAST, size -= LEAST; size >= LEAST; at += LEAST, size -= LEAST)
        for (i = 0; i < LANES; i++)
            x[i] = move_on(x[i], far, load_lane(at + i * LANE));
    sum = x[0];
    for (i = 1; i < LANES; i++)
        sum = move_on(sum, near, x[i]);
    for (; size >= LANE; at += LANE, size -= LANE)
        sum = move_on(sum, near, load_lane(at));
    _mm_storeu_si128((__m128i *)(void *)rest, sum);
    return (uint32_t)crc32_z(UINT32_C(0xffffffff), rest, LANE);
}

uint32_t plait_checksum(uint32_t crc, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    size_t whole = size / LANE * LANE;

    if (whole >= LEAST && __builtin_cpu_supports("pclmul")) {
        crc = sum_lanes(crc, at, whole);
        at += whole;
        size -= whole;
    }
    return size ? (uint32_t)crc32_z(crc, at, size) : crc;
}
#else
uint32_t plait_checksum(uint32_t crc, const void *bytes, size_t size)
{
    return size ? (uint32_t)crc32_z(crc, bytes, size) : crc;
}
#endif
