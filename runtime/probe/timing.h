/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_METER_H
#define PLAIT_METER_H

#include "runtime/comm/world.h"

enum { PLAIT_METER_SIZES = 16 };

/* Takes the time of transfers of growing size. All calls are collective over
 * the world: ranks without a part in a transfer look on. */
struct plait_meter {
    struct plait_world *world;
    struct plait_queue *queue;
    void *send, *recv; /* device memory of the largest size */
    double *times;     /* [repeat] */
    int repeat;
    int nsizes;
    size_t size[PLAIT_METER_SIZES]; /* bytes: 256, 1024, ... */
};

/* Sizes up to `most` bytes, each timed `repeat` times. */
int plait_meter_open(struct plait_meter *meter, struct plait_world *world,
                     size_t most, int repeat, struct plait_error *err);
void plait_meter_close(struct plait_meter *meter);

/* For every size, the median over the repetitions of the slowest rank's
 * time, in seconds [nsizes]. -1: the communicator has failed.
 * exchange: a message to and one from `peer` at once; peer < 0: look on.
 * reduce: an all-reduce of fp32 over `comm`; NULL: look on. */
int plait_meter_exchange(struct plait_meter *meter, int peer, double *seconds,
                         struct plait_error *err);
int plait_meter_reduce(struct plait_meter *meter, struct plait_comm *comm,
                       double *seconds, struct plait_error *err);

#endif
