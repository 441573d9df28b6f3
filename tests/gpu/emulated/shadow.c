/* SPDX-License-Identifier: Apache-2.0 */
/* Each 4-byte word of memory has a cell that records who wrote it last and who
 * has read it since. The compiler calls __tsan_read4() and the like before
 * every access of a kernel (-fsanitize=thread, without that sanitizer's
 * library), and these calls come here. Each access is checked against the cell:
 * is the word allocated, has it been written, was there a barrier after the
 * accesses of other threads?
 *
 * Time is counted in epochs: each launch, block and barrier of a block begins
 * one. Within an epoch, each warp counts its own barriers. */
#include <stdio.h>
#include <string.h>

#include "cells.h"

#define WINDOW ((size_t)EMU_SHARED_MOST + (64 << 10))
#define GAP 32 /* bytes between two arrays of shared memory */
#define ARRAYS 16

/* Flags in a cell's `reader` and `writer`, above the thread's number. */
enum { READ_BY_WARP = 0x1000, READ_BY_MANY = 0x2000, ATOMICALLY = 0x4000 };

static char window[WINDOW] __attribute__((aligned(4096)));
static struct cell window_cells[WINDOW / 4];
static uint8_t window_used[WINDOW / 4];

static struct {
    const void *key;
    char *at;
    size_t bytes;
} array[ARRAYS];
static int narrays;
static size_t window_end, dynamic_bytes;

static unsigned epoch = 1, launch_epoch, block_epoch;
static uint16_t warps[EMU_THREADS / EMU_WARP];

/* -- time --------------------------------------------------------------------
 */

unsigned emu_shadow_epoch(void)
{
    return epoch;
}

unsigned emu_shadow_next(void)
{
    return ++epoch;
}

void emu_shadow_launch(size_t shared)
{
    launch_epoch = ++epoch;
    memset(window_used, 0, window_end / 4 + 1);
    narrays = 0;
    window_end = 0;
    dynamic_bytes = shared;
}

void emu_shadow_block(void)
{
    block_epoch = ++epoch;
    memset(warps, 0, sizeof(warps));
}

void emu_shadow_barrier(void)
{
    epoch++;
    memset(warps, 0, sizeof(warps));
}

void emu_shadow_warp(int warp)
{
    warps[warp]++;
}

/* -- shared memory
 * ------------------------------------------------------------- */

char *emu_shadow_window(void)
{
    return window;
}

static void *place_array(const void *key, size_t bytes, size_t align)
{
    size_t at = window_end + GAP;

    /* aligned as asked for, and never better by chance */
    at = (at + 2 * align - 1) / (2 * align) * (2 * align) + align;
    if (narrays == ARRAYS || at + bytes + GAP > WINDOW) {
        emu_fault("%zu bytes of shared memory, a block has %d", at + bytes,
                  EMU_SHARED_MOST);
        return window;
    }
    window_end = at + bytes;
    memset(window_used + at / 4, 1, (bytes + 3) / 4);
    array[narrays].key = key;
    array[narrays].at = window + at;
    array[narrays++].bytes = bytes;
    return window + at;
}

void *emu_shadow_array(const void *key, size_t bytes, size_t align)
{
    size_t fixed = 0;
    void *p;

    for (int i = 0; i < narrays; i++)
        if (array[i].key == key)
            return array[i].at;
    p = place_array(key, key != NULL ? bytes : dynamic_bytes, align);
    for (int i = 0; i < narrays; i++)
        fixed += array[i].key != NULL ? array[i].bytes : 0;
    if (fixed > EMU_SHARED_PLAIN || fixed + dynamic_bytes > EMU_SHARED_MOST)
        emu_fault("%zu + %zu bytes of shared memory, a block has %d and can "
                  "ask for %d",
                  fixed, dynamic_bytes, EMU_SHARED_PLAIN, EMU_SHARED_MOST);
    return p;
}

/* -- rules
 * ----------------------------------------------------------------------- */

/* Whether the access by thread `who` in epoch `when`, after `after` barriers of
 * its warp, is unordered with the running thread's. begin: accesses before this
 * epoch, the start of the launch or (shared memory) of the block, are
 * ordered. */
static bool is_unordered(uint16_t who, unsigned when, uint16_t after,
                         unsigned begin)
{
    int me = emu_now->number, warp = me / EMU_WARP;

    if (when < begin)
        return false;
    if (when < block_epoch)
        return true; /* another block's access */
    if (when < epoch || (who & 0xfff) == me)
        return false;
    return (who & 0xfff) / EMU_WARP != warp || after >= warps[warp];
}

