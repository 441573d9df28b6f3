/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_GREETING_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_GREETING_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/bootstrap/rendezvous.h"
#include "topology/base/proof.h"

/* How the two ends of a new connection prove to each other that they know the
 * step's secret: the end that has connected sends its hello, sealed by the
 * secret; the end that listens answers with its proof, the first sends its own
 * proof, and the second confirms it. Only then do both count as connected: the
 * end that listens may have closed the connection before the proof came, and
 * the proof is sent all the same.
 *
 * The seal tells ranks from strangers by their first message, before anything
 * is kept for them. Who has recorded a hello can send it again, but gets an
 * answer at most: the proofs are over a number that the other end has just
 * drawn, and a newer hello of the rank takes the place of an older one. Seal
 * and proofs are over the port at which the end listens, too: who listens at
 * another port and passes on what the two ends say does not get between them.
 * Without a secret (PLAIT_NO_SECRET) they prove nothing. */

enum { PLAIT_GREETING_NONCE = 16 };

/* The first message of a rank that has connected, before its seal. */
struct plait_hello {
    char magic[8];
    uint64_t key;
    uint32_t rank, size;
    uint64_t began; /* grows from each hello of a rank to its next */
    unsigned char nonce[PLAIT_GREETING_NONCE];
};

/* The answer of the end that listens, to which the rank sends its proof. */
struct plait_answer {
    unsigned char nonce[PLAIT_GREETING_NONCE];
    unsigned char proof[PLAIT_PROOF_SIZE];
};

/* The state of one end. */
struct plait_greeting {
    size_t got; /* bytes received from the other end */
    struct plait_hello hello;
    unsigned char seal[PLAIT_PROOF_SIZE];
    struct plait_answer answer;
    unsigned char proof[PLAIT_PROOF_SIZE];
};

/* All return -1 with errno where the other end is not a peer or is lost. */

/* For the end that has connected. begin: sends the hello of m->rank. finish:
 * reads what has come of the answer, which must be m->root's, without waiting,
 * and sends this rank's proof. 1: the proof is confirmed; 0: not yet. */
int plait_greeting_begin(struct plait_greeting *g,
                         const struct plait_rendezvous *m, int fd);
int plait_greeting_finish(struct plait_greeting *g,
                          const struct plait_rendezvous *m, int fd);
/* Sends the proof, for a caller that has read the answer into g->answer and
 * waits for the byte that confirms it. */
int plait_greeting_prove(const struct plait_greeting *g,
                         const struct plait_rendezvous *m, int fd);

/* For the end that listens. hear: reads what has come, without waiting. 0: not
 * complete; 1: a hello of rank g->hello.rank, made by one who knows the secret,
 * but perhaps sent again by another or unexpected: answer it by reply; 2: that
 * rank has proved that it knows the secret: confirm it; PLAIT_GREETING_NOTICE:
 * this is no greeting, but hello and seal may be a notice (notice.h). */
enum { PLAIT_GREETING_NOTICE = 3 };
int plait_greeting_hear(struct plait_greeting *g,
                        const struct plait_rendezvous *m, int fd);
int plait_greeting_reply(struct plait_greeting *g,
                         const struct plait_rendezvous *m, int fd);
int plait_greeting_confirm(int fd);

/* Prepares a proved connection: no timeouts, no Nagle delay, and keepalive to
 * notice that the peer's machine has failed. */
void plait_greeting_settle(int fd);

#endif
