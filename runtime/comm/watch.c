/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/peers.h"
#include "runtime/stuck/look.h"

/* plait_comm_watch(): watches the other ranks of the world on this node. */

/* How long the reporting rank may take, ms. */
#define SPEAKER_MS 20000

/* Gathered from every rank on every rank, so it is small. */
struct process {
    uint64_t space; /* PID namespace: processes of one see each other's ids */
    int32_t pid;
};

struct watch_peer {
    int rank;
    pid_t pid;
};

struct plait_watch {
    struct plait_peers *peers;
    int rank, n;
    struct watch_peer *peer; /* [n] the other ranks of this node */
    void (*gone)(void *arg, const char *what);
    void *arg;
};

/* The lowest rank that is left reports, kills the others and then ends. A rank
 * that finds a lower one alive waits until that one ends or kills it, so that
 * only one reports, however late it is scheduled. */
static void report_gone(void *arg, int i)
{
    struct plait_watch *w = arg;
    char what[128];

    for (int k = 0; k < w->n && w->peer[k].rank < w->rank; k++)
        plait_peers_ended(w->peers, k, SPEAKER_MS); /* false: that rank hangs */
    snprintf(what, sizeof(what),
             "rank %d (process %d of this node) has ended unexpectedly",
             w->peer[i].rank, (int)w->peer[i].pid);
    w->gone(w->arg, what);
}

void plait_comm_kill_node(const struct plait_comm *world)
{
    if (world->watch)
        plait_peers_kill(world->watch->peers);
}

/* Watch those of all[size] that are on this node, except this rank. */
static int start_watch(struct plait_watch *w, const struct process *all,
                       int size)
{
    const struct process *me = &all[w->rank];
    pid_t *pid = calloc(size, sizeof(*pid));

    w->peer = calloc(size, sizeof(*w->peer));
    for (int r = 0; pid && w->peer && r < size; r++)
        if (r != w->rank && all[r].space == me->space) {
            w->peer[w->n].rank = r;
            pid[w->n] = w->peer[w->n].pid = all[r].pid;
            w->n++;
        }
    if (pid && w->peer)
        w->peers = plait_peers_create(pid, w->n);
    free(pid);
    return w->peers ? plait_peers_watch(w->peers, report_gone, w) : -1;
}

int plait_comm_watch(struct plait_comm *world,
                     void (*gone)(void *arg, const char *what), void *arg,
                     struct plait_error *err)
{
    struct plait_watch *w = calloc(1, sizeof(*w));
    struct process me, *all;
    int rc = 0;

    memset(&me, 0, sizeof(me));
    me.pid = getpid();
    me.space = plait_stuck_space();
    all = plait_gather_values(world, w ? &me : NULL, sizeof(me), err);
    if (!all) {
        free(w);
        return -1;
    }
    w->rank = world->rank;
    w->gone = gone;
    w->arg = arg;
    world->watch = w; /* from now on gone() may be called */
    if (start_watch(w, all, world->size) < 0 && errno != ENOSYS)
        rc = plait_errorf(err,
                          "cannot watch the other processes of this node: %s",
                          strerror(errno));
    free(all);
    if (plait_error_consensus(world, rc, err) == 0)
        return 0;
    /* By all ranks, as it has a barrier. */
    world->watch = NULL;
    plait_watch_destroy(w, world);
    return -1;
}

void plait_watch_destroy(struct plait_watch *w, struct plait_comm *world)
{
    if (!w)
        return;
    plait_peers_destroy(w->peers);
    /* No rank may end while another still watches it. All ranks have a watch,
     * or none has. */
    if (!world->failed)
        plait_comm_barrier(world);
    free(w->peer);
    free(w);
}
