/* SPDX-License-Identifier: Apache-2.0 */
/* Finds memory that two streams use without an order between them. Kernels come
 * here for each word (shadow.c), copies, products and transfers with ranges. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#include "cells.h"

struct cell **emu_pieces;

/* The cell of an address; pieces of cells are allocated when first needed. */
struct cell *emu_cell_of(uintptr_t p)
{
    size_t at = p >> EMU_PIECE_BITS & (EMU_PIECES - 1);
    struct cell *c = emu_cell_known(p);

    if (c != NULL)
        return c;
    if (emu_pieces == NULL)
        emu_pieces =
            mmap(NULL, EMU_PIECES * sizeof(*emu_pieces), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    emu_pieces[at] =
        mmap(NULL, ((size_t)1 << EMU_PIECE_BITS) / 4 * sizeof(struct cell),
             PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return emu_cell_known(p);
}

/* The cells of the words of [p, end), as many as lie side by side: *n. */
static struct cell *cells_of(uintptr_t p, uintptr_t end, size_t *n)
{
    uintptr_t piece = (p | (((uintptr_t)1 << EMU_PIECE_BITS) - 1)) + 1;

    *n = ((end < piece ? end : piece) - (p & ~(uintptr_t)3) + 3) / 4;
    return emu_cell_of(p);
}

/* -- two streams -------------------------------------------------------------
 */

/* "byte 16 of allocation 12 (4096 bytes)" */
static void place_text(uintptr_t p, char *text, size_t size)
{
    const struct emu_memory *m = emu_memory_at(p);

    if (m != NULL)
        snprintf(text, size, "byte %zu of allocation %u (%zu bytes%s)",
                 (size_t)(p - m->from), m->number, (size_t)(m->to - m->from),
                 m->pinned ? ", the host's" : "");
    else
        snprintf(text, size, "memory");
}

static void report(enum emu_access kind, const char *other, unsigned epoch,
                   uintptr_t p, const void *pc)
{
    char mine[200], theirs[200] = "", place[100];

    emu_tick_text(emu_current.lane, emu_current.tick, mine, sizeof(mine));
    emu_op_text(epoch, theirs, sizeof(theirs));
    place_text(p, place, sizeof(place));
    emu_fault_at(pc,
                 "streams: %s %s %s, which %s %s: neither an event nor a "
                 "synchronisation between",
                 mine, kind == EMU_READ ? "reads" : "writes", place, theirs,
                 other);
}

void emu_cell_check(const struct cell *c, uint8_t bytes, enum emu_access kind,
                    uintptr_t p, const void *pc)
{
    if (c->write_bytes & bytes && emu_is_open(c->written))
        report(kind, "writes", c->written, p, pc);
    if (kind == EMU_READ)
        return;
    if (c->read_bytes & bytes && emu_is_open(c->read))
        report(kind, "reads", c->read, p, pc);
    if (c->also_bytes & bytes && emu_is_open(c->read_also))
        report(kind, "reads", c->read_also, p, pc);
}

void emu_touch_memory(struct emu_memory *m, enum emu_access kind, uintptr_t p,
                      const void *pc)
{
    m->use[emu_current.lane] = emu_current.tick;
    if (emu_is_open(m->all_written))
        report(kind, "writes", m->all_written, p, pc);
}

static void note(struct cell *c, uint8_t bytes, enum emu_access kind)
{
    if (kind == EMU_READ) {
        emu_cell_keep_read(c);
        c->read = emu_current.from;
        c->read_bytes = bytes & 15;
    } else {
        c->written = emu_current.from;
        c->write_bytes = bytes & 15;
    }
}

void emu_touch(const void *ptr, size_t bytes, enum emu_access kind)
{
    uintptr_t p = (uintptr_t)ptr, end = p + bytes;
    struct emu_memory *m = (struct emu_memory *)emu_memory_at(p);
    bool check, all;

    if (m == NULL || bytes == 0 || emu_faulted() != NULL)
        return;
    all = p == m->from && end == m->to && kind != EMU_READ;
    check = m->touched > emu_current.frontier;
    emu_touch_memory(m, kind, p, NULL);
    m->touched = emu_current.from;
    if (all)
        m->all_written = emu_current.from;
    if (all && !check)
        return;
    for (uintptr_t word = p & ~(uintptr_t)3; word < end;) {
        size_t n;

        for (struct cell *c = cells_of(word, end, &n); n > 0; n--, c++) {
            uint8_t mask = emu_bytes_of(word, p, end);

            if (check) {
                emu_cell_check(c, mask, kind, word < p ? p : word, NULL);
                if (emu_faulted() != NULL)
                    return;
            }
            if (!all)
                note(c, mask, kind);
            word += 4;
        }
    }
}

bool emu_check_unused(const struct emu_memory *m, const char *call)
{
    char text[200];

    for (int i = 0; i < EMU_LANES; i++) {
        if (m->use[i] <= emu_host.at[i])
            continue;
        emu_tick_text(i, m->use[i], text, sizeof(text));
        emu_fault("%s: allocation %u (%zu bytes) is given back while %s may "
                  "use it: it was not waited for",
                  call, m->number, (size_t)(m->to - m->from), text);
        return false;
    }
    return true;
}

/* -- memory written by something other than kernels ------------------------ */

void emu_shadow_mark(uintptr_t p, size_t bytes)
{
    unsigned epoch = emu_shadow_epoch();
    size_t n;

    for (uintptr_t at = p & ~(uintptr_t)3; at < p + bytes; at += 4 * n) {
        struct cell *c = cells_of(at, p + bytes, &n);

        for (size_t i = 0; i < n; i++) {
            c[i].written = epoch;
            c[i].filled = 15;
        }
    }
}

bool emu_shadow_marked(uintptr_t p, size_t bytes, unsigned born)
{
    size_t n;

    for (uintptr_t at = p & ~(uintptr_t)3; at < p + bytes; at += 4 * n) {
        const struct cell *c = cells_of(at, p + bytes, &n);

        for (size_t i = 0; i < n; i++)
            if (c[i].written < born || c[i].filled == 0)
                return false;
    }
    return true;
}
