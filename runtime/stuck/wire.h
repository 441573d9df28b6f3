/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_WIRE_H
#define PLAIT_RUNTIME_STUCK_WIRE_H

#include "runtime/stuck/judge.h"

/* A rank's state as nodes send it to each other, in little-endian bytes. */
#define PLAIT_STUCK_WIRE_MOST 6144

/* Returns the number of bytes, at most PLAIT_STUCK_WIRE_MOST; -1: no room. */
int plait_stuck_pack(const struct plait_stuck_rank *rank, unsigned char *to,
                     size_t room);
/* Accepts any bytes and returns how many it has read; -1 where they are not a
 * rank that is safe for plait_stuck_judge(). */
int plait_stuck_unpack(const unsigned char *from, size_t size,
                       struct plait_stuck_rank *rank);

#endif
