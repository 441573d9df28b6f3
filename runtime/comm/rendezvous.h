/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_RENDEZVOUS_H
#define PLAIT_RUNTIME_COMM_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"
#include "topology/layout/launch.h"

/* How the ranks of a group find each other over TCP. Rank 0 listens, or in turn
 * each of them, the others connect, and each side proves to the other that it
 * knows the step's secret, which itself is never sent: a foreign process can
 * neither join nor block the group. */

struct plait_meeting {
    const char *name; /* of the group, for errors */
    uint64_t key;     /* tells the groups of a job apart */
    uint64_t also;    /* another one that the root takes; 0: none */
    int rank, size;
    int root;                       /* who listens: ranks behind it connect */
    char secret[PLAIT_SECRET_SIZE]; /* "": proves nothing */
    double timeout_s;
    /* The root's port is open as long as its process lives: where nobody
     * listens, it has ended, and plait_rendezvous_join() does not wait. */
    bool standing;
    /* Called now and then while the root waits, NULL: not. It may set fds[r],
     * which is -1 as long as rank r is waited for, to PLAIT_RENDEZVOUS_GONE. */
    void (*look)(void *arg, int *fds);
    /* Called after each try of one that joins, NULL: not. True: it gives up. */
    bool (*in_vain)(void *arg);
    /* Called where it is said of a rank that it is stopped (notice.h), NULL:
     * that is of no use. */
    void (*stopped)(void *arg, int rank);
    void *arg;
};
#define PLAIT_RENDEZVOUS_GONE (-2)

/* A socket that listens on every address. *port 0: on any port. Otherwise
 * on the first of PLAIT_RENDEZVOUS_PORTS ports from *port on that is free:
 * somebody may have taken it since it was chosen. *port says which. */
#define PLAIT_RENDEZVOUS_PORTS 8
int plait_rendezvous_listen(int *port);

/* The root: wait for those ranks behind it whose fds[rank] is -1; then it is
 * the connection to them. The others stay. -1 with errno ESTALE: they go on
 * without this process (notice.h). */
int plait_rendezvous_gather(const struct plait_meeting *m, int listener,
                            int *fds, struct plait_error *err);
/* The others: a connection to the root, which listens on one of `ports` ports
 * from `port` on, or will. -1 with errno and err. */
int plait_rendezvous_join(const struct plait_meeting *m, const char *host,
                          int port, int ports, struct plait_error *err);

/* Its two halves, tried once: a connection, with so much patience for every
 * later step, and the proofs over it. -1 with errno, ECONNREFUSED: nobody
 * listens there. */
int plait_rendezvous_reach(const char *host, int port, int patience_s);
int plait_rendezvous_greet(const struct plait_meeting *m, int fd);

/* Whole buffers, whatever signals come. -1 with errno. */
int plait_write_all(int fd, const void *buf, size_t bytes);
int plait_read_all(int fd, void *buf, size_t bytes);

#endif
