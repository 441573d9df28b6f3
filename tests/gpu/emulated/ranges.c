/* SPDX-License-Identifier: Apache-2.0 */
/* Finds memory that two streams use without an order between them. Kernels come
 * here for each word (shadow.c), copies, products and transfers with ranges. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cells.h"

struct unit *emu_units[EMU_UNITS];
/* Units of freed memory. All that is in them is older than any memory that they
 * will be for. */
static struct unit *spare[EMU_UNITS];
static size_t nspare;

struct unit *emu_unit_of(uintptr_t p)
{
    struct unit **u = &emu_units[(p - (uintptr_t)emu_range) / EMU_UNIT];

    if (*u != NULL)
        return *u;
    if (nspare > 0)
        return *u = spare[--nspare];
    /* not calloc(): what is not touched takes no memory */
    *u = mmap(NULL, sizeof(**u), PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*u == MAP_FAILED)
        abort();
    return *u;
}

void emu_unit_free(uintptr_t p)
{
    struct unit **u = &emu_units[(p - (uintptr_t)emu_range) / EMU_UNIT];

    if (*u != NULL)
        spare[nspare++] = *u;
    *u = NULL;
}

/* Whether [p, end), which is in one unit, is all that m has there. */
static bool is_whole(const struct emu_memory *m, uintptr_t p, uintptr_t end)
{
    return (p == m->from || p % EMU_UNIT == 0) &&
           (end == m->to || end % EMU_UNIT == 0);
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

void emu_report_open(enum emu_access kind, const char *other, unsigned epoch,
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

void emu_touch_memory(struct emu_memory *m, enum emu_access kind, uintptr_t p,
                      const void *pc)
{
    m->use[emu_current.lane] = emu_current.tick;
    if (emu_is_open(m->all_written))
        emu_report_open(kind, "writes", m->all_written, p, pc);
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

/* The part of an access that is in one unit. all: it is noted elsewhere. */
static void touch_unit(const struct emu_memory *m, uintptr_t p, uintptr_t end,
                       enum emu_access kind, bool all)
{
    struct unit *u = emu_unit_of(p);
    bool check = u->touched > emu_current.frontier;
    bool whole = is_whole(m, p, end);

    emu_cell_check(&u->all, 15, kind, p, NULL);
    for (uintptr_t word = p & ~(uintptr_t)3;
         word < end && (check || !(all || whole)) && emu_faulted() == NULL;
         word += 4) {
        struct cell *c = emu_cell_in(u, word);
        uint8_t mask = emu_bytes_of(word, p, end);

        if (check)
            emu_cell_check(c, mask, kind, word < p ? p : word, NULL);
        if (!all && !whole)
            note(c, mask, kind);
    }
    if (all)
        return;
    if (whole)
        note(&u->all, 15, kind);
    else
        u->touched = emu_current.from;
}

void emu_touch(const void *ptr, size_t bytes, enum emu_access kind)
{
    uintptr_t p = (uintptr_t)ptr, end = p + bytes, next;
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
    for (; p < end && emu_faulted() == NULL; p = next) {
        next = emu_unit_end(p, end);
        touch_unit(m, p, next, kind, all);
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
    const struct emu_memory *m = emu_memory_at(p);
    unsigned epoch = emu_shadow_epoch();
    uintptr_t end = p + bytes, next;

    for (; p < end; p = next) {
        struct unit *u = emu_unit_of(p);

        next = emu_unit_end(p, end);
        if (is_whole(m, p, next)) {
            u->marked = epoch;
            continue;
        }
        for (uintptr_t word = p & ~(uintptr_t)3; word < next; word += 4) {
            emu_cell_in(u, word)->written = epoch;
            emu_cell_in(u, word)->filled = 15;
        }
    }
}

bool emu_shadow_marked(uintptr_t p, size_t bytes, unsigned born)
{
    uintptr_t end = p + bytes, next;

    for (; p < end; p = next) {
        struct unit *u = emu_unit_of(p);

        next = emu_unit_end(p, end);
        if (u->marked >= born)
            continue;
        for (uintptr_t word = p & ~(uintptr_t)3; word < next; word += 4) {
            const struct cell *c = emu_cell_in(u, word);

            if (c->written < born || c->filled == 0)
                return false;
        }
    }
    return true;
}
