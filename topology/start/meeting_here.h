/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_HERE_H
#define PLAIT_TOPOLOGY_START_MEETING_HERE_H

#include "topology/start/meeting.h"

/* For meeting_find.c: connections to a host of this user on this machine. They
 * do not wait, and what has been connected is non-blocking. */

/* To the name itself; -1 with errno, EACCES: another user has it. */
int plait_meeting_connect_here(const char *name);
/* To a name with a random end, which the host takes where another user has the
 * first; those that it may be are listed by the system. */
int plait_meeting_find_here(const char *name);
/* Is a line of /proc/net/unix of such a name? Pure. */
int plait_meeting_parse_socket(const char *line, const char *name,
                               char found[PLAIT_MEETING_HERE + 17]);

#endif
