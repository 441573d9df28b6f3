/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RING_H
#define PLAIT_RING_H

#include "runtime/comm/comm.h"

/* One buffer on its way around a ring of ranks: to the next, from the one
 * before. */
struct plait_ring {
    struct plait_comm *group;
    struct plait_queue *q;
    enum plait_dtype type;
    int tag; /* rings that are under way together differ */
    struct plait_request *send, *recv;
};

/* Start to pass `from` [n] on and to fill `to` [n]; both stay untouched
 * until plait_ring_wait(). */
int plait_ring_pass(struct plait_ring *ring, const void *from, void *to,
                    size_t n);
/* Work on the queue from here on waits for the last pass; none is fine. */
int plait_ring_wait(struct plait_ring *ring);

#endif
