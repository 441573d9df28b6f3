/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_WIRE_H
#define PLAIT_RUNTIME_STUCK_WIRE_H

#include "runtime/stuck/judge.h"

/* What one node tells another of a rank: little-endian bytes. */
#define PLAIT_STUCK_WIRE_MOST 6144

/* The number of bytes, at most PLAIT_STUCK_WIRE_MOST; -1: there is no room. */
int plait_stuck_pack(const struct plait_stuck_rank *rank, unsigned char *to,
                     size_t room);
/* Takes any bytes: the number of those that were read, or -1 where they are no
 * rank that plait_stuck_judge() could take. */
int plait_stuck_unpack(const unsigned char *from, size_t size,
                       struct plait_stuck_rank *rank);

#endif
