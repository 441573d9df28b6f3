/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_CELLS_H
#define PLAIT_TESTS_GPU_EMULATED_CELLS_H

#include <stdint.h>

#include "order.h"

/* What is known of a word of memory. */
struct cell {
    unsigned written, read; /* epochs */
    unsigned elsewhere;     /* a launch in which other blocks read it */
    unsigned read_also;     /* by another stream, with nothing between */
    uint16_t writer, reader;
    uint16_t writer_warps, reader_warps; /* the warp's count of barriers */
    /* Bytes, a bit each, of those above; that hold something. */
    uint8_t write_bytes : 4, read_bytes : 4;
    uint8_t elsewhere_bytes : 4, filled : 4;
    uint8_t also_bytes;
    uint8_t arriving; /* an asynchronous copy is */
};

/* The device's memory has them in pieces of so many bytes. */
#define EMU_PIECE_BITS 20

struct cell *emu_cell_of(uintptr_t p);

/* Reports what another stream may do to these bytes meanwhile. */
void emu_cell_check(const struct cell *c, uint8_t bytes, enum emu_access kind,
                    uintptr_t p, const void *pc);

/* A read by the current operation is about to be noted: one that may overlap
 * it must not be forgotten. */
static inline void emu_cell_keep_read(struct cell *c)
{
    if (!emu_is_open(c->read))
        return;
    c->read_also = c->read;
    c->also_bytes = c->read_bytes;
}

#endif
