/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_BPE_PRIVATE_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_BPE_PRIVATE_H

#include <string.h>

#include "runtime/data/tokenizer/bpe.h"

struct merge {
    uint64_t key;  /* 0: none */
    uint32_t rank; /* the lowest is merged first */
    int32_t merged;
};

struct plait_bpe {
    int vocab;
    struct {
        size_t at, size;
    } * texts; /* [vocab] ranges of `bytes` */
    struct plait_buffer bytes;
    int32_t byte[256];
    struct merge *merges; /* hash table with open addressing */
    size_t merge_mask, nmerges, most;
    int32_t *words; /* hash table of tokens by their bytes; -1: none */
    size_t word_mask;
    bool whole_words;
    struct plait_bpe_characters characters;
    int32_t fallback[256];
};

/* Never 0. */
static inline uint64_t merge_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left + 1) << 32 | (uint32_t)right;
}

static inline size_t hash_key(uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key ^ key >> 32);
}

static inline size_t hash_bytes(const void *text, size_t size)
{
    const unsigned char *p = text;
    uint64_t hash = size, part;

    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&part, p, 8);
        hash = (hash ^ part) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    part = 0;
    memcpy(&part, p, size);
    hash = (hash ^ part) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash ^ hash >> 32);
}

#endif
