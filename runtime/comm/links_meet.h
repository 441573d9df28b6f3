/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_LINKS_MEET_H
#define PLAIT_RUNTIME_COMM_LINKS_MEET_H

#include "runtime/comm/members.h"
#include "runtime/comm/tcp_meet.h"

/* Connect those that are present along the tree of their ranks: to this rank's
 * parent and children. Each side has proved the step's secret. Collective; -1
 * with errno and err, at once where one of them has ended. */
int plait_links_meet(struct plait_members *m, double timeout_s,
                     struct plait_tcp_lines *lines, struct plait_error *err);
/* Notice when the machine at the other end has failed. */
void plait_links_watch_machine(int fd);

#endif
