/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_NOTICE_H
#define PLAIT_RUNTIME_COMM_NOTICE_H

#include "runtime/comm/proof.h"
#include "runtime/comm/rendezvous.h"

/* What a process is told that does not run: that the others go on without it.
 * It lies in the queue of the port that each keeps open until it is read there,
 * and its sender need not be heard. */

enum { PLAIT_NOTICE_HEAD = 40 };
struct plait_notice {
    unsigned char head[PLAIT_NOTICE_HEAD]; /* as long as a rank's greeting */
    unsigned char proof[PLAIT_PROOF_SIZE];
};

/* To rank m->root, over a connection to its port. 0: it is there, or will be
 * wherever its process runs on; -1: nobody knows. */
int plait_notice_send(const struct plait_meeting *m, int fd);
/* Of PLAIT_NOTICE_HEAD bytes that have come instead of a greeting: whether
 * they may begin one, and with the proof behind them whether it is one to rank
 * m->rank. */
bool plait_notice_begins(const void *head);
bool plait_notice_is(const struct plait_meeting *m, const void *head,
                     const unsigned char proof[PLAIT_PROOF_SIZE]);
/* Of a process that does not listen otherwise: whether one has come. What else
 * has connected is dropped, and tries again. */
bool plait_notice_came(const struct plait_meeting *m, int listener);

#endif
