/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/mesh/ring.h"

static int post_half(struct plait_ring *ring, int sends, const void *from,
                     void *to, size_t n)
{
    const struct plait_buffers b = {from, to, n, ring->type};
    int size = plait_comm_size(ring->group);
    int rank = plait_comm_rank(ring->group);

    if (sends)
        return plait_comm_send(ring->group, &b, (rank + 1) % size, ring->tag,
                               ring->q, &ring->send);
    return plait_comm_recv(ring->group, &b, (rank + size - 1) % size, ring->tag,
                           ring->q, &ring->recv);
}

/* Even ranks send first, odd ranks receive first: with a backend whose kernels
 * occupy the GPU until the peer answers, a ring in which all receive first
 * would deadlock. */
int plait_ring_pass(struct plait_ring *ring, const void *from, void *to,
                    size_t n)
{
    int even = plait_comm_rank(ring->group) % 2 == 0;

    if (post_half(ring, even, from, to, n) < 0)
        return -1;
    if (post_half(ring, !even, from, to, n) < 0)
        return -1;
    return plait_comm_progress(ring->group); /* start both before any compute */
}

int plait_ring_wait(struct plait_ring *ring)
{
    if (plait_comm_wait(&ring->send, ring->q) < 0)
        return -1;
    return plait_comm_wait(&ring->recv, ring->q);
}
