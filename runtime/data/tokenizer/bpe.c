/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/data/tokenizer/bpe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/bpe_private.h"

static size_t power_above(size_t n)
{
    size_t size = 16;

    while (size < n)
        size *= 2;
    return size;
}

struct plait_bpe *plait_bpe_create(int vocab, size_t nmerges)
{
    struct plait_bpe *bpe = calloc(1, sizeof(*bpe));
    size_t room = power_above(nmerges * 2 + 1);

    if (!bpe)
        return NULL;
    bpe->vocab = vocab;
    bpe->most = nmerges;
    bpe->merge_mask = room - 1;
    bpe->texts = calloc((size_t)vocab + 1, sizeof(*bpe->texts));
    bpe->merges = calloc(room, sizeof(*bpe->merges));
    if (bpe->texts && bpe->merges)
        return bpe;
    plait_bpe_destroy(bpe);
    return NULL;
}

void plait_bpe_destroy(struct plait_bpe *bpe)
{
    int saved = errno;

    if (!bpe)
        return;
    free(bpe->texts);
    free(bpe->merges);
    free(bpe->words);
    free(bpe->bytes.data);
    free(bpe);
    errno = saved;
}

int plait_bpe_set_text(struct plait_bpe *bpe, int32_t id, const char *text,
                       size_t size)
{
    size_t at = bpe->bytes.size;

    if (plait_buffer_add(&bpe->bytes, text, size) < 0)
        return -1;
    bpe->texts[id].at = at;
    bpe->texts[id].size = size;
    return 0;
}

int plait_bpe_add_merge(struct plait_bpe *bpe, int32_t left, int32_t right,
                        int32_t merged)
{
    return plait_bpe_add_ranked(bpe, (uint32_t)bpe->nmerges, left, right,
                                merged);
}

int plait_bpe_add_ranked(struct plait_bpe *bpe, uint32_t rank, int32_t left,
                         int32_t right, int32_t merged)
{
    uint64_t key = merge_key(left, right);
    size_t at = hash_key(key) & bpe->merge_mask;

    if (bpe->nmerges >= bpe->most) {
        errno = EOVERFLOW;
        return -1;
    }
    while (bpe->merges[at].key && bpe->merges[at].key != key)
        at = (at + 1) & bpe->merge_mask;
    bpe->merges[at] = (struct merge){key, rank, merged};
    bpe->nmerges++;
    return 0;
}

/* The slot of a text in the table of words: its own, or a free one. */
static size_t word_place(const struct plait_bpe *bpe, const char *text,
                         size_t size)
{
    size_t at = hash_bytes(text, size) & bpe->word_mask, n;
    const char *other;

    while (bpe->words[at] >= 0) {
        other = plait_bpe_text(bpe, bpe->words[at], &n);
        if (n == size && !memcmp(other, text, n))
            break;
        at = (at + 1) & bpe->word_mask;
    }
    return at;
}

void plait_bpe_set_characters(struct plait_bpe *bpe,
                              const struct plait_bpe_characters *characters)
{
    bpe->characters = *characters;
}

static int find_fallback(struct plait_bpe *bpe)
{
    char name[8];

    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)i);
        bpe->fallback[i] = plait_bpe_find(bpe, name, 6);
        if (bpe->fallback[i] < 0) {
            errno = EINVAL;
            return -1;
        }
    }
    return 0;
}

int plait_bpe_finish(struct plait_bpe *bpe, bool whole_words)
{
    size_t room = power_above((size_t)bpe->vocab * 2 + 1), at, size;
    const char *text;

    bpe->whole_words = whole_words;
    bpe->word_mask = room - 1;
    bpe->words = malloc(room * sizeof(*bpe->words));
    if (!bpe->words)
        return -1;
    memset(bpe->words, 0xff, room * sizeof(*bpe->words));
    for (int32_t id = 0; id < bpe->vocab; id++) {
        text = plait_bpe_text(bpe, id, &size);
        if (size == 0)
            continue;
        at = word_place(bpe, text, size);
        if (bpe->words[at] < 0)
            bpe->words[at] = id;
    }
    for (int i = 0; i < 256; i++)
        bpe->byte[i] = plait_bpe_find(bpe, &(char){(char)i}, 1);
    return bpe->characters.falls_back ? find_fallback(bpe) : 0;
}

int32_t plait_bpe_find(const struct plait_bpe *bpe, const char *text,
                       size_t size)
{
    return bpe->words[word_place(bpe, text, size)];
}

const char *plait_bpe_text(const struct plait_bpe *bpe, int32_t id,
                           size_t *size)
{
    *size = 0;
    if (id < 0 || id >= bpe->vocab || !bpe->texts[id].size)
        return "";
    *size = bpe->texts[id].size;
    return bpe->bytes.data + bpe->texts[id].at;
}
