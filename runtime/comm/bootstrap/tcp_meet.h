/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_TCP_MEET_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_TCP_MEET_H

#include "runtime/comm/bootstrap/rendezvous.h"
#include "runtime/comm/bootstrap/tcp_tree.h"

/* A rank's connections in a group that forms a tree. */
struct plait_tcp_lines {
    struct plait_tcp_tree tree;
    int up, down[PLAIT_TCP_WAYS]; /* to parent and children; -1: none */
};

void plait_tcp_lines_init(struct plait_tcp_lines *lines, int rank, int size);
void plait_tcp_lines_close(struct plait_tcp_lines *lines);

/* Collective; -1 with errno and err. The ranks of a world meet at rank 0's
 * MASTER_PORT. The ranks of a group know their parents and connect to them;
 * `listener` is the socket of the port that this rank has announced. */
int plait_tcp_meet_world(struct plait_tcp_lines *lines,
                         const struct plait_rendezvous *world,
                         const struct plait_launch *launch,
                         struct plait_error *err);
int plait_tcp_meet_group(struct plait_tcp_lines *lines,
                         const struct plait_rendezvous *group,
                         const struct plait_tcp_contact *parent, int listener,
                         struct plait_error *err);

#endif
