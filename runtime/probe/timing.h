/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PROBE_TIMING_H
#define PLAIT_RUNTIME_PROBE_TIMING_H

#include "runtime/comm/world.h"

enum { PLAIT_TIMING_SIZES = 16 };

/* Measures the time of transfers of growing size. All calls are collective
 * over the world, also for ranks that take no part in a transfer. */
struct plait_timing {
    struct plait_world *world;
    struct plait_queue *queue;
    void *send, *recv; /* device memory of the largest size */
    double *times;     /* [repeat] */
    int repeat;
    int nsizes;
    size_t size[PLAIT_TIMING_SIZES]; /* bytes: 256, 1024, ... */
};

/* Sizes up to `most` bytes, each timed `repeat` times. */
int plait_timing_open(struct plait_timing *timing, struct plait_world *world,
                      size_t most, int repeat, struct plait_error *err);
void plait_timing_close(struct plait_timing *timing);

/* For every size, the median over the repetitions of the slowest rank's
 * time, in seconds [nsizes]. -1: the communicator has failed.
 * exchange: send to and receive from `peer` at once; < 0: take no part.
 * reduce: an all-reduce of fp32 over `comm`; NULL: take no part. */
int plait_timing_exchange(struct plait_timing *timing, int peer,
                          double *seconds, struct plait_error *err);
int plait_timing_reduce(struct plait_timing *timing, struct plait_comm *comm,
                        double *seconds, struct plait_error *err);

#endif
