/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_TCP_LINKS_MEET_H
#define PLAIT_RUNTIME_COMM_TCP_LINKS_MEET_H

#include "runtime/comm/bootstrap/tcp_meet.h"
#include "runtime/comm/members.h"

/* After so many seconds without an answer a machine is lost. */
#define PLAIT_LINKS_SILENCE_S 15

/* Whether an error of a connection says that the machine does not answer. */
bool plait_links_is_silent(int error);
/* The error as the reason why a peer is lost. */
const char *plait_links_reason(int error);

/* Connects the present members along the tree of their ranks: this rank to its
 * parent and its children. Both ends prove the step's secret. Collective; -1
 * with errno and err, at once if one of them has ended. */
int plait_links_meet(struct plait_members *m, double timeout_s,
                     struct plait_tcp_lines *lines, struct plait_error *err);
/* Sets keepalive so that a failure of the machine at the other end is noticed
 * within PLAIT_LINKS_SILENCE_S. */
void plait_links_watch_machine(int fd);

#endif
