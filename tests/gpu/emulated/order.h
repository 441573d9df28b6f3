/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_ORDER_H
#define PLAIT_TESTS_GPU_EMULATED_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "machine.h"

/* Which operation happens before which. Streams do their work at once here, but
 * a GPU may do it in any order that events and synchronisations leave open. So
 * each stream has a lane, which counts its operations, and a vector clock: for
 * each lane, how many of its operations are done before the stream goes on. An
 * operation may use what another has used only if its clock covers that one.
 *
 * The host has one clock for all of its threads. */

struct emu_clock {
    unsigned at[EMU_LANES];
};

/* The operation that runs. */
struct emu_current {
    struct emu_clock clock;
    int lane;
    unsigned tick;
    unsigned from;     /* its first epoch */
    unsigned frontier; /* all operations up to this epoch come before it */
    const char *name;
};

extern struct emu_current emu_current __attribute__((visibility("hidden")));
/* Operations that the host knows to be complete. */
extern struct emu_clock emu_host __attribute__((visibility("hidden")));

/* graph: for the operations that a graph repeats of that stream. */
int emu_lane_new(int stream, bool graph);
void emu_lane_drop(int lane);
/* How many operations the lane has had. */
unsigned emu_lane_ticks(int lane);

void emu_clock_join(struct emu_clock *clock, const struct emu_clock *other);
/* Makes the next operation of the lane the current one. clock: what comes
 * before it; then also counts the operation itself. */
void emu_op_begin(struct emu_clock *clock, int lane, const char *name);

/* Whether the operation of an earlier epoch comes before the current one. The
 * exact answer, needed for epochs beyond the frontier. */
bool emu_is_before(unsigned epoch);
/* "NAME on stream N" of the operation in that epoch, or of the lane's operation
 * `tick`. */
void emu_op_text(unsigned epoch, char *text, size_t size);
void emu_tick_text(int lane, unsigned tick, char *text, size_t size);

/* The host has waited for what the clock counts; NULL: for everything. */
void emu_host_waits(const struct emu_clock *clock);

/* Whether the current operation may overlap the operation of that epoch. */
static inline bool emu_is_open(unsigned epoch)
{
    return epoch > emu_current.frontier && epoch < emu_current.from &&
           !emu_is_before(epoch);
}

/* -- memory that operations use (ranges.c) --------------------------------- */

/* Checks and notes that the current operation reads or writes this memory. */
void emu_touch(const void *p, size_t bytes, enum emu_access kind);
/* Checks an allocation that a kernel is about to access, and notes its use. */
void emu_touch_memory(struct emu_memory *m, enum emu_access kind, uintptr_t p,
                      const void *pc);
/* Whether the host has waited for all that used m; else a fault. */
bool emu_check_unused(const struct emu_memory *m, const char *call);

/* -- pinned buffers of copies (flight.c) ----------------------------------- */

/* The emulated GPU's own copy to or from pinned memory: open before it, start
 * after it. Then the host must not write the memory (writes: nor read it) until
 * it has waited for the copy. */
void emu_flight_open(const void *p, size_t bytes);
void emu_flight_start(const void *p, size_t bytes, bool writes);
/* To be called when the host has waited for something. */
void emu_flight_land(void);
/* To be called when memory is freed. */
void emu_flight_forget(uintptr_t from, uintptr_t to);

#endif
