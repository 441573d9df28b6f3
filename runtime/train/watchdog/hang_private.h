/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_HANG_PRIVATE_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_HANG_PRIVATE_H

#include <stdatomic.h>

#include "runtime/train/watchdog/contacts.h"
#include "runtime/train/watchdog/hang.h"

struct plait_hang {
    struct plait_record *record; /* NULL: none */
    int fd, rank, world;
    struct plait_contacts contacts;
    const struct plait_record **peer; /* [world] NULL: on another node */
    /* Only with several nodes. */
    int socket; /* -1: none */
    char secret[PLAIT_SECRET_SIZE];
    struct plait_heartbeat *beat; /* NULL: there are no heartbeats */
    struct plait_error unheard;   /* why there will be none; "": there will */
    _Atomic int except[2]; /* threads whose reading does not count; 0: none */
    struct {
        uint64_t entered, io;
        double since;
    } did; /* what this process had done when plait_hang_move() looked */
};

/* What is known of all ranks, [world]; ask: other nodes are asked, for a second
 * at most. The caller frees it; NULL: out of memory, or there is no hang. */
struct plait_stuck_rank *plait_hang_look_all(const struct plait_hang *h,
                                             bool ask);

#endif
