/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_HANG_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_HANG_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "runtime/comm/world.h"
#include "runtime/stuck/judge.h"

/* The records of this rank and of the others on its node, and what they say
 * when the run hangs (runtime/stuck/judge.h). */
struct plait_hang;

/* Makes this rank's record, in which groups that are split off `world`
 * afterwards are noted, and opens the records of the other ranks of this node.
 * Where the kernel has no such memory, nothing is noted. Collective. NULL with
 * err. */
struct plait_hang *plait_hang_create(const struct plait_world *world,
                                     struct plait_error *err);
/* Call it after the world's communicators are gone. NULL-safe. */
void plait_hang_destroy(struct plait_hang *hang);

/* Starts the heartbeats between the nodes of the run, as far as they reach each
 * other (heartbeat.h). Local. */
void plait_hang_listen(struct plait_hang *hang);
/* Notes that this rank's watch thread runs, so that other ranks know that it
 * can report. */
void plait_hang_alive(struct plait_hang *hang);
/* Whether this rank is the lowest of its node's ranks whose watch runs. */
bool plait_hang_speaks(const struct plait_hang *hang);
/* "node7, GPU 3" of a rank. */
void plait_hang_where(const struct plait_hang *hang, int rank, char *text,
                      size_t size);
/* Whether this node is the first of those that are alive. */
bool plait_hang_is_first_node(const struct plait_hang *hang);
/* Whether it is the lowest of all ranks of its node: one whose watch does not
 * seem to run may only be late. */
bool plait_hang_is_lowest(const struct plait_hang *hang);
/* Note what the training thread is blocked in, for whoever reports. */
void plait_hang_note(struct plait_hang *hang);
/* One sentence: which rank the others wait for. Other nodes are asked about
 * their ranks, for a second at most. */
void plait_hang_explain(const struct plait_hang *hang, char *text, size_t size);
/* Thread `tid` reads and writes at all times, whatever the run does: that does
 * not count. Of two at most, `i` 0 and 1. 0: none. */
void plait_hang_except(struct plait_hang *hang, int i, int tid);
/* Notes whether this process has done anything since the last call: entered an
 * operation, gone into another phase, read or written. Call it from the watch
 * thread, whose own reading does not count. */
void plait_hang_move(struct plait_hang *hang);
/* The same, where the process was stopped and could do nothing. */
void plait_hang_moved(struct plait_hang *hang);
/* Seconds since a rank has done anything: of this node, or of all nodes, which
 * are asked for a second at most. */
double plait_hang_idle(const struct plait_hang *hang, bool all);
/* Seconds that one of this node's ranks has waited for others; 0: none does. */
double plait_hang_waits(const struct plait_hang *hang);
/* Whether ranks wait for each other, so that they can never go on
 * (runtime/stuck/proof.h), and a sentence about it. `all`: other nodes are
 * asked, for a second at most. It is true if it is found again later with the
 * same mark. */
bool plait_hang_prove(const struct plait_hang *hang, bool all, uint64_t *mark,
                      char *text, size_t size);
/* How many nodes the run has. */
int plait_hang_nodes(const struct plait_hang *hang);
/* Whether another node has told that the run ends. */
bool plait_hang_ended(const struct plait_hang *hang);
/* Whether this process, which was continued from a stop `seconds` ago, is left:
 * no other node is alive, and no rank of this one has done anything since. The
 * nodes may have told that the run ends while it could not listen. */
bool plait_hang_is_left(const struct plait_hang *hang, double seconds);
/* Why there will be no heartbeats between the nodes; NULL: there will, or there
 * is one node. */
const char *plait_hang_unheard(const struct plait_hang *hang);
/* For how long nothing has been heard of a rank's node that was heard before;
 * 0: it is alive, or nothing is known. */
double plait_hang_silence(const struct plait_hang *hang, int rank);

/* Whether this rank is to report why the run ends. A run that has lost a rank
 * ends with one line; where all ranks notice at once, it comes from the lowest
 * rank that is left, on the first node that is left. Waits for lower ranks to
 * report, three seconds at most. */
bool plait_hang_tells(const struct plait_hang *hang);
/* Notes that this rank has reported why the run ends, so that no other does. */
void plait_hang_tell(struct plait_hang *hang);
/* The same on this node alone: the rank has failed, and perhaps all have. */
void plait_hang_tell_here(struct plait_hang *hang);
/* As plait_hang_tell(), and all ranks are to end at once, without a word: none
 * can go on, not even in an elastic run. */
void plait_hang_tell_over(struct plait_hang *hang);
/* Whether a rank of this node has told so, or another node that the run
 * ends. */
bool plait_hang_over(const struct plait_hang *hang);
/* Whether a rank of this node has reported. */
bool plait_hang_told(const struct plait_hang *hang);
/* "rank 2 (node7, process 4711)", of this node's ranks that have ended; false:
 * none has. */
bool plait_hang_gone(const struct plait_hang *hang, char *text, size_t size);

#endif
