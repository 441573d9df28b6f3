/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_SLICE_H
#define PLAIT_RUNTIME_COMM_SHM_SLICE_H

/* The time slice that ranks ask for, in nanoseconds: the shortest that Linux
 * grants. */
enum { PLAIT_SLICE_NS = 100000 };

/* Asks for short time slices for the calling thread and for threads that it
 * starts later. On a core that others compute on, each message costs a waiting
 * rank a whole slice of theirs (3 ms); with a short slice of its own it runs as
 * soon as its turn allows: beside nine other processes a training of four small
 * ranks took a seventh of the time. Its share of the core does not change, nor
 * does anything on a core that it has alone. Linux before 6.12 has no such
 * slices: then this does nothing. Threads with a real-time or idle policy are
 * left alone. */
void plait_slice_shorten(void);

#endif
