/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_GREETING_H
#define PLAIT_RUNTIME_COMM_GREETING_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/proof.h"
#include "runtime/comm/rendezvous.h"

/* How the two ends of a new connection prove to each other that they know the
 * step's secret, message by message: who has connected says hello, who listens
 * answers with its proof, and the first sends its own. */

enum { PLAIT_GREETING_NONCE = 16 };

/* The first message of a rank that has connected. */
struct plait_hello {
    char magic[8];
    uint64_t key;
    uint32_t rank, size;
    unsigned char nonce[PLAIT_GREETING_NONCE];
};

/* The answer; the rank then sends its own proof. */
struct plait_answer {
    unsigned char nonce[PLAIT_GREETING_NONCE];
    unsigned char proof[PLAIT_PROOF_SIZE];
};

/* One end of it. */
struct plait_greeting {
    size_t got; /* bytes of what the other end has sent */
    struct plait_hello hello;
    struct plait_answer answer;
    unsigned char proof[PLAIT_PROOF_SIZE];
};

/* -1 with errno: this is no peer, or it is lost. */

/* Who has connected: hello, of m->rank. Then read what has come of the answer,
 * which must be m->root's, without waiting; 1: it is whole, and this rank's
 * proof is sent; 0: not yet. */
int plait_greeting_begin(struct plait_greeting *g,
                         const struct plait_meeting *m, int fd);
int plait_greeting_finish(struct plait_greeting *g,
                          const struct plait_meeting *m, int fd);
/* The same, with the answer read into g->answer by the caller. */
int plait_greeting_prove(const struct plait_greeting *g,
                         const struct plait_meeting *m, int fd);

/* Who listens: read what has come, without waiting. 0: there is more to come,
 * 1: the hello of rank g->hello.rank, who may be unexpected and is not proved,
 * and that is to be answered; 2: it has proved the secret.
 * PLAIT_GREETING_NOTICE: hello and proof are what may be a notice (notice.h),
 * and the end of it. */
enum { PLAIT_GREETING_NOTICE = 3 };
int plait_greeting_hear(struct plait_greeting *g, const struct plait_meeting *m,
                        int fd);
int plait_greeting_reply(struct plait_greeting *g,
                         const struct plait_meeting *m, int fd);

/* For a connection that is proved: no timeouts, no Nagle delay, keepalive to
 * notice a peer whose machine has failed. */
void plait_greeting_settle(int fd);

#endif
