/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_PEERS_H
#define PLAIT_RUNTIME_COMM_PEERS_H

#include <stdbool.h>
#include <sys/types.h>

/* Notices that another process of this machine has ended, for whatever reason:
 * a wait for it in shared memory would never return. A thread sleeps until then
 * (pidfd_open(2), Linux 5.3). */
struct plait_peers;

/* For the processes pid[n]. NULL with errno: ENOSYS on older systems, ESRCH if
 * one has ended already. n may be 0. */
struct plait_peers *plait_peers_create(const pid_t *pid, int n);
/* gone(arg, i) is called once, from the thread: process i is the first one that
 * has ended. The call comes some time later, to let launchers that end the
 * whole job do so first. 0, or -1 with errno. */
int plait_peers_watch(struct plait_peers *peers, void (*gone)(void *arg, int i),
                      void *arg);
/* True once process i has ended; waits for that up to `ms`. */
bool plait_peers_ended(const struct plait_peers *peers, int i, int ms);
/* Sends SIGKILL to each that still runs. */
void plait_peers_kill(const struct plait_peers *peers);
/* `peers` may be NULL. gone() is not called any more once this has returned;
 * gone() must not call it. */
void plait_peers_destroy(struct plait_peers *peers);

#endif
