/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_CONTACTS_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_CONTACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/comm.h"
#include "runtime/stuck/record.h"
#include "runtime/train/watchdog/heartbeat.h"

/* What the ranks of a run know of each other. A rank sends 16 bytes to all
 * others. What the ranks of a node have in common, its name and its address, is
 * divided among them: each sends a part. */

enum { PLAIT_HANG_NO_GPU = 1023 };

struct plait_hang_contact {
    uint64_t space;    /* equal where processes see each other: a node */
    uint32_t pid : 22; /* Linux has no higher ones */
    uint32_t gpu : 10;
    int32_t fd; /* file descriptor of its record; -1: none */
};

/* What the ranks know of a node. An address of 0: it has none of that kind. */
struct plait_hang_node {
    unsigned char v6[16], v4[4]; /* as of plait_heartbeat_address */
    char host[64];
};

struct plait_contacts {
    int rank, world, nnodes;
    uint64_t run;        /* the same on all ranks, and for no other run */
    char first_host[64]; /* rank 0's */
    struct plait_hang_contact *all; /* [world] */
    int *node_of;                 /* [world] nodes are numbered by their lowest
                                     ranks */
    struct plait_hang_node *node; /* [nnodes] */
    struct plait_heartbeat_address *at; /* [world] NULL: there is one node */
};

/* Collective. Fills in all but `at` and other nodes' names. -1 with err on all
 * ranks together; plait_contacts_clear() in any case. */
int plait_contacts_meet(struct plait_contacts *contacts,
                        struct plait_comm *world,
                        const struct plait_hang_contact *mine,
                        struct plait_error *err);
/* Collective. Fills in the rest. `mine` is this rank's address, which goes into
 * its `record`. All ranks of a node send the address of its first rank, from
 * that rank's record, `first`. NULL: there is no such record. */
int plait_contacts_exchange(struct plait_contacts *contacts,
                            struct plait_comm *world,
                            const struct plait_heartbeat_address *mine,
                            struct plait_record *record,
                            const struct plait_record *first,
                            struct plait_error *err);
void plait_contacts_clear(struct plait_contacts *contacts);

/* "node7" of a rank. */
const char *plait_contacts_host(const struct plait_contacts *contacts,
                                int rank);

#endif
