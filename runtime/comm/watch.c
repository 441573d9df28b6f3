/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/comm/comm_private.h"
#include "runtime/comm/peers.h"

/* plait_comm_watch(): who else of the world is on this node. */

/* Processes that see each other's ids: those of one boot and one namespace. */
struct process {
    char boot[40];
    ino_t space;
    pid_t pid;
};

struct watch_peer {
    int rank;
    pid_t pid;
};

struct plait_watch {
    struct plait_peers *peers;
    int rank, n;
    struct watch_peer *peer; /* [n] the others */
    void (*gone)(void *arg, const char *what, bool first_left);
    void *arg;
};

static void identify(struct process *p)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    struct stat s;

    memset(p, 0, sizeof(*p));
    p->pid = getpid();
    if (f && !fgets(p->boot, sizeof(p->boot), f))
        p->boot[0] = '\0';
    if (f)
        fclose(f);
    if (stat("/proc/self/ns/pid", &s) == 0)
        p->space = s.st_ino;
}

static bool alive(const struct watch_peer *peer)
{
    char path[64], text[256] = "", *end;
    FILE *f;

    /* one that its parent has not waited for yet is as dead */
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)peer->pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    if (!fgets(text, sizeof(text), f))
        text[0] = '\0';
    fclose(f);
    end = strrchr(text, ')');
    return end && end[1] == ' ' && !strchr("ZX", end[2]);
}

static void one_gone(void *arg, int i)
{
    struct plait_watch *w = arg;
    bool first = true;
    char what[128];

    for (int k = 0; k < w->n && first; k++)
        first = w->peer[k].rank > w->rank || !alive(&w->peer[k]);
    snprintf(what, sizeof(what),
             "rank %d (process %d of this node) has ended without a word",
             w->peer[i].rank, (int)w->peer[i].pid);
    w->gone(w->arg, what, first);
}

/* The others of my node among all[size]. */
static int start(struct plait_watch *w, const struct process *all, int size)
{
    const struct process *me = &all[w->rank];
    pid_t *pid = calloc(size, sizeof(*pid));

    w->peer = calloc(size, sizeof(*w->peer));
    for (int r = 0; pid && w->peer && r < size; r++)
        if (r != w->rank && all[r].space == me->space &&
            !strcmp(all[r].boot, me->boot)) {
            w->peer[w->n].rank = r;
            pid[w->n] = w->peer[w->n].pid = all[r].pid;
            w->n++;
        }
    if (pid && w->peer)
        w->peers = plait_peers_create(pid, w->n, one_gone, w);
    free(pid);
    return w->peers ? 0 : -1;
}

int plait_comm_watch(struct plait_comm *world,
                     void (*gone)(void *arg, const char *what, bool first_left),
                     void *arg, struct plait_error *err)
{
    struct plait_watch *w = calloc(1, sizeof(*w));
    struct process me, *all = calloc(world->size, sizeof(*all));

    identify(&me);
    if (!w || !all ||
        plait_comm_host_all_gather(world, &me, all, sizeof(me)) < 0) {
        plait_errorf(err, "%s",
                     w && all ? plait_comm_error(world) : "out of memory");
        goto error;
    }
    w->rank = world->rank;
    w->gone = gone;
    w->arg = arg;
    if (start(w, all, world->size) < 0 && errno != ENOSYS) {
        plait_errorf(err, "cannot watch the other processes of this node: %s",
                     strerror(errno));
        goto error;
    }
    free(all);
    world->watch = w;
    return 0;

error:
    free(all);
    if (w)
        free(w->peer);
    free(w);
    return -1;
}

void plait_watch_destroy(struct plait_watch *w, struct plait_comm *world)
{
    if (!w)
        return;
    plait_peers_destroy(w->peers);
    /* Nobody ends while somebody still watches. */
    if (!world->failed)
        plait_comm_barrier(world);
    free(w->peer);
    free(w);
}
