/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_SHM_PRIVATE_H
#define PLAIT_RUNTIME_COMM_SHM_SHM_PRIVATE_H

#include <stdatomic.h>

#include "runtime/comm/shm/shm.h"

/* What shm.c (transfers) and shm_segment.c (the memory) share. */

/* Bytes of a chunk, and chunks that may be under way: together they fit in a
 * core's cache. */
#define SLOT_BYTES ((size_t)128 << 10)
#define SLOTS 4
#define LINE 64
/* For so many of the latest transfers each rank shows the others which
 * collective it is in. */
#define CALLS 4

enum count { FILLED, REDUCED, TAKEN, COUNTS };

/* A rank's area of the segment: how many chunks it has filled, reduced and
 * taken since the start, and its slots. A slot has one place for each rank's
 * part; a rank's place in its own slot holds its reduced part. */
struct area {
    struct {
        _Alignas(LINE) _Atomic uint64_t n;
    } count[COUNTS];
    /* What the rank has entered, by the number of the transfer: it is at most
     * one ahead of its peers, as each needs all ranks. */
    _Alignas(LINE) struct plait_call call[CALLS];
    _Alignas(4096) char slot[SLOTS][SLOT_BYTES];
};

struct plait_shm {
    int rank, size;
    struct area **area;        /* [size] */
    int *ranks;                /* [size] their ranks in the world */
    uint64_t *keys;            /* [size] of the names of their areas */
    struct plait_bells *bells; /* the world's */
    bool crowded;              /* any rank shares its cores */
    uint64_t told[COUNTS];     /* counts that sleeping peers were woken for */
    uint64_t issued, finished; /* numbers of transfers */
    uint64_t base;             /* chunks of all finished transfers */
    size_t least;              /* bytes of a transfer */
    uint64_t shown;            /* transfers with data that are finished */
    char name[32], host[64];   /* of the group, of this machine */
    char why[320];             /* what different transfers ranks entered */
};

#endif
