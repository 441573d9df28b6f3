/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_CELLS_H
#define PLAIT_TESTS_GPU_EMULATED_CELLS_H

#include <stdint.h>

#include "order.h"

/* What is known of a 4-byte word of memory. */
struct cell {
    unsigned written, read; /* the last writing and reading epoch */
    unsigned elsewhere; /* launch epoch in which other blocks read it, too */
    unsigned read_also; /* epoch of an unordered read by another stream */
    uint16_t writer, reader;
    uint16_t writer_warps, reader_warps; /* barriers passed by its warp */
    /* Bit masks of the word's bytes for the accesses above; filled: bytes that
     * have been written. */
    uint8_t write_bytes : 4, read_bytes : 4;
    uint8_t elsewhere_bytes : 4, filled : 4;
    uint8_t also_bytes;
    uint8_t arriving; /* an asynchronous copy to it is under way */
};

/* What is known of a unit of memory. Operations other than kernels that use all
 * of an allocation in the unit are noted once, in `all`; other accesses in the
 * cells of their words. */
struct unit {
    struct cell all;  /* its bytes stand for those of every word */
    unsigned marked;  /* the last epoch in which emu_shadow_mark() had it all */
    unsigned touched; /* the last epoch noted in a word's cell */
    struct cell cells[EMU_UNIT / 4];
};

/* By address within emu_range; NULL: nothing is known yet. */
extern struct unit *emu_units[EMU_UNITS];

/* The unit of an address in an allocation; made when first needed. */
struct unit *emu_unit_of(uintptr_t p);
/* The memory of this unit has been freed. */
void emu_unit_free(uintptr_t p);

/* NULL also for an address outside of the range. */
static inline struct unit *emu_unit_known(uintptr_t p)
{
    size_t at = (p - (uintptr_t)emu_range) / EMU_UNIT;

    return at < EMU_UNITS ? emu_units[at] : NULL;
}

/* The end of p's unit, or of what is accessed. */
static inline uintptr_t emu_unit_end(uintptr_t p, uintptr_t end)
{
    uintptr_t next = (p / EMU_UNIT + 1) * EMU_UNIT;

    return next < end ? next : end;
}

static inline struct cell *emu_cell_in(struct unit *u, uintptr_t p)
{
    return u->cells + p % EMU_UNIT / 4;
}

/* The bit mask of the bytes of the word at `word` that are in [p, end). */
static inline uint8_t emu_bytes_of(uintptr_t word, uintptr_t p, uintptr_t end)
{
    uint8_t mask = 15;

    if (word < p)
        mask &= (uint8_t)(15u << (p - word));
    if (word + 4 > end)
        mask &= (uint8_t)(15u >> (word + 4 - end));
    return mask;
}

/* Reports that the current operation accesses p while another stream, in that
 * epoch, may be doing what `other` says. */
void emu_report_open(enum emu_access kind, const char *other, unsigned epoch,
                     uintptr_t p, const void *pc);

/* Reports if another stream may access these bytes at the same time. */
static inline void emu_cell_check(const struct cell *c, uint8_t bytes,
                                  enum emu_access kind, uintptr_t p,
                                  const void *pc)
{
    if (c->write_bytes & bytes && emu_is_open(c->written))
        emu_report_open(kind, "writes", c->written, p, pc);
    if (kind == EMU_READ)
        return;
    if (c->read_bytes & bytes && emu_is_open(c->read))
        emu_report_open(kind, "reads", c->read, p, pc);
    if (c->also_bytes & bytes && emu_is_open(c->read_also))
        emu_report_open(kind, "reads", c->read_also, p, pc);
}

/* To be called before a read by the current operation is noted in the cell:
 * keeps the previous read if it may overlap this one. */
static inline void emu_cell_keep_read(struct cell *c)
{
    if (!emu_is_open(c->read))
        return;
    c->read_also = c->read;
    c->also_bytes = c->read_bytes;
}

#endif
