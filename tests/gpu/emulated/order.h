/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_ORDER_H
#define PLAIT_TESTS_GPU_EMULATED_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "machine.h"

/* What happens before what. Streams do their work at once here, but a GPU may
 * do it in any order that events and synchronisations leave open. So each
 * stream has a lane, on which its operations are counted, and a vector clock:
 * of each lane, how many operations are done before the stream goes on. An
 * operation may use what another has used only if its clock says so.
 *
 * The host is one, whatever its threads. */

struct emu_clock {
    unsigned at[EMU_LANES];
};

/* The operation under way. */
struct emu_current {
    struct emu_clock clock;
    int lane;
    unsigned tick;
    unsigned from;     /* its first epoch */
    unsigned frontier; /* what was done in epochs up to this is before it */
    const char *name;
};

extern struct emu_current emu_current __attribute__((visibility("hidden")));
/* What is known to the host to be done. */
extern struct emu_clock emu_host __attribute__((visibility("hidden")));

/* `graph`: of what a graph repeats of the stream. */
int emu_lane_new(int stream, bool graph);
void emu_lane_drop(int lane);
/* How many operations it has had. */
unsigned emu_lane_ticks(int lane);

void emu_clock_join(struct emu_clock *clock, const struct emu_clock *other);
/* The next operation of the lane is the current one from here on; `clock` says
 * what is before it, and counts it then. */
void emu_op_begin(struct emu_clock *clock, int lane, const char *name);

/* Whether what was done in that epoch, by an earlier operation, is before the
 * current one: the exact answer, for epochs beyond the frontier. */
bool emu_is_before(unsigned epoch);
/* "NAME on stream N" of what was done then, or of operation `tick`. */
void emu_op_text(unsigned epoch, char *text, size_t size);
void emu_tick_text(int lane, unsigned tick, char *text, size_t size);

/* The host has waited for this, or (NULL) for all. */
void emu_host_waits(const struct emu_clock *clock);

/* Whether the current operation may overlap what was done in that epoch. */
static inline bool emu_is_open(unsigned epoch)
{
    return epoch > emu_current.frontier && epoch < emu_current.from &&
           !emu_is_before(epoch);
}

/* -- what operations use (ranges.c) ---------------------------------------- */

/* The current operation reads or writes there. */
void emu_touch(const void *p, size_t bytes, enum emu_access kind);
/* A kernel is about to access m. */
void emu_touch_memory(struct emu_memory *m, enum emu_access kind, uintptr_t p,
                      const void *pc);
/* Whether all that used m is done; else a fault. */
bool emu_check_unused(const struct emu_memory *m, const char *call);

/* -- copies that the host must not disturb (flight.c) ---------------------- */

/* Around a copy of the emulated GPU's own to or from pinned memory: then the
 * host must leave it alone (writes: not even read it) until it has waited. */
void emu_flight_open(const void *p, size_t bytes);
void emu_flight_start(const void *p, size_t bytes, bool writes);
/* The host has waited for something. */
void emu_flight_land(void);
/* The memory is given back. */
void emu_flight_forget(uintptr_t from, uintptr_t to);

#endif
