/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_ANEW_H
#define PLAIT_RUNTIME_TRAIN_ANEW_H

#include "topology/base/error.h"

/* A process that begins anew: by exec it runs the same program with the same
 * arguments again and stays the same process to its parent. What the new life
 * needs of the old one is in a file (carry.h). A GPU's context that is gone
 * needs this: CUDA makes no other one in the same process. */

/* Begins the new life, to which it hands the file `fd`, on the cores that the
 * process began with. The descriptors keep[n] stay open too, and those that the
 * process was started with; all others are closed. Signals that ask
 * for the run's end must be held (plait_signals_hold). Main thread only.
 * Returns on failure alone: -1 with err. */
int plait_anew(char *const *argv, int fd, const int *keep, int n,
               struct plait_error *err);
/* The file that the life before has handed over; -1: this is the first one.
 * Call it as the program starts: it notes descriptors and cores for
 * plait_anew(), and programs started later do not learn of the file. */
int plait_anew_file(void);
/* From now on the process ends with a line after so many seconds, also in its
 * new life; 0: it does not. */
void plait_anew_limit(int seconds);

#endif
