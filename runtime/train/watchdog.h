/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_H

#include "runtime/comm/comm.h"

/* A rank that hangs, in a disk or a network that no longer answers, would make
 * all others wait for it until the job's time limit. A thread of each rank
 * ends the run when it was not reset for `seconds`; the lowest rank that still
 * can prints why. */
struct plait_watchdog;

/* `world` outlives it. NULL with err. */
struct plait_watchdog *plait_watchdog_create(struct plait_comm *world,
                                             int seconds,
                                             struct plait_error *err);
/* A step has ended. NULL-safe. */
void plait_watchdog_reset(struct plait_watchdog *dog);
/* NULL-safe. */
void plait_watchdog_destroy(struct plait_watchdog *dog);

#endif
