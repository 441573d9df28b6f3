/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_SEGMENTS_H
#define PLAIT_RUNTIME_DATA_SEGMENTS_H

#include "runtime/data/dataset.h"

/* An open dataset over a socket of packets, between processes of a user on one
 * machine: a message for each segment, with its open file. */

/* To n sockets. -1 with err, whose text is empty where the other end is gone.
 */
int plait_segments_send(const struct plait_dataset *ds, const int *to, int n,
                        struct plait_error *err);
/* The dataset `path` from a socket; NULL with err. What comes is checked as far
 * as it decides on memory: how many segments there are, and that a path ends.
 * The sizes of a segment are its sender's. */
struct plait_dataset *plait_segments_receive(int from, const char *path,
                                             struct plait_error *err);

#endif
