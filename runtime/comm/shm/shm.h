/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_SHM_H
#define PLAIT_RUNTIME_COMM_SHM_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/shm/bells.h"
#include "runtime/comm/shm/engine.h"

/* Collectives among ranks of one node through shared memory. Messages would
 * cost two copies, and one message for every part; here each rank reads what
 * the others have put into a segment while it is still in cache. */
struct plait_shm;

/* What the segments of a world have in common. */
struct plait_shm_world {
    uint64_t id; /* random */
    int rank;
    struct plait_bells *bells; /* the caller destroys them; NULL: none */
    size_t least; /* bytes below which messages are as fast; the caller's */
};

/* A transfer under way. */
struct plait_shm_transfer {
    struct plait_shm *shm;
    struct plait_transfer t;
    uint64_t ticket;  /* its place in the segment's order of transfers */
    size_t each, len; /* elements of a rank's part; of a chunk of it */
    size_t chunks, filled, reduced, taken;
    bool twice; /* all-reduce: each reduces its part, then gathers */
    bool whole; /* all-reduce of 2 ranks that share cores: both reduce the
                   whole chunk, which saves one wait */
    struct plait_call call;
    bool shown, differs;
};

/* Collective over host values of `comm`; -1 with errno. *shm becomes NULL where
 * the ranks are not all on one node or there is no room for a segment. */
int plait_shm_world_init(struct plait_comm *comm,
                         struct plait_shm_world *world);
int plait_shm_create(struct plait_comm *comm, struct plait_shm_world *world,
                     struct plait_shm **shm);
/* `shm` may be NULL. Not collective. */
void plait_shm_destroy(struct plait_shm *shm);

/* Whether *t can go through the segment. The same on all ranks of the group. */
bool plait_shm_takes(const struct plait_shm *shm,
                     const struct plait_transfer *t);
/* The transfers of a segment are made in the order of the calls to begin, in
 * whichever order they are advanced. Sums add the ranks in ascending order, so
 * that all ranks get the same bits. */
void plait_shm_begin(struct plait_shm *shm, struct plait_shm_transfer *x,
                     const struct plait_transfer *t,
                     const struct plait_call *call);
enum plait_moved plait_shm_advance(struct plait_shm_transfer *x);
/* Why a transfer that is done has failed: its ranks have entered different
 * ones; else NULL. The segment is of no use any more. */
const char *plait_shm_difference(const struct plait_shm_transfer *x);

#endif
