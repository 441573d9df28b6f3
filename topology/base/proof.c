/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/proof.h"

#include <string.h>

#include "topology/base/sha256.h"

/* One of the two hashes of RFC 2104: of the key, to each of whose bytes `pad`
 * is added, and a text. */
static void hash_with_key(const unsigned char key[PLAIT_SHA256_BLOCK],
                          unsigned char pad, const void *text, size_t size,
                          unsigned char digest[PLAIT_SHA256_SIZE])
{
    unsigned char padded[PLAIT_SHA256_BLOCK];
    struct plait_sha256 hash;

    for (int i = 0; i < PLAIT_SHA256_BLOCK; i++)
        padded[i] = key[i] ^ pad;
    plait_sha256_begin(&hash);
    plait_sha256_add(&hash, padded, sizeof(padded));
    plait_sha256_add(&hash, text, size);
    plait_sha256_end(&hash, digest);
}

int plait_proof_make(const char *secret, const unsigned char *text, size_t size,
                     unsigned char proof[PLAIT_PROOF_SIZE])
{
    unsigned char key[PLAIT_SHA256_BLOCK] = {0}, inner[PLAIT_SHA256_SIZE];
    size_t length = strlen(secret);
    struct plait_sha256 hash;

    if (length > sizeof(key)) {
        plait_sha256_begin(&hash);
        plait_sha256_add(&hash, secret, length);
        plait_sha256_end(&hash, key);
    } else {
        memcpy(key, secret, length);
    }
    hash_with_key(key, 0x36, text, size, inner);
    hash_with_key(key, 0x5c, inner, sizeof(inner), proof);
    return 0;
}

/* `volatile` keeps the compiler from ending the loop at a difference. */
bool plait_proof_same(const unsigned char a[PLAIT_PROOF_SIZE],
                      const unsigned char b[PLAIT_PROOF_SIZE])
{
    volatile unsigned char differ = 0;

    for (int i = 0; i < PLAIT_PROOF_SIZE; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}