static void race(const char *mine, const char *other, uint16_t who,
                 unsigned when, const void *p, const void *pc)
{
    const char *space =
        (const char *)p >= window && (const char *)p < window + WINDOW
            ? "shared"
            : "global";

    if (when < block_epoch)
        emu_fault_at(pc, "race: %s of %s memory that another block %s", mine,
                     space, other);
    else if (who & READ_BY_MANY)
        emu_fault_at(pc, "race: %s of %s memory that other threads %s", mine,
                     space, other);
    else
        emu_fault_at(pc,
                     "race: %s of %s memory that thread %d %s, with no barrier "
                     "between",
                     mine, space, who & 0xfff, other);
}

static void check_read(const struct cell *c, uint8_t bytes, unsigned begin,
                       const void *p, const void *pc)
{
    if (c->arriving)
        emu_fault_at(pc, "read of shared memory while a copy to it is under "
                         "way");
    if (c->write_bytes & bytes &&
        is_unordered(c->writer, c->written, c->writer_warps, begin))
        race("read", "writes", c->writer, c->written, p, pc);
}

static void note_read(struct cell *c, uint8_t bytes)
{
    uint16_t me = (uint16_t)emu_now->number, now = warps[me / EMU_WARP];

    emu_cell_keep_read(c);
    if (c->read >= launch_epoch && c->read < block_epoch) {
        if (c->elsewhere != launch_epoch)
            c->elsewhere_bytes = 0;
        c->elsewhere = launch_epoch;
        c->elsewhere_bytes |= c->read_bytes;
    }
    if (c->read != epoch) {
        c->reader = me;
        c->read_bytes = bytes;
    } else if (c->reader == me) {
        c->read_bytes |= bytes;
    } else if ((c->read_bytes & bytes) == 0) { /* a cell has one reader */
        c->reader = me;
        c->read_bytes = bytes;
    } else {
        int warp = (c->reader & 0xfff) / EMU_WARP;

        if (c->reader & READ_BY_MANY || warp != me / EMU_WARP)
            c->reader = READ_BY_MANY;
        else if (c->reader_warps < now)
            c->reader = me; /* a barrier followed the other reads */
        else
            c->reader = (uint16_t)(READ_BY_WARP | (c->reader & 0xfff));
        c->read_bytes &= bytes;
    }
    c->reader_warps = now;
    c->read = epoch;
}

/* Whether reads of other threads are unordered with a write by this thread. */
static bool is_being_read(const struct cell *c, unsigned begin)
{
    int me = emu_now->number, warp = me / EMU_WARP;

    if (c->read < epoch)
        return c->read >= begin && c->read < block_epoch;
    if (c->reader & READ_BY_MANY)
        return true;
    if ((c->reader & 0xfff) / EMU_WARP != warp)
        return true;
    if (c->reader & READ_BY_WARP)
        return c->reader_warps >= warps[warp];
    return is_unordered(c->reader, c->read, c->reader_warps, begin);
}

static void check_write(const struct cell *c, uint8_t bytes, bool atomic,
                        unsigned begin, const void *p, const void *pc)
{
    if (c->arriving)
        emu_fault_at(pc, "write of shared memory while a copy to it is under "
                         "way");
    if (c->write_bytes & bytes && !(atomic && c->writer & ATOMICALLY) &&
        is_unordered(c->writer, c->written, c->writer_warps, begin))
        race("write", "writes", c->writer, c->written, p, pc);
    if (begin == launch_epoch && c->elsewhere == launch_epoch &&
        c->elsewhere_bytes & bytes)
        race("write", "reads", c->reader, launch_epoch, p, pc);
    if (c->read_bytes & bytes && is_being_read(c, begin))
        race("write", "reads", c->reader, c->read, p, pc);
}

static void note_write(struct cell *c, uint8_t bytes, bool atomic,
                       unsigned since)
{
    uint16_t me = (uint16_t)emu_now->number;
    uint16_t who = (uint16_t)(me | (atomic ? ATOMICALLY : 0));
    bool again = c->written == epoch && c->writer == who;

    if (c->written < since)
        c->filled = 0;
    c->filled |= bytes;
    c->write_bytes = again ? c->write_bytes | bytes : bytes;
    c->written = epoch;
    c->writer = who;
    c->writer_warps = warps[me / EMU_WARP];
}

/* -- accesses
 * ------------------------------------------------------------------------ */

/* The cell of p's first word, NULL if the memory is not allocated. *since:
 * words last written before this epoch count as unwritten; 0: all count as
 * written. */
static struct cell *find_cell(uintptr_t p, size_t bytes, bool *shared,
                              unsigned *since)
{
    size_t at = p - (uintptr_t)window;
    const struct emu_memory *m;

    *shared = at < WINDOW;
    if (*shared) {
        *since = block_epoch;
        for (size_t i = at / 4; i <= (at + bytes - 1) / 4; i++)
            if (!window_used[i])
                return NULL;
        return &window_cells[at / 4];
    }
    m = emu_memory_at(p);
    if (m == NULL || p + bytes > m->to)
        return NULL;
    *since = m->whole || m->pinned ? 0 : m->born;
    return emu_cell_of(p);
}

