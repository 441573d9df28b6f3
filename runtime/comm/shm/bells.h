/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_BELLS_H
#define PLAIT_RUNTIME_COMM_SHM_BELLS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

/* Wakes sleeping ranks of this machine. Each rank of a world has a word, its
 * bell, in memory that those of its machine share. A rank that has done
 * something that another may wait for, in whatever group, rings the other's
 * bell. While nobody sleeps that costs one read. */
struct plait_bells;

/* Collective over host values of `world`, whose ranks pass the same `id`.
 * *bells becomes NULL if some machine has no shared memory left. -1 with errno:
 * the world is lost. */
int plait_bells_create(struct plait_comm *world, uint64_t id,
                       struct plait_bells **bells);
/* `bells` may be NULL. Not collective. */
void plait_bells_destroy(struct plait_bells *bells);

/* Whether that rank of the world is on this machine; false if `bells` is
 * NULL. */
bool plait_bells_near(const struct plait_bells *bells, int rank);
/* How many cores this rank may run on, if more ranks than cores may run there;
 * *ranks: how many ranks. 0 if there are enough cores, or if `bells` is
 * NULL. */
int plait_bells_crowded(const struct plait_bells *bells, int *ranks);

/* A rank that wants to sleep calls doze, looks once more for something to do,
 * and then calls rest. It then misses nothing: what others did before the doze
 * is seen by that look, and a ring after the doze ends the rest, which lasts at
 * most `ms` milliseconds. */
void plait_bells_doze(struct plait_bells *bells);
void plait_bells_rest(struct plait_bells *bells, int ms);
/* Wakes the rank if it dozes. A rank that goes to sleep later sees what this
 * one did before the ring. Any thread. Does nothing if `bells` is NULL or the
 * rank is on another machine. */
void plait_bells_ring(struct plait_bells *bells, int rank);

#endif
