/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_PEAK_FILE_H
#define PLAIT_RUNTIME_TRAIN_PEAK_FILE_H

#include "runtime/train/session.h"

/* The fastest that processors were seen to multiply, by earlier runs too: what
 * is measured while others have the cores says too little. In the file that
 * PLAIT_PEAKS names, or the user's cache has; a line for each machine and kind
 * of run. */

/* What tells this run's line: processor, instructions, type, ranks, cores. */
void plait_peak_key(const struct plait_session *s, enum plait_dtype type,
                    char *key, size_t size);
/* FLOP/s; 0: nothing is known. */
double plait_peak_known(const char *key);
/* Where that is more than what is known. Does without, where it cannot. */
void plait_peak_keep(const char *key, double flops);

#endif