static void not_there(uintptr_t p, size_t bytes, bool shared,
                      enum emu_access kind, const void *pc)
{
    const char *what = kind == EMU_READ ? "read" : "write";
    const struct emu_memory *m = emu_memory_at(p);

    if (shared)
        emu_fault_at(pc,
                     "%s out of bounds: %zu bytes of shared memory behind "
                     "or before an array",
                     what, bytes);
    else if (m != NULL)
        emu_fault_at(pc, "%s out of bounds: %zu bytes at byte %zu of %zu", what,
                     bytes, (size_t)(p - m->from), (size_t)(m->to - m->from));
    else if (emu_memory_is((const void *)p))
        emu_fault_at(pc,
                     "%s out of bounds: %zu bytes of global memory that "
                     "nobody has",
                     what, bytes);
    else
        emu_fault_at(pc, "%s of %zu bytes of the host's memory", what, bytes);
}

static void touch(struct cell *c, uint8_t mask, enum emu_access kind,
                  bool shared, unsigned since, uintptr_t p, const void *pc)
{
    const void *at = (const void *)p;
    unsigned begin = shared ? block_epoch : launch_epoch;

    if (!shared)
        emu_cell_check(c, mask, kind, p, pc);
    if (kind != EMU_WRITE && (c->written < since || (mask & ~c->filled)) &&
        since > 0 && !c->arriving)
        emu_fault_at(pc, "read of %s memory that nobody has written",
                     shared ? "shared" : "global");
    if (kind == EMU_READ) {
        check_read(c, mask, begin, at, pc);
        note_read(c, mask);
    } else {
        check_write(c, mask, kind == EMU_ATOMIC, begin, at, pc);
        note_write(c, mask, kind == EMU_ATOMIC, since);
    }
}

/* Whether noting one more read of the whole word would change nothing, which is
 * by far the most frequent case. */
static inline bool is_known_read(const struct cell *c)
{
    int me = emu_now->number;

    if (c->read != epoch || c->written >= epoch || c->read_bytes != 15)
        return false;
    if (c->reader & READ_BY_MANY)
        return true;
    if (c->reader_warps != warps[me / EMU_WARP])
        return false;
    return c->reader == me || (c->reader & READ_BY_WARP &&
                               (c->reader & 0xfff) / EMU_WARP == me / EMU_WARP);
}

static inline bool is_known(uintptr_t p, size_t bytes)
{
    size_t at = p - (uintptr_t)window;

    if (at >= WINDOW - 16 || at % 4 != 0 || bytes % 4 != 0 || bytes > 16)
        return false;
    for (size_t i = 0; i < bytes / 4; i++)
        if (!is_known_read(&window_cells[at / 4 + i]))
            return false;
    return true;
}

static inline void note_memory(uintptr_t p, enum emu_access kind,
                               const void *pc)
{
    struct emu_memory *m = (struct emu_memory *)emu_memory_at(p);

    emu_touch_memory(m, kind, p, pc);
    m->touched = epoch;
}

void emu_shadow_access(const void *ptr, size_t bytes, enum emu_access kind,
                       const void *pc)
{
    uintptr_t p = (uintptr_t)ptr, end = p + bytes;
    unsigned since;
    bool shared;
    struct cell *c;

    if (kind == EMU_READ && is_known(p, bytes))
        return;
    c = find_cell(p, bytes, &shared, &since);
    if (c == NULL) {
        not_there(p, bytes, shared, kind, pc);
        return;
    }
    if (!shared)
        note_memory(p, kind, pc);
    for (uintptr_t word = p & ~(uintptr_t)3; word < end; word += 4) {
        uint8_t mask = emu_bytes_of(word, p, end);

        if (!shared && (word & (((size_t)1 << EMU_PIECE_BITS) - 1)) == 0)
            c = emu_cell_of(word);
        touch(c++, mask, kind, shared, since, word, pc);
    }
}

void emu_shadow_begin_copy(const void *p, size_t bytes, const void *pc)
{
    size_t at = (size_t)((const char *)p - window);

    emu_shadow_access(p, bytes, EMU_WRITE, pc);
    for (size_t i = 0; i < bytes / 4; i++)
        window_cells[at / 4 + i].arriving = 1;
}

void emu_shadow_end_copy(const void *p, size_t bytes, const void *pc)
{
    size_t at = (size_t)((const char *)p - window);

    for (size_t i = 0; i < bytes / 4; i++)
        window_cells[at / 4 + i].arriving = 0;
    emu_shadow_access(p, bytes, EMU_WRITE, pc);
}
