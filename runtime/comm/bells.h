/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BELLS_H
#define PLAIT_RUNTIME_COMM_BELLS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

/* The ranks of a world that share this machine, and how one that sleeps is
 * woken: each has a word in memory that they share. Whoever does something that
 * another one may wait for, in whatever group or way, rings that one's bell,
 * which costs a look while nobody sleeps. */
struct plait_bells;

/* Collective over host values of `world`, whose ranks have the same `id`.
 * *bells is NULL where there is no memory for them, on any machine. -1 with
 * errno: the world is lost. */
int plait_bells_create(struct plait_comm *world, uint64_t id,
                       struct plait_bells **bells);
/* NULL-safe, not collective. */
void plait_bells_destroy(struct plait_bells *bells);

/* Whether that rank of the world is on this machine. False of NULL. */
bool plait_bells_near(const struct plait_bells *bells, int rank);
/* The cores where this rank may run, if more ranks than those may, 0 if there
 * are enough, or of NULL; *ranks: how many there are. */
int plait_bells_crowded(const struct plait_bells *bells, int *ranks);

/* After a doze, a ring ends the next rest, or it ends by itself after so many
 * milliseconds. What others did before the doze is seen after it. */
void plait_bells_doze(struct plait_bells *bells);
void plait_bells_rest(struct plait_bells *bells, int ms);
/* What this rank did before it, a near one that then goes to sleep sees. By any
 * thread, and nothing of NULL or of a rank that is not near. */
void plait_bells_ring(struct plait_bells *bells, int rank);

#endif
