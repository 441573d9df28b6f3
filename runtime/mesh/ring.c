/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/ring.h"

static int post(struct plait_ring *ring, int sends, const void *from, void *to,
                size_t n)
{
    int size = plait_comm_size(ring->group);
    int rank = plait_comm_rank(ring->group);

    if (sends)
        return plait_comm_send(ring->group, from, n, ring->type,
                               (rank + 1) % size, ring->tag, ring->q,
                               &ring->send);
    return plait_comm_recv(ring->group, to, n, ring->type,
                           (rank + size - 1) % size, ring->tag, ring->q,
                           &ring->recv);
}

/* Every second rank sends first: a backend whose messages occupy the device
 * until they are met must not have all of the ring receive at once. */
int plait_ring_pass(struct plait_ring *ring, const void *from, void *to,
                    size_t n)
{
    int even = plait_comm_rank(ring->group) % 2 == 0;

    if (post(ring, even, from, to, n) < 0)
        return -1;
    if (post(ring, !even, from, to, n) < 0)
        return -1;
    return plait_comm_progress(ring->group); /* off, before any work */
}

int plait_ring_wait(struct plait_ring *ring)
{
    if (plait_comm_wait(&ring->send, ring->q) < 0)
        return -1;
    return plait_comm_wait(&ring->recv, ring->q);
}
