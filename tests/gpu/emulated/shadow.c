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

#include "known.h"

#define GAP 32 /* bytes between two arrays of shared memory */
#define ARRAYS 16

char emu_window[EMU_WINDOW] __attribute__((aligned(4096)));
struct cell emu_window_cells[EMU_WINDOW / 4];
struct emu_time emu_time = {.epoch = 1};
static uint8_t window_used[EMU_WINDOW / 4];

static struct {
    const void *key;
    char *at;
    size_t bytes;
} array[ARRAYS];
static int narrays;
static size_t window_end, dynamic_bytes;

/* -- time --------------------------------------------------------------------
 */

unsigned emu_shadow_epoch(void)
{
    return emu_time.epoch;
}

unsigned emu_shadow_next(void)
{
    return ++emu_time.epoch;
}

void emu_shadow_launch(size_t shared)
{
    emu_time.launch = ++emu_time.epoch;
    memset(window_used, 0, window_end / 4 + 1);
    narrays = 0;
    window_end = 0;
    dynamic_bytes = shared;
}

void emu_shadow_block(void)
{
    emu_time.block = ++emu_time.epoch;
    memset(emu_time.warps, 0, sizeof(emu_time.warps));
}

void emu_shadow_barrier(void)
{
    emu_time.epoch++;
    memset(emu_time.warps, 0, sizeof(emu_time.warps));
}

void emu_shadow_warp(int warp)
{
    emu_time.warps[warp]++;
}

/* -- shared memory
 * ------------------------------------------------------------- */

static void *place_array(const void *key, size_t bytes, size_t align)
{
    size_t at = window_end + GAP;

    /* aligned as asked for, and never better by chance */
    at = (at + 2 * align - 1) / (2 * align) * (2 * align) + align;
    if (narrays == ARRAYS || at + bytes + GAP > EMU_WINDOW) {
        emu_fault("%zu bytes of shared memory, a block has %d", at + bytes,
                  EMU_SHARED_MOST);
        return emu_window;
    }
    window_end = at + bytes;
    memset(window_used + at / 4, 1, (bytes + 3) / 4);
    array[narrays].key = key;
    array[narrays].at = emu_window + at;
    array[narrays++].bytes = bytes;
    return emu_window + at;
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
    if (when < emu_time.block)
        return true; /* another block's access */
    if (when < emu_time.epoch || (who & 0xfff) == me)
        return false;
    return (who & 0xfff) / EMU_WARP != warp || after >= emu_time.warps[warp];
}

