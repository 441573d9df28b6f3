/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/shm/shm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/comm/shm/arith.h"
#include "runtime/comm/shm/shm_private.h"

/* Elements reduced at once: their fp32 copies fit in the L1 cache. */
#define BLOCK 2048

/* -- a transfer ---------------------------------------------------------- */

static bool is_reduction(const struct plait_transfer *t)
{
    return t->kind == PLAIT_ALL_REDUCE || t->kind == PLAIT_REDUCE_SCATTER;
}

/* Whether the type is summed in fp32. */
static bool has_floats(const struct plait_transfer *t)
{
    return t->type != PLAIT_I32 && t->type != PLAIT_F64;
}

bool plait_shm_takes(const struct plait_shm *shm,
                     const struct plait_transfer *t)
{
    size_t bytes = t->n * plait_dtype_size(t->type);

    /* Each rank's part of a slot is at least one cache line. */
    if (!shm || (size_t)shm->size > SLOT_BYTES / LINE)
        return false;
    switch (t->kind) {
    case PLAIT_ALL_REDUCE:
        return has_floats(t) && bytes >= shm->least;
    case PLAIT_REDUCE_SCATTER:
        return has_floats(t) && bytes * (size_t)shm->size >= shm->least;
    case PLAIT_ALL_GATHER:
        return bytes * (size_t)shm->size >= shm->least;
    default:
        return false;
    }
}

void plait_shm_begin(struct plait_shm *shm, struct plait_shm_transfer *x,
                     const struct plait_transfer *t,
                     const struct plait_call *call)
{
    size_t size = plait_dtype_size(t->type), line = LINE / size;
    size_t ranks = (size_t)shm->size;

    memset(x, 0, sizeof(*x));
    x->shm = shm;
    x->t = *t;
    x->call = *call;
    x->ticket = shm->issued++;
    x->each = t->n;
    x->twice = t->kind == PLAIT_ALL_REDUCE && (ranks > 2 || !shm->crowded);
    x->whole = t->kind == PLAIT_ALL_REDUCE && !x->twice;
    if (x->twice)
        x->each = ((t->n + ranks - 1) / ranks + line - 1) / line * line;
    x->len = SLOT_BYTES / (x->whole ? 1 : ranks) / LINE * line;
    x->chunks = (x->each + x->len - 1) / x->len;
}

/* Chunk c of rank r's part: its number of elements, and where they begin in a
 * buffer with all parts. If two ranks each sum the whole buffer, there is only
 * one part. */
static size_t chunk_extent(const struct plait_shm_transfer *x, int r, size_t c,
                           size_t *begin)
{
    size_t all = x->t.n, end;

    if (x->t.kind != PLAIT_ALL_REDUCE)
        all *= (size_t)x->shm->size;
    if (x->whole)
        r = 0;
    *begin = (size_t)r * x->each + c * x->len;
    end = *begin + x->len;
    if (end > (size_t)(r + 1) * x->each)
        end = (size_t)(r + 1) * x->each;
    if (end > all)
        end = all;
    return end > *begin ? end - *begin : 0;
}

/* Rank r's place in the slot that chunk c uses in `owner`'s area. */
static char *slot_place(const struct plait_shm_transfer *x, int owner, int r,
                        size_t c)
{
    struct plait_shm *s = x->shm;

    return s->area[owner]->slot[(s->base + c) % SLOTS] +
           (x->whole ? 0 : (size_t)r * x->len * plait_dtype_size(x->t.type));
}

/* Write what the other ranks need into this rank's slot. */
static void fill_slot(const struct plait_shm_transfer *x, size_t c)
{
    size_t size = plait_dtype_size(x->t.type), begin, n;
    int me = x->shm->rank;

    if (x->t.kind == PLAIT_ALL_GATHER) {
        n = chunk_extent(x, me, c, &begin);
        memcpy(slot_place(x, me, me, c),
               (const char *)x->t.send + c * x->len * size, n * size);
        return;
    }
    for (int r = 0; r < x->shm->size; r++) {
        n = chunk_extent(x, r, c, &begin);
        if (r != me) /* where both reduce the whole chunk, all of it */
            memcpy(slot_place(x, me, r, c),
                   (const char *)x->t.send + begin * size, n * size);
    }
}

/* A part of what this rank reduces of a chunk: n elements. */
struct block {
    size_t chunk, n;
    size_t at;        /* bytes of the chunk before it */
    const char *mine; /* this rank's elements */
};

