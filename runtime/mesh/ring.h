/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MESH_RING_H
#define PLAIT_RUNTIME_MESH_RING_H

#include "runtime/comm/comm.h"

/* Passes a buffer around a ring of ranks: to the next, from the previous. */
struct plait_ring {
    struct plait_comm *group;
    struct plait_queue *q;
    enum plait_dtype type;
    int tag; /* tags.h; must differ between rings used at once */
    struct plait_request *send, *recv;
};

/* Starts to send `from` [n] on and to receive `to` [n]. Do not touch either
 * before plait_ring_wait(). */
int plait_ring_pass(struct plait_ring *ring, const void *from, void *to,
                    size_t n);
/* Work queued from here on waits for the last pass, if there was one. */
int plait_ring_wait(struct plait_ring *ring);

#endif
