/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_KNOWN_H
#define PLAIT_TESTS_GPU_EMULATED_KNOWN_H

#include "cells.h"

/* What shadow.c knows, for code in line before each access: emulated kernels
 * spend most of their time there. */

#define EMU_WINDOW ((size_t)EMU_SHARED_MOST + (64 << 10))

/* Flags in a cell's `reader` and `writer`, above the thread's number. */
enum { READ_BY_WARP = 0x1000, READ_BY_MANY = 0x2000, ATOMICALLY = 0x4000 };

/* The memory of all arrays in shared memory, and its cells. */
extern char emu_window[EMU_WINDOW];
extern struct cell emu_window_cells[EMU_WINDOW / 4];

/* The running epoch, those in which this launch and this block began, and the
 * barriers that each warp has passed in the running one. */
extern struct emu_time {
    unsigned epoch, launch, block;
    uint16_t warps[EMU_THREADS / EMU_WARP];
} emu_time;

/* Most accesses repeat one: by the same thread or, reads, by its warp or by
 * many, with neither a barrier nor another's access between. Noting them would
 * change nothing, and what they could violate has been checked. */
static inline bool is_known_read(const struct cell *c, uint8_t bytes)
{
    unsigned me = (unsigned)emu_now->number, warp = me / EMU_WARP;

    if (c->read != emu_time.epoch || (c->read_bytes & bytes) != bytes)
        return false;
    if (c->written >= emu_time.epoch &&
        ((c->writer & 0xfff) != me || c->arriving))
        return false;
    if (c->reader & READ_BY_MANY)
        return bytes == 15;
    if (c->reader_warps != emu_time.warps[warp])
        return false;
    return c->reader == me || (bytes == 15 && c->reader & READ_BY_WARP &&
                               (c->reader & 0xfffu) / EMU_WARP == warp);
}

static inline bool is_known_write(const struct cell *c, uint8_t bytes)
{
    unsigned me = (unsigned)emu_now->number;

    return c->written == emu_time.epoch && c->writer == me &&
           c->writer_warps == emu_time.warps[me / EMU_WARP] && !c->arriving &&
           (c->write_bytes & c->filled & bytes) == bytes &&
           (c->read < emu_time.epoch || c->reader == me);
}

static inline bool is_known(uintptr_t p, size_t bytes, enum emu_access kind)
{
    size_t at = p - (uintptr_t)emu_window, n = (bytes + 3) / 4;
    uint8_t mask = bytes < 4 ? (uint8_t)(((1u << bytes) - 1) << p % 4) : 15;
    struct unit *u;
    const struct cell *c;

    /* Cells lie side by side within 16 aligned bytes; a part of one word, or
     * whole words. */
    if (p % 16 + bytes > 16 ||
        (bytes < 4 ? p % 4 + bytes > 4 : (p | bytes) % 4))
        return false;
    if (kind == EMU_ATOMIC)
        return false;
    if (at < EMU_WINDOW)
        c = &emu_window_cells[at / 4];
    else if ((u = emu_unit_known(p)) != NULL)
        c = emu_cell_in(u, p);
    else
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(kind == EMU_READ ? is_known_read(c + i, mask)
                               : is_known_write(c + i, mask)))
            return false;
    return true;
}

/* For emu_shadow_access() alone. */
void emu_shadow_note(const void *p, size_t bytes, enum emu_access kind,
                     const void *pc);

/* Checks and notes the running thread's access to memory. */
static inline void emu_shadow_access(const void *p, size_t bytes,
                                     enum emu_access kind, const void *pc)
{
    if (!is_known((uintptr_t)p, bytes, kind))
        emu_shadow_note(p, bytes, kind, pc);
}

#endif
