/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_UNANSWERED_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_UNANSWERED_H

/* How many of this process's TCP connections, whoever opened them, have sent
 * something three times that the peer's machine did not acknowledge. The
 * machine of a process that is stopped or does not read still acknowledges. 0
 * where the kernel does not tell. */
int plait_unanswered_connections(void);

#endif
