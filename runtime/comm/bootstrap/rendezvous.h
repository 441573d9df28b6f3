/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_RENDEZVOUS_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"
#include "topology/layout/launch.h"

/* How the ranks of a group find each other over TCP. One of them, the root,
 * listens and others connect to it. Both ends prove that they know the step's
 * secret, which itself is never sent: a foreign process cannot join the group,
 * and to block it must hold all ports at which the root may listen before it
 * does, the spare ones of which it cannot know. Where the secret is
 * PLAIT_NO_SECRET, whoever can connect can join. */

struct plait_rendezvous {
    const char *name; /* of the group, for errors */
    uint64_t key;     /* tells groups of a job apart */
    uint64_t also;    /* another key that the root accepts; 0: none */
    int rank, size;
    int root;                       /* the rank that listens; higher ones
                                       connect */
    char secret[PLAIT_SECRET_SIZE]; /* "": proves nothing */
    double timeout_s;
    /* The root's port is open as long as its process lives: if nobody listens
     * there it has ended, and plait_rendezvous_join() does not wait. */
    bool standing;
    /* Called now and then while the root waits; NULL: not. fds[r] is -1 for a
     * rank that is waited for; look() may set it to PLAIT_RENDEZVOUS_GONE. */
    void (*look)(void *arg, int *fds);
    /* Called now and then while the root waits, and after each failed attempt
     * to join; NULL: not. True: give up. */
    bool (*in_vain)(void *arg);
    /* Called for a notice that a rank is stopped (notice.h); NULL: ignored. */
    void (*stopped)(void *arg, int rank);
    /* For notices, by rank: a random number of each process, and the greatest
     * number of a notice about it. NULL: notices are ignored. */
    const uint64_t *ids;
    uint64_t *newest;
    void *arg;
};
#define PLAIT_RENDEZVOUS_GONE (-2)

/* A socket that listens on every address. *port 0: on any port; else on the
 * first free one of PLAIT_RENDEZVOUS_PORTS ports from *port on, as another
 * process may have taken the port since it was chosen. *port becomes the
 * port. */
#define PLAIT_RENDEZVOUS_PORTS 8
int plait_rendezvous_listen(int *port);

/* Who sees at which port a step is about to listen can hold all of these. As
 * many spare ports follow from the secret, so that nobody else knows them
 * beforehand: number i, or 0 where there is no secret. */
int plait_rendezvous_spare(const struct plait_rendezvous *m, int i);
/* The same as listen, or at a spare port where all from *port on are held. */
int plait_rendezvous_listen_for(const struct plait_rendezvous *m, int *port);

/* For the root: waits for those ranks behind it whose fds[rank] is -1;
 * fds[rank] becomes the connection to each. Other entries stay. -1 with errno
 * ESTALE: the others go on without this process (notice.h). */
int plait_rendezvous_gather(const struct plait_rendezvous *m, int listener,
                            int *fds, struct plait_error *err);
/* For the others: a connection to the root, which listens, now or later, on one
 * of `ports` ports from `port` on, PLAIT_RENDEZVOUS_PORTS at most; where they
 * are several, on a spare port too. A port whose holder does not answer does
 * not keep it from the others. -1 with errno, EADDRINUSE where others held all
 * but the spare ones, and err. */
int plait_rendezvous_join(const struct plait_rendezvous *m, const char *host,
                          int port, int ports, struct plait_error *err);

/* The three parts of a single attempt to join: a connection, with a timeout of
 * patience_s for every later read and write; the proofs over it, for which the
 * other end has patience_s in all; and that the root confirms this rank's or
 * closes the connection, for which `await` waits some m->timeout_s. -1 with
 * errno; ECONNREFUSED: nobody listens there. */
int plait_rendezvous_reach(const char *host, int port, int patience_s);
int plait_rendezvous_greet(const struct plait_rendezvous *m, int fd,
                           double patience_s);
int plait_rendezvous_await(const struct plait_rendezvous *m, int fd);

/* Read or write a whole buffer, restarting after signals. -1 with errno. */
int plait_write_all(int fd, const void *buf, size_t bytes);
int plait_read_all(int fd, void *buf, size_t bytes);

#endif
