/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_H
#define PLAIT_RUNTIME_COMM_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/bells.h"
#include "runtime/comm/comm_private.h"
#include "runtime/comm/engine.h"

/* Collectives among ranks of one node through shared memory. Messages take
 * two copies and a message for every part; here each rank reads what the
 * others put into a segment while it is still in cache. */
struct plait_shm;

/* What the segments of one world have in common. */
struct plait_shm_world {
    uint64_t id; /* random */
    int rank;
    uint64_t next;             /* number of the next segment */
    struct plait_bells *bells; /* NULL: no memory for them; the owner's */
};

/* One transfer on its way. */
struct plait_shm_transfer {
    struct plait_shm *shm;
    struct plait_transfer t;
    uint64_t ticket;  /* its place among the segment's transfers */
    size_t each, len; /* elements of a rank's part, of a chunk of it */
    size_t chunks, filled, reduced, taken;
    bool twice; /* what all have reduced is taken by all */
    bool whole; /* each of two ranks reduces all of it */
};

/* Collective, over host values of `comm`; -1 with errno. *shm is NULL where
 * the ranks are not all on one node or have no room for a segment. */
int plait_shm_world_init(struct plait_comm *comm,
                         struct plait_shm_world *world);
int plait_shm_create(struct plait_comm *comm, struct plait_shm_world *world,
                     struct plait_shm **shm);
/* NULL-safe, not collective. */
void plait_shm_destroy(struct plait_shm *shm);

/* Whether *t can go this way. The same on all ranks of the group. */
bool plait_shm_takes(const struct plait_shm *shm,
                     const struct plait_transfer *t);
/* The transfers of a segment are carried out in the order of these calls,
 * whoever advances them. Sums run over the ranks in their order, so that
 * every rank gets the same bits. */
void plait_shm_begin(struct plait_shm *shm, struct plait_shm_transfer *x,
                     const struct plait_transfer *t);
enum plait_moved plait_shm_advance(struct plait_shm_transfer *x);

#endif
