/* SPDX-License-Identifier: Apache-2.0 */
/* Text to tokens by byte pair encoding: cuts words and applies the merges. */
#include <errno.h>
#include <stdlib.h>

#include "runtime/data/tokenizer/bpe_private.h"
#include "runtime/data/tokenizer/unicode.h"

/* Most words of a text have occurred on its last pages: their tokens are cached
 * in entries of one cache line each, where a new word replaces an old one. */
enum { CACHE_SIZE = 1 << 15, CACHE_BYTES = 22, CACHE_TOKENS = 10 };

struct cached {
    uint8_t size, count; /* size 0: none */
    unsigned char text[CACHE_BYTES];
    int32_t token[CACHE_TOKENS];
};
_Static_assert(sizeof(struct cached) == 64, "one cache line");

/* Pieces up to this size are merged by scanning all pairs each time; longer
 * ones with a heap, at a cost of n log n. */
enum { SHORT_PIECE = 48 };

/* A token of a long piece, in a linked list of those that are left. `rank` and
 * `merged` are of its merge with the next; UINT32_MAX: there is none, or the
 * token itself was merged into the one before. */
struct symbol {
    int32_t token;
    int32_t before, after;
    uint32_t rank;
    int32_t merged;
};

struct plait_bpe_scratch {
    struct cached *cache;
    struct symbol *symbols;
    int32_t *spelled;
    uint64_t *heap; /* rank << 32 | index of the left token */
    size_t nsymbols, nheap, heap_room;
};

struct plait_bpe_scratch *plait_bpe_scratch_create(void)
{
    struct plait_bpe_scratch *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->cache = aligned_alloc(64, CACHE_SIZE * sizeof(*s->cache));
    if (!s->cache) {
        free(s);
        return NULL;
    }
    memset(s->cache, 0, CACHE_SIZE * sizeof(*s->cache));
    return s;
}

void plait_bpe_scratch_destroy(struct plait_bpe_scratch *s)
{
    int saved = errno;

    if (!s)
        return;
    free(s->cache);
    free(s->symbols);
    free(s->spelled);
    free(s->heap);
    free(s);
    errno = saved;
}

static const struct merge *find_merge(const struct plait_bpe *bpe, int32_t left,
                                      int32_t right)
{
    uint64_t key = merge_key(left, right);
    size_t at = hash_key(key) & bpe->merge_mask;

    for (;; at = (at + 1) & bpe->merge_mask) {
        if (bpe->merges[at].key == key)
            return &bpe->merges[at];
        if (!bpe->merges[at].key)
            return NULL;
    }
}

/* -- what merging begins with --------------------------------------------- */

/* The tokens of a piece's characters; returns how many, of `size` at most. */
static int spell_characters(const struct plait_bpe *bpe,
                            const unsigned char *piece, size_t size,
                            int32_t *token)
{
    const struct plait_bpe_characters *c = &bpe->characters;
    bool unknown = false;
    int32_t id;
    int count = 0;

    for (size_t n; size > 0; piece += n, size -= n) {
        plait_utf8_decode(piece, &n);
        id = n == 1 ? bpe->byte[*piece]
                    : plait_bpe_find(bpe, (const char *)piece, n);
        if (id < 0 && c->falls_back) {
            for (size_t i = 0; i < n; i++)
                token[count++] = bpe->fallback[piece[i]];
            continue;
        }
        if (id < 0 && c->unknown >= 0 && !(unknown && c->fuse))
            token[count++] = c->unknown;
        if (id >= 0)
            token[count++] = id;
        unknown = id < 0;
    }
    return count;
}

static int spell(const struct plait_bpe *bpe, const unsigned char *piece,
                 size_t size, int32_t *token)
{
    int count = 0;

    if (bpe->characters.used)
        return spell_characters(bpe, piece, size, token);
    for (size_t i = 0; i < size; i++)
        if (bpe->byte[piece[i]] >= 0)
            token[count++] = bpe->byte[piece[i]];
    return count;
}

/* -- short pieces -------------------------------------------------------- */

static void set_rank(const struct plait_bpe *bpe, const int32_t *token, int n,
                     int i, uint32_t *rank, int32_t *merged)
{
    const struct merge *m;

    rank[i] = UINT32_MAX;
    if (i < 0 || i + 1 >= n)
        return;
    m = find_merge(bpe, token[i], token[i + 1]);
    if (!m)
        return;
    rank[i] = m->rank;
    merged[i] = m->merged;
}

/* Merges in place; returns how many tokens are left. */
static int merge_short(const struct plait_bpe *bpe, int32_t *token, int n)
{
    uint32_t rank[SHORT_PIECE];
    int32_t merged[SHORT_PIECE];
    int best;

    for (int i = 0; i < n; i++)
        set_rank(bpe, token, n, i, rank, merged);
    while (n > 1) {
        best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == UINT32_MAX)
            break;
        token[best] = merged[best];
        n--;
        for (int i = best + 1; i < n; i++) {
            token[i] = token[i + 1];
            rank[i] = rank[i + 1];
            merged[i] = merged[i + 1];
        }
        if (best > 0)
            set_rank(bpe, token, n, best - 1, rank, merged);
        set_rank(bpe, token, n, best, rank, merged);
    }
    return n;
}

/* -- long pieces --------------------------------------------------------- */

static int push_candidate(const struct plait_bpe *bpe,
                          struct plait_bpe_scratch *s, int32_t at)
{
    const struct merge *m;
    uint64_t new, *heap;
    size_t i;

