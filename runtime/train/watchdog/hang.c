/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/watchdog/hang.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/consensus.h"
#include "runtime/stuck/beat.h"
#include "runtime/stuck/look.h"
#include "runtime/train/watchdog/hang_private.h"
#include "runtime/train/watchdog/unanswered.h"
#include "topology/base/clock.h"

/* Seconds after which a watch thread that has not run will not report. */
#define FRESH_S 2
/* How long a rank that was continued from a stop does nothing and hears no
 * other node before it ends. A machine that is busy with other work also holds
 * a process up for seconds, and the heartbeats of all nodes on it, but not for
 * as long; Slurm kills the rank after KillWait, 30 s if not configured. */
#define LEFT_S 15
/* Seconds for other nodes to answer what their ranks do. */
#define ASK_S 1.0

static int gpu_of(const struct plait_hang_contact *c)
{
    return c->gpu == PLAIT_HANG_NO_GPU ? -1 : (int)c->gpu;
}

static struct plait_hang_contact describe_self(struct plait_hang *h,
                                               const struct plait_world *world)
{
    struct plait_hang_contact me = {.gpu = PLAIT_HANG_NO_GPU};
    struct plait_record *record = h->record;

    me.space = plait_stuck_space();
    me.pid = (uint32_t)getpid();
    me.fd = h->fd;
    if (world->planned && world->launch.gpu >= 0)
        me.gpu = (uint32_t)world->launch.gpu;
    if (!record)
        return me;
    record->rank = h->rank;
    record->world = h->world;
    record->gpu = gpu_of(&me);
    if (world->planned)
        snprintf(record->job, sizeof(record->job), "%s", world->launch.jobid);
    return me;
}

static void open_peers(struct plait_hang *h)
{
    const struct plait_hang_contact *all = h->contacts.all;

    for (int r = 0; r < h->world; r++)
        if (r == h->rank)
            h->peer[r] = h->record;
        else if (all[r].space == all[h->rank].space && all[r].fd >= 0)
            h->peer[r] = plait_record_open((int)all[r].pid, all[r].fd);
}

/* Exchange contacts. No record may be opened before all are complete. */
static int meet(struct plait_hang *h, const struct plait_world *world,
                struct plait_error *err)
{
    struct plait_hang_contact me = describe_self(h, world);

    if (plait_contacts_meet(&h->contacts, world->comm, &me, err) < 0)
        return -1;
    if (h->record) {
        h->record->run = h->contacts.run;
        atomic_thread_fence(memory_order_release);
        h->record->magic = PLAIT_RECORD_MAGIC;
    }
    if (plait_comm_barrier(world->comm) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world->comm));
    return 0;
}

/* The first of this node's ranks. */
static int first_here(const struct plait_hang *h)
{
    const int *node_of = h->contacts.node_of;
    int r = 0;

    while (node_of[r] != node_of[h->rank])
        r++;
    return r;
}

/* The addresses of all ranks. Collective. */
static int exchange_addresses(struct plait_hang *h,
                              const struct plait_world *world,
                              struct plait_error *err)
{
    const char *toward = world->planned && world->launch.master_addr[0]
                             ? world->launch.master_addr
                             : h->contacts.first_host;
    struct plait_heartbeat_address mine = {.port = 0};

    if (world->planned)
        memcpy(h->secret, world->launch.secret, sizeof(h->secret));
    h->socket = plait_heartbeat_open(toward, &mine);
    if (h->socket < 0)
        plait_errorf(&h->unheard, "no socket: %s", strerror(errno));
    if (plait_contacts_exchange(&h->contacts, world->comm, &mine, h->record,
                                h->peer[first_here(h)], err) < 0)
        return -1;
    plait_heartbeat_correct(toward, h->world, h->contacts.at);
    return 0;
}

static int hang_init(struct plait_hang *h, struct plait_comm *comm)
{
    size_t n = (size_t)plait_comm_size(comm);

    h->fd = h->socket = -1;
    h->rank = plait_comm_rank(comm);
    h->world = (int)n;
    h->peer = calloc(n, sizeof(*h->peer));
    return h->peer ? 0 : -1;
}

struct plait_hang *plait_hang_create(const struct plait_world *world,
                                     struct plait_error *err)
{
    struct plait_hang *h = calloc(1, sizeof(*h));
    int rc = h ? hang_init(h, world->comm) : -1;

    if (rc < 0)
        plait_errorf(err, "out of memory");
    if (plait_error_consensus(world->comm, rc, err) < 0)
        goto error;
    h->record = plait_record_create(&h->fd);
    if (meet(h, world, err) < 0)
        goto error;
    open_peers(h);
    if (h->contacts.nnodes > 1 && exchange_addresses(h, world, err) < 0)
        goto error;
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
    plait_heartbeat_destroy(h->beat);
    if (h->socket >= 0)
        close(h->socket);
    for (int r = 0; h->peer && r < h->world; r++)
        if (r != h->rank)
            plait_record_close(h->peer[r]);
    plait_record_destroy(h->record, h->fd);
    plait_contacts_clear(&h->contacts);
    free(h->peer);
    free(h);
    errno = saved;
}

void plait_hang_where(const struct plait_hang *h, int rank, char *text,
                      size_t size)
{
    const struct plait_hang_contact *c = &h->contacts.all[rank];
    const char *host = plait_contacts_host(&h->contacts, rank);

    if (gpu_of(c) >= 0)
        snprintf(text, size, "%.63s, GPU %d", host, gpu_of(c));
    else
        snprintf(text, size, "%.63s, process %d", host, (int)c->pid);
}

static bool speaks(void *arg)
{
    return plait_hang_speaks(arg);
}

