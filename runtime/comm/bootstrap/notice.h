/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_NOTICE_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_NOTICE_H

#include "runtime/comm/bootstrap/rendezvous.h"
#include "topology/base/proof.h"

/* Notices to a process, sent to the port that each process keeps open. A notice
 * stays there until the process reads it, and its sender may be gone by then,
 * so that no challenge is possible. There are two: to a process that is
 * stopped, that the others go on without it; and to a process on another
 * machine, that a process of the sender's machine is stopped by a signal, which
 * only that machine can see.
 *
 * A notice is sealed by the step's secret and names its receiver by a random
 * number that each process draws when it starts, and the world by its key. One
 * that has been recorded and is sent again is ignored: by another process, in
 * another run, and by the same one, as notices about a process bear numbers
 * that grow. */

enum { PLAIT_NOTICE_HEAD = 48 };
struct plait_notice {
    unsigned char head[PLAIT_NOTICE_HEAD]; /* as long as a rank's hello */
    unsigned char proof[PLAIT_PROOF_SIZE];
};

/* m->ids must be set for all of these but begins and number. */

/* Tells rank m->root, over a connection to its port, that it is left out. 0:
 * its machine has the notice, so that the process will read it if it ever runs
 * on; -1: not known. */
int plait_notice_send(const struct plait_rendezvous *m, int fd);
/* Tells rank m->root that rank `stopped` is stopped. -1 with errno. */
int plait_notice_send_stopped(const struct plait_rendezvous *m, int fd,
                              int stopped);
/* Whether PLAIT_NOTICE_HEAD bytes that came instead of a hello may begin a
 * notice. */
bool plait_notice_begins(const void *head);
/* Checks a notice with its proof: whether it says that rank m->rank is left
 * out. If it says that another rank is stopped, it is passed to m->stopped. */
bool plait_notice_take(const struct plait_rendezvous *m, const void *head,
                       const unsigned char proof[PLAIT_PROOF_SIZE]);
/* For a process that does not listen otherwise: reads what has come to its
 * port, without waiting; whether it was told that it is left out. Connections
 * that have not sent a whole notice yet stay among the callers, which
 * plait_notice_callers() makes (NULL: out of memory), for five seconds; those
 * that send anything else are closed, and their makers try again. */
struct plait_guests *plait_notice_callers(void);
bool plait_notice_came(const struct plait_rendezvous *m, int listener,
                       struct plait_guests *callers);

#endif
