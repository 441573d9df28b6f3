/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_SHA256_H
#define PLAIT_TOPOLOGY_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* SHA-256 as FIPS 180-4 defines it. It is written here so that the Slurm
 * plugin, which is loaded on every node, needs no cryptographic library. */

enum { PLAIT_SHA256_SIZE = 32, PLAIT_SHA256_BLOCK = 64 };

struct plait_sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes added so far */
    unsigned char block[PLAIT_SHA256_BLOCK];
};

void plait_sha256_begin(struct plait_sha256 *hash);
void plait_sha256_add(struct plait_sha256 *hash, const void *data, size_t size);
/* The hash may only be begun again afterwards. */
void plait_sha256_end(struct plait_sha256 *hash,
                      unsigned char digest[PLAIT_SHA256_SIZE]);

#endif