/* What is known of a rank without asking another node. */
static void look_at(const struct plait_hang *h, int r,
                    struct plait_stuck_rank *rank)
{
    if (h->peer[r])
        plait_stuck_look(h->peer[r], rank);
    else
        plait_stuck_unknown(r, rank);
    snprintf(rank->host, sizeof(rank->host), "%.63s",
             plait_contacts_host(&h->contacts, r));
    rank->pid = (int)h->contacts.all[r].pid;
    rank->gpu = gpu_of(&h->contacts.all[r]);
}

/* What a rank of this node is blocked in, if it has not noted it: its watch may
 * have had no processor since the run became quiet. */
static void look_closer(const struct plait_hang *h, int r,
                        struct plait_stuck_rank *rank)
{
    const struct plait_record *peer = h->peer[r];
    char where[sizeof(rank->where)] = "";

    if (peer && !atomic_load(&peer->blocked))
        plait_stuck_where_any(peer->pid, where, sizeof(where));
    if (where[0])
        memcpy(rank->where, where, sizeof(where));
}

/* The answer to another node. */
static void look(void *arg, int rank, struct plait_stuck_rank *out)
{
    look_at(arg, rank, out);
    look_closer(arg, rank, out);
}

void plait_hang_listen(struct plait_hang *h)
{
    struct plait_heartbeat_site site = {
        .speaks = speaks, .look = look, .arg = h};

    if (!h || h->socket < 0 || h->beat)
        return;
    site.world = h->world;
    site.node = h->contacts.node_of[h->rank];
    site.nnodes = h->contacts.nnodes;
    site.node_of = h->contacts.node_of;
    site.at = h->contacts.at;
    site.run = h->contacts.run;
    site.secret = h->secret;
    h->beat = plait_heartbeat_create(h->socket, h->rank, &site);
    h->socket = -1;
}

void plait_hang_alive(struct plait_hang *h)
{
    if (h && h->record)
        atomic_store(&h->record->alive, plait_clock_now());
}

bool plait_hang_speaks(const struct plait_hang *h)
{
    double now = plait_clock_now();

    for (int r = 0; h && r < h->rank; r++)
        if (h->peer[r] && now - atomic_load(&h->peer[r]->alive) < FRESH_S)
            return false;
    return true;
}

bool plait_hang_is_first_node(const struct plait_hang *h)
{
    int mine = h ? h->contacts.node_of[h->rank] : 0;

    for (int i = 0; i < mine; i++)
        if (!h->beat || plait_heartbeat_silence(h->beat, i, false) == 0)
            return false;
    return true;
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

    if (!record)
        return;
    atomic_store(&record->unanswered, plait_unanswered_connections());
    atomic_store(&record->blocked, 0);
    plait_stuck_where_any(getpid(), text, sizeof(text));
    memcpy(record->where, text, sizeof(text));
    atomic_store(&record->blocked, text[0] != '\0');
}

/* This node counts as cut off if it hears fewer than half of the nodes, or
 * exactly half without the first one. */
static bool is_cut_off(const struct plait_hang *h, int *silent, double *age)
{
    bool first = true;

    *silent = 0;
    *age = 0;
    for (int i = 0; h->beat && i < h->contacts.nnodes; i++) {
        double silence = plait_heartbeat_silence(h->beat, i, false);

        *silent += silence > 0;
        *age = silence > *age ? silence : *age;
        first &= i > 0 || silence == 0;
    }
    return *silent * 2 > h->contacts.nnodes ||
           (*silent * 2 == h->contacts.nnodes && !first);
}

static void explain_cut(const struct plait_hang *h, int silent, double age,
                        char *text, size_t size)
{
    time_t since = time(NULL) - (time_t)age;
    struct tm tm;
    char at[16] = "";

    if (localtime_r(&since, &tm))
        strftime(at, sizeof(at), "%H:%M:%S", &tm);
    snprintf(text, size,
             "node %s has heard nothing from %d of the %d other nodes since "
             "%s: it is cut off",
             plait_contacts_host(&h->contacts, h->rank), silent,
             h->contacts.nnodes - 1, at);
}

struct plait_stuck_rank *plait_hang_look_all(const struct plait_hang *h,
                                             bool ask)
{
    struct plait_stuck_rank *ranks =
        h ? calloc((size_t)h->world, sizeof(*ranks)) : NULL;

    for (int r = 0; ranks && r < h->world; r++)
        look_at(h, r, &ranks[r]);
    if (ranks && ask && h->beat)
        plait_heartbeat_ask(h->beat, ASK_S, ranks);
    return ranks;
}

void plait_hang_explain(const struct plait_hang *h, char *text, size_t size)
{
    struct plait_stuck_rank *ranks = plait_hang_look_all(h, true);
    struct plait_verdict verdict;
    double age;
    int silent;

    snprintf(text, size, "its ranks left no record");
    if (!ranks)
        return;
    for (int r = 0; r < h->world; r++)
        look_closer(h, r, &ranks[r]);
    if (is_cut_off(h, &silent, &age))
        explain_cut(h, silent, age, text, size);
    else if (plait_stuck_judge(ranks, h->world, &verdict) == 0)
        plait_stuck_sentence(ranks, h->world, &verdict, time(NULL), text, size);
    free(ranks);
}

bool plait_hang_is_left(const struct plait_hang *h, double seconds)
{
    return h && h->beat && seconds > LEFT_S &&
           plait_hang_idle(h, false) > LEFT_S && plait_heartbeat_alone(h->beat);
}

double plait_hang_silence(const struct plait_hang *h, int rank)
{
    return h && h->beat ? plait_heartbeat_silence(
                              h->beat, h->contacts.node_of[rank], true)
                        : 0;
}

const char *plait_hang_unheard(const struct plait_hang *h)
{
    return h && h->unheard.text[0] ? h->unheard.text : NULL;
}
