/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_SIGNALS_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_SIGNALS_H

#include <stdbool.h>

/* SIGTERM, SIGINT and SIGUSR1 (what Slurm's --signal is asked to send before
 * the time limit) ask for an end after the current step; a second one of a
 * kind ends the process as usual. */
int plait_signals_install(void);
/* From now on these signals wait, whichever thread gets them, also through an
 * exec, until they are let go: plait_signals_install() does that too. Main
 * thread only. */
int plait_signals_hold(bool hold);
/* The signal that came, 0 if none. */
int plait_signals_caught(void);

#endif