    if (at < 0)
        return 0;
    m = s->symbols[at].after < 0
            ? NULL
            : find_merge(bpe, s->symbols[at].token,
                         s->symbols[s->symbols[at].after].token);
    s->symbols[at].rank = m ? m->rank : UINT32_MAX;
    if (!m)
        return 0;
    s->symbols[at].merged = m->merged;
    if (s->nheap == s->heap_room) {
        heap = realloc(s->heap, (s->heap_room * 2 + 64) * sizeof(*heap));
        if (!heap)
            return -1;
        s->heap = heap;
        s->heap_room = s->heap_room * 2 + 64;
    }
    new = (uint64_t)m->rank << 32 | (uint32_t)at;
    for (i = s->nheap++; i > 0 && new < s->heap[(i - 1) / 2]; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = new;
    return 0;
}

static uint64_t pop_candidate(struct plait_bpe_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->nheap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < s->nheap) {
        child += child + 1 < s->nheap && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] >= last)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* Apply a candidate's merge, unless one of the two tokens has changed since:
 * then the left one has another rank, or that candidate's merge is the one of
 * the tokens as they are now. */
static int apply_candidate(const struct plait_bpe *bpe,
                           struct plait_bpe_scratch *s, uint64_t candidate)
{
    int32_t at = (int32_t)(uint32_t)candidate;
    struct symbol *left = &s->symbols[at], *right;

    if (left->rank != candidate >> 32)
        return 0;
    right = &s->symbols[left->after];
    left->token = left->merged;
    left->after = right->after;
    right->rank = UINT32_MAX;
    if (left->after >= 0)
        s->symbols[left->after].before = at;
    if (push_candidate(bpe, s, left->before) < 0)
        return -1;
    return push_candidate(bpe, s, at);
}

static int make_symbols(const struct plait_bpe *bpe,
                        struct plait_bpe_scratch *s, const unsigned char *piece,
                        size_t size)
{
    int32_t n;

    if (size > INT32_MAX - 1) {
        errno = EOVERFLOW;
        return -1;
    }
    if (size > s->nsymbols) {
        free(s->symbols);
        free(s->spelled);
        s->nsymbols = 0;
        s->symbols = malloc(size * sizeof(*s->symbols));
        s->spelled = malloc(size * sizeof(*s->spelled));
        if (!s->symbols || !s->spelled)
            return -1;
        s->nsymbols = size;
    }
    n = spell(bpe, piece, size, s->spelled);
    for (int32_t i = 0; i < n; i++)
        s->symbols[i] =
            (struct symbol){s->spelled[i], i - 1, i + 1, UINT32_MAX, 0};
    if (n > 0)
        s->symbols[n - 1].after = -1;
    return n;
}

static int encode_long(const struct plait_bpe *bpe, struct plait_bpe_scratch *s,
                       const unsigned char *piece, size_t size,
                       struct plait_tokens *out)
{
    int32_t n = make_symbols(bpe, s, piece, size);

    if (n < 0)
        return -1;
    s->nheap = 0;
    for (int32_t i = 0; i < n; i++)
        if (push_candidate(bpe, s, i) < 0)
            return -1;
    while (s->nheap > 0)
        if (apply_candidate(bpe, s, pop_candidate(s)) < 0)
            return -1;
    if (plait_tokens_reserve(out, (size_t)n) < 0)
        return -1;
    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = s->symbols[i].after)
        out->id[out->count++] = s->symbols[i].token;
    return 0;
}

/* -- a piece ------------------------------------------------------------- */

static int encode_short(const struct plait_bpe *bpe, const unsigned char *piece,
                        size_t size, struct plait_tokens *out)
{
    int32_t token[SHORT_PIECE];
    int n = merge_short(bpe, token, spell(bpe, piece, size, token));

    if (plait_tokens_reserve(out, (size_t)n) < 0)
        return -1;
    memcpy(out->id + out->count, token, (size_t)n * sizeof(*token));
    out->count += (size_t)n;
    return 0;
}

static int encode_piece(const struct plait_bpe *bpe,
                        struct plait_bpe_scratch *s, const unsigned char *piece,
                        size_t size, struct plait_tokens *out)
{
    int32_t word =
        bpe->whole_words ? plait_bpe_find(bpe, (const char *)piece, size) : -1;

    if (word >= 0) {
        if (plait_tokens_reserve(out, 1) < 0)
            return -1;
        out->id[out->count++] = word;
        return 0;
    }
    if (size <= SHORT_PIECE)
        return encode_short(bpe, piece, size, out);
    return encode_long(bpe, s, piece, size, out);
}

int plait_bpe_encode(const struct plait_bpe *bpe, struct plait_bpe_scratch *s,
                     const unsigned char *piece, size_t size,
                     struct plait_tokens *out)
{
    struct cached *c;
    size_t first;

    if (size > CACHE_BYTES)
        return encode_piece(bpe, s, piece, size, out);
    c = &s->cache[hash_bytes(piece, size) % CACHE_SIZE];
    if (c->size == size && !memcmp(c->text, piece, size)) {
        if (plait_tokens_reserve(out, CACHE_TOKENS) < 0)
            return -1;
        memcpy(out->id + out->count, c->token, sizeof(c->token));
        out->count += c->count;
        return 0;
    }
    first = out->count;
    if (encode_piece(bpe, s, piece, size, out) < 0)
        return -1;
    if (out->count - first > CACHE_TOKENS)
        return 0;
    c->size = (uint8_t)size;
    c->count = (uint8_t)(out->count - first);
    memcpy(c->text, piece, size);
    memcpy(c->token, out->id + first, c->count * sizeof(*c->token));
    return 0;
}
