/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/hang.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/stuck/look.h"
#include "topology/base/hash.h"

/* A watch that has not run for so long will not report. */
#define FRESH_S 2

/* How a rank is found by those of its node. */
struct contact {
    uint64_t run;   /* rank 0's counts */
    uint64_t space; /* processes of one see each other */
    int32_t pid, fd, gpu;
    char host[64];
};

struct plait_hang {
    struct plait_record *record; /* NULL: none */
    int fd, rank, world;
    struct contact *all;              /* [world] */
    const struct plait_record **peer; /* [world] NULL: not of this node */
};

static uint64_t process_space(void)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    char boot[40] = "";
    struct stat s;

    if (f && !fgets(boot, sizeof(boot), f))
        boot[0] = '\0';
    if (f)
        fclose(f);
    if (stat("/proc/self/ns/pid", &s) < 0)
        s.st_ino = 0;
    return plait_hash_text(PLAIT_HASH_START, boot) + s.st_ino;
}

static void describe_self(struct plait_hang *h, const struct plait_world *world)
{
    struct contact *me = &h->all[h->rank];
    struct plait_record *record = h->record;

    me->space = process_space();
    me->pid = getpid();
    me->fd = h->fd;
    me->gpu = world->planned ? world->launch.gpu : -1;
    if (getrandom(&me->run, sizeof(me->run), 0) != sizeof(me->run))
        me->run = me->space + (uint64_t)me->pid;
    gethostname(me->host, sizeof(me->host) - 1);
    if (!record)
        return;
    record->rank = h->rank;
    record->world = h->world;
    record->gpu = me->gpu;
    if (world->planned)
        snprintf(record->job, sizeof(record->job), "%s", world->launch.jobid);
}

static void open_peers(struct plait_hang *h)
{
    const struct contact *me = &h->all[h->rank];

    for (int r = 0; r < h->world; r++)
        if (r == h->rank)
            h->peer[r] = h->record;
        else if (h->all[r].space == me->space && h->all[r].fd >= 0)
            h->peer[r] = plait_record_open(h->all[r].pid, h->all[r].fd);
}

/* Every rank's contact. Nothing may be opened before all are complete. */
static int meet(struct plait_hang *h, struct plait_comm *comm,
                struct plait_error *err)
{
    struct contact me = h->all[h->rank];

    if (plait_comm_host_all_gather(comm, &me, h->all, sizeof(me)) < 0)
        return plait_errorf(err, "%s", plait_comm_error(comm));
    if (h->record) {
        h->record->run = h->all[0].run;
        atomic_thread_fence(memory_order_release);
        h->record->magic = PLAIT_RECORD_MAGIC;
    }
    if (plait_comm_barrier(comm) < 0)
        return plait_errorf(err, "%s", plait_comm_error(comm));
    return 0;
}

struct plait_hang *plait_hang_create(const struct plait_world *world,
                                     struct plait_error *err)
{
    struct plait_hang *h = calloc(1, sizeof(*h));
    int n = plait_comm_size(world->comm), rc = h ? 0 : -1;

    if (h) {
        h->fd = -1;
        h->rank = plait_comm_rank(world->comm);
        h->world = n;
        h->all = calloc((size_t)n, sizeof(*h->all));
        h->peer = calloc((size_t)n, sizeof(*h->peer));
        rc = h->all && h->peer ? 0 : -1;
    }
    if (rc < 0)
        plait_errorf(err, "out of memory");
    if (plait_error_consensus(world->comm, rc, err) < 0)
        goto error;
    h->record = plait_record_create(&h->fd);
    describe_self(h, world);
    if (meet(h, world->comm, err) < 0)
        goto error;
    open_peers(h);
    plait_comm_set_record(world->comm, h->record);
    return h;

error:
    plait_hang_destroy(h);
    return NULL;
}

void plait_hang_destroy(struct plait_hang *h)
{
    int saved = errno;

    if (!h)
        return;
    for (int r = 0; h->peer && r < h->world; r++)
        if (r != h->rank)
            plait_record_close(h->peer[r]);
    plait_record_destroy(h->record, h->fd);
    free(h->peer);
    free(h->all);
    free(h);
    errno = saved;
}

void plait_hang_alive(struct plait_hang *h)
{
    if (h && h->record)
        atomic_store(&h->record->alive, plait_record_now());
}

bool plait_hang_speaks(const struct plait_hang *h)
{
    double now = plait_record_now();

    for (int r = 0; h && r < h->rank; r++)
        if (h->peer[r] && now - atomic_load(&h->peer[r]->alive) < FRESH_S)
            return false;
    return true;
}

bool plait_hang_is_first_node(const struct plait_hang *h)
{
    return !h || h->rank == 0 || h->peer[0];
}

bool plait_hang_is_lowest(const struct plait_hang *h)
{
    for (int r = 0; h && r < h->rank; r++)
        if (h->peer[r])
            return false;
    return true;
}

void plait_hang_note(struct plait_hang *h)
{
    struct plait_record *record = h ? h->record : NULL;
    char text[sizeof(record->where)];
    int pid = getpid();

    if (!record)
        return;
    atomic_store(&record->blocked, 0);
    plait_stuck_where(pid, pid, text, sizeof(text));
    /* Its loader and its saver have threads that read and write for it. */
    if (!text[0])
        plait_stuck_where(pid, 0, text, sizeof(text));
    memcpy(record->where, text, sizeof(text));
    atomic_store(&record->blocked, text[0] != '\0');
}

static void look_at(const struct plait_hang *h, struct plait_stuck_rank *ranks)
{
    for (int r = 0; r < h->world; r++) {
        if (h->peer[r])
            plait_stuck_look(h->peer[r], &ranks[r]);
        else
            plait_stuck_unknown(r, &ranks[r]);
        snprintf(ranks[r].host, sizeof(ranks[r].host), "%.63s", h->all[r].host);
        ranks[r].pid = h->all[r].pid;
        ranks[r].gpu = h->all[r].gpu;
    }
}

void plait_hang_explain(const struct plait_hang *h, char *text, size_t size)
{
    struct plait_stuck_rank *ranks =
        h ? calloc((size_t)h->world, sizeof(*ranks)) : NULL;
    struct plait_verdict verdict;

    snprintf(text, size, "nothing was noted of its ranks");
    if (!ranks)
        return;
    look_at(h, ranks);
    if (plait_stuck_judge(ranks, h->world, &verdict) == 0)
        plait_stuck_sentence(ranks, h->world, &verdict, time(NULL), text, size);
    free(ranks);
}
