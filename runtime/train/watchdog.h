/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_WATCHDOG_H
#define PLAIT_WATCHDOG_H

#include "runtime/comm/comm.h"

/* A rank that hangs, in a disk or a network that answers no more, would make
 * all others wait for it until the job's time is up. A thread of each rank
 * ends the run where nobody has patted it for too long, with one line: of
 * the lowest rank that still can. */
struct plait_watchdog;

/* `world` outlives it. NULL with err. */
struct plait_watchdog *plait_watchdog_create(struct plait_comm *world,
                                             int seconds,
                                             struct plait_error *err);
/* NULL-safe, both of them. */
void plait_watchdog_pat(struct plait_watchdog *dog);
void plait_watchdog_destroy(struct plait_watchdog *dog);

#endif
