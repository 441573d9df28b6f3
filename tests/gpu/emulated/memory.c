/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the GPU and pinned memory of the host. An allocation takes whole
 * units with a gap before and after its bytes. Freed units are reused as late
 * as the range allows. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cells.h"

/* cudaMalloc's alignment and no better, so that code which needs more fails. */
#define ALIGN ((size_t)256)

char *emu_range;
static struct emu_memory *owner[EMU_UNITS];
static size_t next_unit;
static unsigned made;

static bool reserve(void)
{
    char *p;

    if (emu_range != NULL)
        return true;
    p = mmap(NULL, (EMU_UNITS + 1) * EMU_UNIT, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    emu_range = p + EMU_UNIT - (uintptr_t)p % EMU_UNIT;
    return true;
}

bool emu_memory_is(const void *p)
{
    return emu_range != NULL &&
           (size_t)((const char *)p - emu_range) < EMU_UNITS * EMU_UNIT;
}

const struct emu_memory *emu_memory_at(uintptr_t p)
{
    const struct emu_memory *m;

    if (!emu_memory_is((const void *)p))
        return NULL;
    m = owner[(p - (uintptr_t)emu_range) / EMU_UNIT];
    return m != NULL && p >= m->from && p < m->to ? m : NULL;
}

/* The first of n consecutive free units, from next_unit on; EMU_UNITS: none. */
static size_t find_units(size_t n)
{
    for (int pass = 0; pass < 2; pass++) {
        size_t from = pass == 0 ? next_unit : 0, free = 0;

        for (size_t i = from; i < EMU_UNITS; i++) {
            free = owner[i] == NULL ? free + 1 : 0;
            if (free == n)
                return i + 1 - n;
        }
    }
    return EMU_UNITS;
}

void *emu_memory_new(size_t bytes, bool pinned)
{
    size_t n = (bytes + 2 * ALIGN + EMU_UNIT - 1) / EMU_UNIT, at;
    struct emu_memory *m = calloc(1, sizeof(*m));

    if (m == NULL || !reserve() || (at = find_units(n)) == EMU_UNITS) {
        free(m);
        return NULL;
    }
    m->from = (uintptr_t)emu_range + at * EMU_UNIT + ALIGN;
    m->to = m->from + bytes;
    m->born = emu_shadow_epoch();
    m->pinned = pinned;
    m->number = ++made;
    for (size_t i = 0; i < n; i++)
        owner[at + i] = m;
    next_unit = at + n;
    /* Fill with NaNs of all types, for reads that are not checked. */
    memset((void *)m->from, 0xff, bytes < EMU_UNIT ? bytes : EMU_UNIT);
    return (void *)m->from;
}

int emu_memory_free(void *ptr, bool pinned)
{
    size_t at = (size_t)((char *)ptr - emu_range) / EMU_UNIT;
    struct emu_memory *m = emu_memory_is(ptr) ? owner[at] : NULL;
    size_t n;

    if (m == NULL || m->from != (uintptr_t)ptr || m->pinned != pinned)
        return -1;
    n = (m->to - m->from + 2 * ALIGN + EMU_UNIT - 1) / EMU_UNIT;
    for (size_t i = 0; i < n; i++) {
        owner[at + i] = NULL;
        emu_unit_free((uintptr_t)emu_range + (at + i) * EMU_UNIT);
    }
    emu_flight_forget(m->from, m->to);
    madvise(emu_range + at * EMU_UNIT, n * EMU_UNIT, MADV_DONTNEED);
    free(m);
    return 0;
}

bool emu_memory_check(const void *p, size_t bytes, const char *what)
{
    const struct emu_memory *m = emu_memory_at((uintptr_t)p);

    if (bytes == 0)
        return true;
    if (m != NULL && (uintptr_t)p + bytes <= m->to)
        return true;
    if (m == NULL)
        emu_fault("%s: %p is no memory of the device", what, p);
    else
        emu_fault("%s: %zu bytes at byte %zu of %zu", what, bytes,
                  (size_t)((uintptr_t)p - m->from), (size_t)(m->to - m->from));
    return false;
}

bool emu_memory_filled(const void *p, size_t bytes, const char *what)
{
    const struct emu_memory *m = emu_memory_at((uintptr_t)p);

    if (!emu_memory_check(p, bytes, what))
        return false;
    if (bytes == 0 || m->whole || m->pinned ||
        emu_shadow_marked((uintptr_t)p, bytes, m->born))
        return true;
    emu_fault("%s: read memory that nobody has written", what);
    return false;
}

void emu_memory_written(const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p;
    struct emu_memory *m = (struct emu_memory *)emu_memory_at(at);

    if (m == NULL || bytes == 0 || m->whole || m->pinned)
        return;
    if (at == m->from && at + bytes == m->to)
        m->whole = true;
    else
        emu_shadow_mark(at, bytes);
}
