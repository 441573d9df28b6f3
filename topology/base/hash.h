/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_HASH_H
#define PLAIT_TOPOLOGY_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* FNV-1a with 64 bits: fast and the same on every machine, and no protection
 * against somebody who looks for a collision. Initial weights, checkpoints
 * and the node cache depend on its values. */
#define PLAIT_HASH_START UINT64_C(0xcbf29ce484222325)

/* Continue `hash` (PLAIT_HASH_START at first) with `size` bytes. */
uint64_t plait_hash_bytes(uint64_t hash, const void *data, size_t size);
/* The same with the characters of `text`, without its NUL. */
uint64_t plait_hash_text(uint64_t hash, const char *text);

#ifdef __cplusplus
}
#endif
#endif
