/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_PEAK_FILE_H
#define PLAIT_RUNTIME_TRAIN_PEAK_FILE_H

#include "runtime/train/session.h"

/* The highest rate of matrix products that this run or earlier ones have
 * measured on processors: a measurement while other processes use the cores is
 * too low. It is in the file that PLAIT_PEAKS names, or else in the user's
 * cache, which has a line for each machine and kind of run. */

/* The key of this run's line: processor, instructions, type, ranks, cores. */
void plait_peak_key(const struct plait_session *s, enum plait_dtype type,
                    char *key, size_t size);
/* FLOP/s; 0: nothing is known. */
double plait_peak_known(const char *key);
/* Store `flops` if it is more than the known value. Errors are ignored. */
void plait_peak_keep(const char *key, double flops);

#endif