static void race(const char *mine, const char *other, uint16_t who,
                 unsigned when, const void *p, const void *pc)
{
    const char *space = (const char *)p >= emu_window &&
                                (const char *)p < emu_window + EMU_WINDOW
                            ? "shared"
                            : "global";

    if (when < emu_time.block)
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
    uint16_t me = (uint16_t)emu_now->number,
             now = emu_time.warps[me / EMU_WARP];

    emu_cell_keep_read(c);
    if (c->read >= emu_time.launch && c->read < emu_time.block) {
        if (c->elsewhere != emu_time.launch)
            c->elsewhere_bytes = 0;
        c->elsewhere = emu_time.launch;
        c->elsewhere_bytes |= c->read_bytes;
    }
    if (c->read != emu_time.epoch) {
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
    c->read = emu_time.epoch;
}

/* Whether reads of other threads are unordered with a write by this thread. */
static bool is_being_read(const struct cell *c, unsigned begin)
{
    int me = emu_now->number, warp = me / EMU_WARP;

    if (c->read < emu_time.epoch)
        return c->read >= begin && c->read < emu_time.block;
    if (c->reader & READ_BY_MANY)
        return true;
    if ((c->reader & 0xfff) / EMU_WARP != warp)
        return true;
    if (c->reader & READ_BY_WARP)
        return c->reader_warps >= emu_time.warps[warp];
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
    if (begin == emu_time.launch && c->elsewhere == emu_time.launch &&
        c->elsewhere_bytes & bytes)
        race("write", "reads", c->reader, emu_time.launch, p, pc);
    if (c->read_bytes & bytes && is_being_read(c, begin))
        race("write", "reads", c->reader, c->read, p, pc);
}

static void note_write(struct cell *c, uint8_t bytes, bool atomic,
                       unsigned since)
{
    uint16_t me = (uint16_t)emu_now->number;
    uint16_t who = (uint16_t)(me | (atomic ? ATOMICALLY : 0));
    bool again = c->written == emu_time.epoch && c->writer == who;

    if (c->written < since)
        c->filled = 0;
    c->filled |= bytes;
    c->write_bytes = again ? c->write_bytes | bytes : bytes;
    c->written = emu_time.epoch;
    c->writer = who;
    c->writer_warps = emu_time.warps[me / EMU_WARP];
}

/* -- accesses
 * ------------------------------------------------------------------------ */

/* Whether the memory is allocated. *since: words last written before this epoch
 * count as unwritten; 0: all count as written. */
static bool is_allocated(uintptr_t p, size_t bytes, bool shared,
                         unsigned *since)
{
    const struct emu_memory *m;

    if (shared) {
        size_t at = p - (uintptr_t)emu_window;

        *since = emu_time.block;
        for (size_t i = at / 4; i <= (at + bytes - 1) / 4; i++)
            if (!window_used[i])
                return false;
        return true;
    }
    m = emu_memory_at(p);
    if (m == NULL || p + bytes > m->to)
        return false;
    *since = m->whole || m->pinned ? 0 : m->born;
    return true;
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
    unsigned begin = shared ? emu_time.block : emu_time.launch;

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

static inline void note_memory(uintptr_t p, enum emu_access kind,
                               const void *pc)
{
    struct emu_memory *m = (struct emu_memory *)emu_memory_at(p);

    emu_touch_memory(m, kind, p, pc);
    m->touched = emu_time.epoch;
}

/* An access to global memory within one unit. */
static void note_in_unit(uintptr_t p, uintptr_t end, enum emu_access kind,
                         unsigned since, const void *pc)
{
    struct unit *u = emu_unit_of(p);

    emu_cell_check(&u->all, 15, kind, p, pc);
    u->touched = emu_time.epoch;
    if (u->marked >= since)
        since = 0;
    for (uintptr_t word = p & ~(uintptr_t)3; word < end; word += 4)
        touch(emu_cell_in(u, word), emu_bytes_of(word, p, end), kind, false,
              since, word, pc);
}

void emu_shadow_note(const void *ptr, size_t bytes, enum emu_access kind,
                     const void *pc)
{
    uintptr_t p = (uintptr_t)ptr, end = p + bytes, next;
    bool shared = p - (uintptr_t)emu_window < EMU_WINDOW;
    unsigned since;

    if (!is_allocated(p, bytes, shared, &since)) {
        not_there(p, bytes, shared, kind, pc);
        return;
    }
    if (shared) {
        struct cell *c = &emu_window_cells[(p - (uintptr_t)emu_window) / 4];

        for (uintptr_t word = p & ~(uintptr_t)3; word < end; word += 4)
            touch(c++, emu_bytes_of(word, p, end), kind, true, since, word, pc);
        return;
    }
    note_memory(p, kind, pc);
    for (; p < end; p = next) {
        next = emu_unit_end(p, end);
        note_in_unit(p, next, kind, since, pc);
    }
}

void emu_shadow_begin_copy(const void *p, size_t bytes, const void *pc)
{
    size_t at = (size_t)((const char *)p - emu_window);

    emu_shadow_access(p, bytes, EMU_WRITE, pc);
    for (size_t i = 0; i < bytes / 4; i++)
        emu_window_cells[at / 4 + i].arriving = 1;
}

void emu_shadow_end_copy(const void *p, size_t bytes, const void *pc)
{
    size_t at = (size_t)((const char *)p - emu_window);

    for (size_t i = 0; i < bytes / 4; i++)
        emu_window_cells[at / 4 + i].arriving = 0;
    emu_shadow_access(p, bytes, EMU_WRITE, pc);
}
