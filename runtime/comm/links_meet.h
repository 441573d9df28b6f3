/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_LINKS_MEET_H
#define PLAIT_RUNTIME_COMM_LINKS_MEET_H

#include "runtime/comm/members.h"

/* Connect every two of those that are present: fds[r] is the connection to
 * rank r of them, and -1 at the own rank. Each side has proved the step's
 * secret. Collective; -1 with errno and err, at once where one has ended. */
int plait_links_meet(struct plait_members *m, double timeout_s, int *fds,
                     struct plait_error *err);
/* What tells when any of them, but -1, can be read; -1 with errno. */
int plait_links_epoll(const int *fds, int n);

#endif
