/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_WATCHDOG_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_WATCHDOG_H

#include "runtime/train/watchdog/hang.h"

/* A rank that hangs, in a disk or a network that no longer answers, would make
 * all others wait for it until the job's time limit. A thread of each rank
 * ends the run when no step has ended for `seconds`; the lowest rank that still
 * can says in one line which rank the others wait for, and where that one is.
 *
 * With PLAIT_WATCHDOG_AUTO the limit is learned: 20 times the median step, at
 * least a minute. There is none before five steps have ended, and none while
 * something else is done than steps and stages. Time in which the process was
 * stopped as a whole does not count. */
#define PLAIT_WATCHDOG_AUTO (-1)
struct plait_watchdog;

/* World and hang outlive it. A learned limit is multiplied by `growth`, the
 * factor by which steps may still grow. NULL with err. */
struct plait_watchdog *plait_watchdog_create(struct plait_comm *world,
                                             struct plait_hang *hang,
                                             int seconds, double growth,
                                             struct plait_error *err);
/* For an elastic run: in place of ending the run, the watch makes every
 * transfer of the world fail, as if a rank were lost. */
void plait_watchdog_spare(struct plait_watchdog *dog);
/* Whether the watch has done that, or another rank's may have: the step has
 * taken nearly as long as the limit. */
bool plait_watchdog_hung(struct plait_watchdog *dog);
/* What is done now, before the first step, such as "opening the data": it has
 * the limit that was given, or with PLAIT_WATCHDOG_AUTO ten minutes. NULL:
 * something without a limit. The text outlives it. */
void plait_watchdog_stage(struct plait_watchdog *dog, const char *what);
/* Step `step`, counted from 1, begins. From now on a learned limit applies.
 * NULL-safe, as the rest. */
void plait_watchdog_begin(struct plait_watchdog *dog, int64_t step);
/* The step itself has ended: evaluation and checkpoint may follow. */
void plait_watchdog_end(struct plait_watchdog *dog);
void plait_watchdog_destroy(struct plait_watchdog *dog);

/* 20 times the median of the n times, at least 60 s; 0: too few to say. Pure.
 */
double plait_watchdog_limit(const double *seconds, int n);

#endif
