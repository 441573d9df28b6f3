/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_TCP_TREE_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_TCP_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* The ranks of a group as a tree, so that no rank has more than a few
 * connections and messages, however many ranks there are. A rank stands for a
 * run of consecutive ranks, of which it is the first; its children stand for
 * parts of the rest. */

/* The most children. A group of up to PLAIT_TCP_WAYS + 1 ranks is a star. */
#define PLAIT_TCP_WAYS 8

struct plait_tcp_tree {
    int parent; /* -1: none */
    int ways;   /* number of children */
    /* Child i stands for ranks first[i] .. first[i + 1] - 1. */
    int first[PLAIT_TCP_WAYS + 1];
};

void plait_tcp_tree_init(struct plait_tcp_tree *tree, int rank, int size);
/* The child that stands for `rank`, -1 if none does. */
int plait_tcp_tree_child(const struct plait_tcp_tree *tree, int rank);

/* What a rank says before a split: its wishes, and where it can be reached. */
struct plait_tcp_contact {
    int32_t color, key, port; /* color < 0: in no group */
    char host[HOST_NAME_MAX + 1];
};

/* Whether a contact that came from another process can be used: its host name
 * is terminated, and its port is a port or 0. */
bool plait_tcp_contact_is_sound(const struct plait_tcp_contact *contact);

/* What a rank is told: its rank in its group, and where its parent is. */
struct plait_tcp_place {
    int32_t rank, size;
    struct plait_tcp_contact parent;
};

/* Forms groups of n ranks by color, ordered by key. -1 with errno. */
int plait_tcp_places(const struct plait_tcp_contact *all, int n,
                     struct plait_tcp_place *places);

#endif
