/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/sha256.h"

#include <string.h>

/* Names as in FIPS 180-4, sections 4.1.2 and 6.2. */

/* The first 32 bits of the fractional parts of the cube roots of the first 64
 * primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void expand(const unsigned char *block, uint32_t w[64])
{
    for (int t = 0; t < 16; t++, block += 4)
        w[t] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 |
               (uint32_t)block[2] << 8 | block[3];
    for (int t = 16; t < 64; t++) {
        uint32_t x = w[t - 15], y = w[t - 2];

        w[t] = w[t - 16] + w[t - 7] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) +
               (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
}

static void add_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8]; /* a to h */

    expand(block, w);
    memcpy(s, state, sizeof(s));
    for (int t = 0; t < 64; t++) {
        uint32_t a = s[0], e = s[4];
        uint32_t t1 = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                      ((e & s[5]) ^ (~e & s[6])) + K[t] + w[t];
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                      ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void plait_sha256_begin(struct plait_sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                      0xa54ff53a, 0x510e527f, 0x9b05688c,
                                      0x1f83d9ab, 0x5be0cd19};

    memcpy(hash->state, start, sizeof(start));
    hash->size = 0;
}

void plait_sha256_add(struct plait_sha256 *hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    while (size) {
        size_t used = hash->size % PLAIT_SHA256_BLOCK;
        size_t n = PLAIT_SHA256_BLOCK - used;

        n = n < size ? n : size;
        memcpy(hash->block + used, bytes, n);
        hash->size += n;
        bytes += n;
        size -= n;
        if (used + n == PLAIT_SHA256_BLOCK)
            add_block(hash->state, hash->block);
    }
}

/* A bit 1, bits 0, and the message's length in bits as the last 8 bytes. */
void plait_sha256_end(struct plait_sha256 *hash,
                      unsigned char digest[PLAIT_SHA256_SIZE])
{
    static const unsigned char fill[PLAIT_SHA256_BLOCK] = {0x80};
    size_t used = hash->size % PLAIT_SHA256_BLOCK;
    uint64_t bits = hash->size * 8;
    unsigned char length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    plait_sha256_add(hash, fill, (used < 56 ? 56 : 120) - used);
    plait_sha256_add(hash, length, sizeof(length));
    for (int i = 0; i < PLAIT_SHA256_SIZE; i++)
        digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - i % 4 * 8));
}