/* Rank r's elements of a block, in fp32: in `wide` unless they are of that
 * type. */
static const float *read_block(const struct plait_shm_transfer *x,
                               const struct block *b, int r, float *wide)
{
    const char *from = b->mine;

    if (r != x->shm->rank)
        from = slot_place(x, r, x->shm->rank, b->chunk) + b->at;
    if (x->t.type == PLAIT_F32)
        return (const float *)from;
    plait_arith_widen(wide, from, b->n, x->t.type);
    return wide;
}

/* Reduce a block over all ranks. In place, `to` is `mine` and is written last.
 * `out`: where the other ranks read it; NULL: they do not. */
static void reduce_block(const struct plait_shm_transfer *x,
                         const struct block *b, char *to, char *out)
{
    int last = x->shm->size - 1;
    float wide[2][BLOCK];
    const float *sum = read_block(x, b, 0, wide[0]);

    for (int r = 1; r <= last; r++) {
        const float *next = read_block(x, b, r, wide[1]);
        bool final = r == last && x->t.type == PLAIT_F32;
        float *into = final ? (float *)to : wide[0];

        plait_arith_reduce_floats(into, sum, next, b->n, x->t.op);
        sum = into;
    }
    if ((const char *)sum != to)
        plait_arith_narrow(to, sum, b->n, x->t.type);
    if (out)
        memcpy(out, to, b->n * plait_dtype_size(x->t.type));
}

static void reduce_chunk(const struct plait_shm_transfer *x, size_t c)
{
    size_t size = plait_dtype_size(x->t.type), begin, n;
    struct block b = {.chunk = c};
    int me = x->shm->rank;
    char *to, *out = NULL;

    n = chunk_extent(x, me, c, &begin);
    to = (char *)x->t.recv + c * x->len * size;
    if (x->t.kind == PLAIT_ALL_REDUCE) {
        to = (char *)x->t.recv + begin * size;
        out = x->twice ? slot_place(x, me, me, c) : NULL;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        b.n = n - i < BLOCK ? n - i : BLOCK;
        b.at = i * size;
        b.mine = (const char *)x->t.send + begin * size + b.at;
        reduce_block(x, &b, to + b.at, out ? out + b.at : NULL);
    }
}

/* Copy this rank's own part, unless the transfer is in place. */
static void copy_own(const struct plait_shm_transfer *x, size_t c)
{
    size_t size = plait_dtype_size(x->t.type), begin;
    size_t n = chunk_extent(x, x->shm->rank, c, &begin);
    const char *from = (const char *)x->t.send + begin * size;
    char *to = (char *)x->t.recv + begin * size;

    if (x->t.kind == PLAIT_ALL_GATHER)
        from = (const char *)x->t.send + c * x->len * size;
    if (from != to)
        memcpy(to, from, n * size);
}

/* Read what the other ranks have written for this one. */
static void take_chunk(const struct plait_shm_transfer *x, size_t c)
{
    size_t size = plait_dtype_size(x->t.type), begin, n;
    int me = x->shm->rank;

    if (x->t.kind != PLAIT_ALL_REDUCE)
        copy_own(x, c);
    for (int r = 0; r < x->shm->size; r++) {
        n = chunk_extent(x, r, c, &begin);
        if (r != me)
            memcpy((char *)x->t.recv + begin * size, slot_place(x, r, r, c),
                   n * size);
    }
}

/* -- progress ------------------------------------------------------------ */

static uint64_t look(struct area *area, enum count count)
{
    return atomic_load_explicit(&area->count[count].n, memory_order_acquire);
}

static bool all_reached(const struct plait_shm *s, enum count count, uint64_t n)
{
    for (int i = 0; i < s->size; i++)
        if (look(s->area[i], count) < n)
            return false;
    return true;
}

/* Whether a peer may wait for what this rank has published since it last told:
 * a peer that is as far in the transfer, or whose slots are all in use. */
static bool may_wait(const struct plait_shm *s, struct area *peer,
                     const uint64_t now[COUNTS])
{
    const uint64_t *told = s->told;

    return (now[FILLED] > told[FILLED] && look(peer, FILLED) > told[FILLED]) ||
           (now[REDUCED] > told[REDUCED] &&
            look(peer, REDUCED) > told[REDUCED]) ||
           (now[TAKEN] > told[TAKEN] &&
            look(peer, FILLED) >= told[TAKEN] + SLOTS);
}

