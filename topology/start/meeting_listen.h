/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_LISTEN_H
#define PLAIT_TOPOLOGY_START_MEETING_LISTEN_H

/* For meeting.c: listeners, which do not block; -1 with errno. */

/* At a port on all addresses, 0: any. *got: which. */
int plait_meeting_listen(int port, int *got);
/* At a name on this machine, or one that begins with it. */
int plait_meeting_listen_here(const char *name);

#endif
