/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_HANG_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_HANG_H

#include <stdbool.h>
#include <time.h>

#include "runtime/comm/world.h"
#include "runtime/stuck/judge.h"

/* The records of this rank and of the others on its node, and what they say
 * when the run hangs (runtime/stuck/judge.h). */
struct plait_hang;

/* Makes this rank's record, where the groups of `world` that are split off
 * afterwards are noted, and finds the others'. Where the kernel has no such
 * memory, nothing is noted. Collective. NULL with err. */
struct plait_hang *plait_hang_create(const struct plait_world *world,
                                     struct plait_error *err);
/* After the world's communicators. NULL-safe. */
void plait_hang_destroy(struct plait_hang *hang);

/* From now on the nodes of the run hear of each other, as far as they can
 * (heartbeat.h), and ranks of others are known too. Local. */
void plait_hang_listen(struct plait_hang *hang);
/* This rank's watch runs: the others see that it could report. */
void plait_hang_alive(struct plait_hang *hang);
/* Of the ranks of this node whose watch runs, this one is the lowest. */
bool plait_hang_speaks(const struct plait_hang *hang);
/* "node7, GPU 3" of a rank. */
void plait_hang_where(const struct plait_hang *hang, int rank, char *text,
                      size_t size);
/* Of the nodes that are alive, this is the first. */
bool plait_hang_is_first_node(const struct plait_hang *hang);
/* Nor is there a lower one whose watch does not run: it may only be late. */
bool plait_hang_is_lowest(const struct plait_hang *hang);
/* Note what the training thread is blocked in, for whoever reports. */
void plait_hang_note(struct plait_hang *hang);
/* One sentence: who the ranks wait for. Those of other nodes are asked, for a
 * second at most. */
void plait_hang_explain(const struct plait_hang *hang, char *text, size_t size);
/* Tells the other nodes that the run ends. */
void plait_hang_end(const struct plait_hang *hang);
/* Another node has told. */
bool plait_hang_ended(const struct plait_hang *hang);
/* `seconds` after this process was continued that had been stopped: no other
 * node is left. They may have told that the run ends when nobody here listened.
 */
bool plait_hang_is_left(const struct plait_hang *hang, double seconds);
/* Why the nodes of the run will not hear of each other, NULL: they will, or
 * there is one. */
const char *plait_hang_unheard(const struct plait_hang *hang);
/* For how long nothing has been heard of a rank's node, which had been heard;
 * 0: it is alive, or nothing is known. */
double plait_hang_silence(const struct plait_hang *hang, int rank);

/* A run that has lost a rank ends with one line. Where all ranks notice at
 * once, the lowest that is left has it, of the first node that is left: whether
 * that is this one. Waits for lower ones to say it, three seconds at most. */
bool plait_hang_tells(const struct plait_hang *hang);
/* This rank has said why the run ends: nobody else need. */
void plait_hang_tell(struct plait_hang *hang);
/* A rank of this node has. */
bool plait_hang_told(const struct plait_hang *hang);
/* "rank 2 (node7, process 4711)", of this node's ranks that have ended; false:
 * none has. */
bool plait_hang_gone(const struct plait_hang *hang, char *text, size_t size);

#endif