static void tell_peers(struct plait_shm *s)
{
    uint64_t now[COUNTS];
    bool news = false;

    for (int i = 0; i < COUNTS; i++) {
        now[i] = look(s->area[s->rank], i);
        news |= now[i] > s->told[i];
    }
    if (!news)
        return;
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < s->size; i++)
        if (i != s->rank && may_wait(s, s->area[i], now))
            plait_bells_ring(s->bells, s->ranks[i]);
    memcpy(s->told, now, sizeof(now));
}

static void publish_count(struct plait_shm *s, enum count count, uint64_t n)
{
    atomic_store_explicit(&s->area[s->rank]->count[count].n, n,
                          memory_order_release);
}

static struct plait_call *call_of(const struct plait_shm *s, int rank)
{
    return &s->area[rank]->call[s->shown % CALLS];
}

/* Before this rank fills its first chunk. */
static void show_call(struct plait_shm_transfer *x)
{
    if (x->shown)
        return;
    x->shown = true;
    *call_of(x->shm, x->shm->rank) = x->call;
}

/* All ranks have filled their first chunk: whether they are in the same
 * transfer. */
static bool is_alike(struct plait_shm_transfer *x)
{
    struct plait_shm *s = x->shm;
    struct plait_caller here = {s->ranks[s->rank], s->host, &x->call};

    for (int r = 0; r < s->size; r++) {
        const struct plait_call call = *call_of(s, r);
        struct plait_caller there = {s->ranks[r], s->host, &call};

        if (plait_call_same(&x->call, &call))
            continue;
        plait_call_tell(s->name, there, here, s->why, sizeof(s->why));
        x->differs = true;
        return false;
    }
    return true;
}

const char *plait_shm_difference(const struct plait_shm_transfer *x)
{
    return x->differs ? x->shm->why : NULL;
}

/* All ranks have filled the chunk: reduce or take it. That finishes it, except
 * in all-reduces of more than two ranks. */
static void use_chunk(struct plait_shm_transfer *x)
{
    struct plait_shm *s = x->shm;
    size_t c = x->reduced++;

    if (is_reduction(&x->t))
        reduce_chunk(x, c);
    else
        take_chunk(x, c);
    publish_count(s, REDUCED, s->base + x->reduced);
    if (x->twice)
        return;
    s->told[REDUCED] = s->base + x->reduced; /* nobody waits for it */
    publish_count(s, TAKEN, s->base + ++x->taken);
}

/* Chunk c may be filled when all ranks have taken the chunk that used its slot
 * before, reduced when all have filled it, and taken when all have reduced
 * it. */
static bool move_chunk(struct plait_shm_transfer *x)
{
    struct plait_shm *s = x->shm;

    if (x->taken < x->reduced &&
        all_reached(s, REDUCED, s->base + x->taken + 1)) {
        take_chunk(x, x->taken++);
        publish_count(s, TAKEN, s->base + x->taken);
    } else if (x->reduced < x->filled &&
               all_reached(s, FILLED, s->base + x->reduced + 1)) {
        if (x->reduced > 0 || is_alike(x))
            use_chunk(x);
    } else if (x->filled < x->chunks &&
               (s->base + x->filled < SLOTS ||
                all_reached(s, TAKEN, s->base + x->filled + 1 - SLOTS))) {
        show_call(x);
        fill_slot(x, x->filled++);
        publish_count(s, FILLED, s->base + x->filled);
    } else {
        return false;
    }
    return true;
}

/* Where ranks share cores, peers are woken only when this rank can do no more:
 * if woken earlier they would find less to do and sleep again. */
enum plait_moved plait_shm_advance(struct plait_shm_transfer *x)
{
    struct plait_shm *s = x->shm;
    bool moved;

    if (x->ticket != s->finished)
        return PLAIT_STUCK;
    moved = move_chunk(x);
    if (x->differs)
        return PLAIT_DONE;
    if (!moved || x->taken == x->chunks || !s->crowded)
        tell_peers(s);
    if (x->taken < x->chunks)
        return moved ? PLAIT_MOVED : PLAIT_STUCK;
    s->base += x->chunks;
    s->shown += x->chunks > 0;
    s->finished++;
    return PLAIT_DONE;
}
