/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PEERS_H
#define PLAIT_PEERS_H

#include <sys/types.h>

/* Notices when another process of this machine has ended, however: who waits
 * for it in shared memory would do so for ever. A thread sleeps until then
 * (pidfd_open(2), Linux 5.3). */
struct plait_peers;

/* gone(arg, i) is called once, from that thread, i being the first of pid[n]
 * that has ended, some time after that: launchers that end the whole job on
 * their own come first. NULL with errno; n 0 is fine, ENOSYS on older
 * systems. Ended already: ESRCH. */
struct plait_peers *plait_peers_create(const pid_t *pid, int n,
                                       void (*gone)(void *arg, int i),
                                       void *arg);
/* NULL-safe. gone() is not called any more once this has returned; not to be
 * called from it. */
void plait_peers_destroy(struct plait_peers *peers);

#endif
