/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_WATCHDOG_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_WATCHDOG_H

#include "runtime/train/watchdog/hang.h"

/* A rank that hangs, in a disk or a network that no longer answers, would make
 * all others wait for it until the job's time limit. A thread of each rank ends
 * the run
 * - when ranks wait for each other, so that none can ever go on
 *   (plait_hang_prove()): a few seconds later, and for all ranks of an elastic
 *   run too;
 * - when no step has ended within its limit;
 * - when nothing has moved in any rank for long, whatever the run does.
 * The lowest rank that still can says in one line which rank the others wait
 * for, and where that one is. Time in which the process was stopped as a whole
 * does not count. */
struct plait_watchdog;

/* World and hang outlive it. Steps have no limit yet, and what may stand still
 * has ten minutes. NULL with err. */
struct plait_watchdog *plait_watchdog_create(struct plait_comm *world,
                                             struct plait_hang *hang,
                                             struct plait_error *err);
/* With PLAIT_WATCHDOG_AUTO the limit of steps is learned: 20 times the median
 * step, at least a minute, times `growth`, the factor by which steps may still
 * grow. There is none before five steps have ended, and none while something
 * else is done than steps. 0: there is none at all. */
#define PLAIT_WATCHDOG_AUTO (-1)
void plait_watchdog_limit_steps(struct plait_watchdog *dog, int seconds,
                                double growth);
/* Seconds in which some rank must do something: enter an operation, go into
 * another phase, read or write. A larger limit of steps holds in its place. 0:
 * there is no limit. NULL-safe, as the rest. */
void plait_watchdog_limit_phases(struct plait_watchdog *dog, int seconds);
/* For an elastic run: in place of ending the run, the watch makes every
 * transfer of the world fail, as if a rank were lost. */
void plait_watchdog_spare(struct plait_watchdog *dog);
/* Whether the watch has done that, or another rank's may have: the step has
 * taken nearly as long as the limit. */
bool plait_watchdog_hung(struct plait_watchdog *dog);
/* What is done now, before the first step, such as "opening the data": it has
 * the limit of steps that was given. NULL: something without. The text outlives
 * it. */
void plait_watchdog_stage(struct plait_watchdog *dog, const char *what);
/* Step `step`, counted from 1, begins. From now on a learned limit applies. */
void plait_watchdog_begin(struct plait_watchdog *dog, int64_t step);
/* The step itself has ended: evaluation and checkpoint may follow. */
void plait_watchdog_end(struct plait_watchdog *dog);
/* The last step has ended: steps have no limit any more. */
void plait_watchdog_finish(struct plait_watchdog *dog);
void plait_watchdog_destroy(struct plait_watchdog *dog);

/* 20 times the median of the n times, at least 60 s; 0: too few to say. Pure.
 */
double plait_watchdog_limit(const double *seconds, int n);

#endif
