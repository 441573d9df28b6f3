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

/* Cells of the device's memory are allocated for pieces of this many bytes. */
#define EMU_PIECE_BITS 20

struct cell *emu_cell_of(uintptr_t p);

/* The cells of each piece; NULL: it has none yet. */
#define EMU_PIECES ((size_t)1 << 28)
extern struct cell **emu_pieces;

/* As emu_cell_of(), NULL where there is no cell yet. */
static inline struct cell *emu_cell_known(uintptr_t p)
{
    struct cell *piece =
        emu_pieces ? emu_pieces[p >> EMU_PIECE_BITS & (EMU_PIECES - 1)] : NULL;

    return piece ? piece + (p & (((size_t)1 << EMU_PIECE_BITS) - 1)) / 4 : NULL;
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

/* Reports if another stream may access these bytes at the same time. */
void emu_cell_check(const struct cell *c, uint8_t bytes, enum emu_access kind,
                    uintptr_t p, const void *pc);

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
