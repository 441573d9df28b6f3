/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_NOTICE_H
#define PLAIT_RUNTIME_COMM_NOTICE_H

#include "runtime/comm/proof.h"
#include "runtime/comm/rendezvous.h"

/* What a process is told at the port that each keeps open, where it lies until
 * it is read, and its sender need not be heard: one that does not run, that the
 * others go on without it; and one on another machine, that a process of the
 * sender's is stopped by a signal, which only that machine can see. */

enum { PLAIT_NOTICE_HEAD = 40 };
struct plait_notice {
    unsigned char head[PLAIT_NOTICE_HEAD]; /* as long as a rank's greeting */
    unsigned char proof[PLAIT_PROOF_SIZE];
};

/* To rank m->root, over a connection to its port: it is left out. 0: it is
 * there, or will be wherever its process runs on; -1: nobody knows. */
int plait_notice_send(const struct plait_meeting *m, int fd);
/* To the same: rank `stopped` is. -1 with errno. */
int plait_notice_send_stopped(const struct plait_meeting *m, int fd,
                              int stopped);
/* Of PLAIT_NOTICE_HEAD bytes that have come instead of a greeting: whether
 * they may begin one. */
bool plait_notice_begins(const void *head);
/* With the proof behind them: whether it says that rank m->rank is left out.
 * One that says of another rank that it is stopped goes to m->stopped. */
bool plait_notice_take(const struct plait_meeting *m, const void *head,
                       const unsigned char proof[PLAIT_PROOF_SIZE]);
/* Of a process that does not listen otherwise: what has come is taken, and
 * whether it says that. What else has connected is dropped, and tries again. */
bool plait_notice_came(const struct plait_meeting *m, int listener);

#endif
