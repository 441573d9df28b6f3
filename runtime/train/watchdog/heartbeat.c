/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/watchdog/heartbeat.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/stuck/beat.h"
#include "runtime/stuck/look.h"
#include "topology/base/clock.h"

/* Questions: seconds until a node is asked again, how many are asked at once,
 * and after how many tries another rank of the node is. */
#define ASK_S 0.05
enum { ASKED_AT_ONCE = 64, TRIES = 3 };

struct node {
    int first, nranks; /* its part of `ranks`: start and length */
    int got, tries;    /* answers received, questions sent */
};

struct plait_heartbeat {
    struct plait_heartbeat_link link;
    struct plait_heartbeat_site site;
    struct plait_heartbeat_address *at; /* [world] */
    int *node_of;                       /* [world] */
    int *ranks;                         /* [world] by node */
    struct node *node;                  /* [nnodes] */
    int speaker;                        /* index of this process in its node */
    int wake;
    pthread_t thread;
    _Atomic int tid; /* of the thread */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    /* Under the lock. */
    struct plait_beat_table table;
    struct plait_stuck_rank *answers; /* [world] NULL: no question is open */
    bool *has;                        /* [world] */
    bool leave, spoke;
    _Atomic int told; /* a plait_beat_kind: END, OVER; 0: the run goes on */
};

/* -- sending --------------------------------------------------------------- */

/* All processes of a node number their messages by the same clock. */
static uint64_t next_number(void)
{
    return plait_clock_ns() + 1;
}

static void send_beat(struct plait_heartbeat *hb, int node,
                      const struct plait_heartbeat_address *to,
                      struct plait_beat beat)
{
    unsigned char message[PLAIT_BEAT_MOST + PLAIT_HEARTBEAT_SEAL];
    int size;

    beat.run = hb->site.run;
    beat.node = hb->site.node;
    beat.number = next_number();
    size = plait_beat_pack(&beat, message, PLAIT_BEAT_MOST);
    if (size > 0)
        plait_heartbeat_send(&hb->link, node, to, message, size);
}

static const struct plait_heartbeat_address *
address_of(const struct plait_heartbeat *hb, int node, int speaker)
{
    const struct node *n = &hb->node[node];

    return &hb->at[hb->ranks[n->first + speaker % n->nranks]];
}

static void send_alive(struct plait_heartbeat *hb, double now)
{
    unsigned char body[2 * PLAIT_BEAT_NODES];
    int n = hb->site.nnodes, to;

    /* The time of day counts rounds, so that all nodes are in the same one. */
    to = plait_beat_target(n, hb->site.node,
                           (int64_t)(plait_clock_unix() / PLAIT_BEAT_ROUND_S));
    for (int first = 0; first < n; first += PLAIT_BEAT_NODES) {
        int count = n - first < PLAIT_BEAT_NODES ? n - first : PLAIT_BEAT_NODES;

        plait_beat_table_tell(&hb->table, first, count, now, body);
        send_beat(hb, to, address_of(hb, to, hb->table.speaker[to]),
                  (struct plait_beat){.kind = PLAIT_BEAT_ALIVE,
                                      .first = first,
                                      .count = count,
                                      .body = body,
                                      .size = 2 * (size_t)count});
    }
}

/* To the nodes at distances 1, 2, 4, ... in the order of nodes; they pass it
 * on. */
static void send_end(struct plait_heartbeat *hb, enum plait_beat_kind kind)
{
    int n = hb->site.nnodes;

    for (int far = 1; far < n; far *= 2) {
        int to = (hb->site.node + far) % n;

        send_beat(hb, to, address_of(hb, to, hb->table.speaker[to]),
                  (struct plait_beat){.kind = kind});
    }
}

/* -- asking ---------------------------------------------------------------- */

static bool is_silent(const struct plait_heartbeat *hb, int node, double now)
{
    return node != hb->site.node &&
           now - hb->table.heard[node] > plait_beat_limit(hb->site.nnodes);
}

static bool is_missing(const struct plait_heartbeat *hb, int node, double now)
{
    return node != hb->site.node && !is_silent(hb, node, now) &&
           hb->node[node].got < hb->node[node].nranks;
}

static void ask_nodes(struct plait_heartbeat *hb, double now)
{
    int asked = 0;

    for (int i = 0; i < hb->site.nnodes && asked < ASKED_AT_ONCE; i++) {
        if (!is_missing(hb, i, now))
            continue;
        send_beat(
            hb, i,
            address_of(hb, i, hb->table.speaker[i] + hb->node[i].tries / TRIES),
            (struct plait_beat){.kind = PLAIT_BEAT_ASK});
        hb->node[i].tries++;
        asked++;
    }
    if (asked == 0)
        pthread_cond_broadcast(&hb->answered);
}

/* Not under the lock: it reads /proc. */
static void answer_question(struct plait_heartbeat *hb, int node,
                            const struct plait_heartbeat_address *to)
{
    const struct node *me = &hb->node[hb->site.node];
    unsigned char body[PLAIT_STUCK_WIRE_MOST];
    struct plait_stuck_rank rank;
    int size;

    for (int i = 0; i < me->nranks; i++) {
        hb->site.look(hb->site.arg, hb->ranks[me->first + i], &rank);
        size = plait_stuck_pack(&rank, body, sizeof(body));
        if (size > 0)
            send_beat(hb, node, to,
                      (struct plait_beat){.kind = PLAIT_BEAT_RANK,
                                          .count = me->nranks,
                                          .body = body,
                                          .size = (size_t)size});
    }
}

static void take_answer(struct plait_heartbeat *hb, const struct plait_beat *b)
{
    struct plait_stuck_rank rank;

    if (!hb->answers || plait_stuck_unpack(b->body, b->size, &rank) < 0 ||
        rank.rank >= hb->site.world || hb->node_of[rank.rank] != b->node ||
        hb->has[rank.rank])
        return;
    hb->answers[rank.rank] = rank;
    hb->has[rank.rank] = true;
    hb->node[b->node].got++;
}

/* -- the thread ------------------------------------------------------------ */

/* Whether a question is to be answered. */
static bool take_message(struct plait_heartbeat *hb, const struct plait_beat *b,
                         double now)
{
    if (b->run != hb->site.run || !plait_beat_table_take(&hb->table, b, now))
        return false;
    if (b->kind == PLAIT_BEAT_RANK)
        take_answer(hb, b);
    if (b->kind >= PLAIT_BEAT_END && (int)b->kind > hb->told) {
        hb->told = b->kind;
        send_end(hb, b->kind);
    }
    return b->kind == PLAIT_BEAT_ASK;
}

static void read_messages(struct plait_heartbeat *hb)
{
    unsigned char message[PLAIT_BEAT_MOST + PLAIT_HEARTBEAT_SEAL];
    struct plait_heartbeat_address from;
    struct plait_beat beat;
    bool asked;
    int size;

    while ((size = plait_heartbeat_receive(&hb->link, message, sizeof(message),
                                           &from)) >= 0) {
        if (size == 0 || plait_beat_unpack(message, (size_t)size, &beat) < 0)
            continue;
        pthread_mutex_lock(&hb->lock);
        asked = take_message(hb, &beat, plait_clock_now());
        pthread_mutex_unlock(&hb->lock);
        if (asked)
            answer_question(hb, beat.node, &from);
    }
}

/* A new speaker has received nothing yet: it forgets older silences. */
static void speak(struct plait_heartbeat *hb, double now)
{
    bool speaks = hb->site.speaks(hb->site.arg);

    if (speaks && !hb->spoke)
        plait_beat_table_reset(&hb->table, now);
    hb->spoke = speaks;
    if (speaks)
        send_alive(hb, now);
}

/* Seconds until there is something to do. */
static double take_turn(struct plait_heartbeat *hb, double *next)
{
    double now = plait_clock_now();

    if (now >= *next) {
        speak(hb, now);
        *next = now + PLAIT_BEAT_ROUND_S;
    }
    if (hb->answers)
        ask_nodes(hb, now);
    return hb->answers && *next - now > ASK_S ? ASK_S : *next - now;
}

static void *keep_beating(void *arg)
{
    struct plait_heartbeat *hb = arg;
    struct pollfd fds[2] = {{.fd = hb->link.fd, .events = POLLIN},
                            {.fd = hb->wake, .events = POLLIN}};
    double next = 0, wait;
    eventfd_t woken;

    hb->tid = gettid();
    for (;;) {
        pthread_mutex_lock(&hb->lock);
        if (hb->leave)
            break;
        wait = take_turn(hb, &next);
        pthread_mutex_unlock(&hb->lock);
        poll(fds, 2, (int)(wait * 1000) + 1);
        if (fds[1].revents)
            eventfd_read(hb->wake, &woken);
        read_messages(hb);
    }
    pthread_mutex_unlock(&hb->lock);
    return NULL;
}

static void wake_thread(struct plait_heartbeat *hb)
{
    eventfd_write(hb->wake, 1); /* if that fails, it wakes by itself */
}

/* -- what is known --------------------------------------------------------- */

/* This node's own entry of `heard` is when the process began to listen. */
double plait_heartbeat_silence(struct plait_heartbeat *hb, int node, bool known)
{
    double now = plait_clock_now(), age = 0, heard;

    pthread_mutex_lock(&hb->lock);
    heard = hb->table.heard[node];
    if (is_silent(hb, node, now) &&
        (!known || heard > hb->table.heard[hb->site.node]))
        age = now - heard;
    pthread_mutex_unlock(&hb->lock);
    return age;
}

bool plait_heartbeat_alone(struct plait_heartbeat *hb)
{
    for (int i = 0; i < hb->site.nnodes; i++)
        if (i != hb->site.node && plait_heartbeat_silence(hb, i, true) == 0)
            return false;
    return true;
}

static bool is_complete(const struct plait_heartbeat *hb)
{
    double now = plait_clock_now();

    for (int i = 0; i < hb->site.nnodes; i++)
        if (is_missing(hb, i, now))
            return false;
    return true;
}

/* Mark the ranks of silent nodes. */
static void note_silent(struct plait_heartbeat *hb,
                        struct plait_stuck_rank *ranks)
{
    double now = plait_clock_now();

    for (int r = 0; r < hb->site.world; r++) {
        int node = hb->node_of[r];

        if (hb->has[r] || !is_silent(hb, node, now))
            continue;
        ranks[r].state = PLAIT_STUCK_SILENT;
        ranks[r].phase_age = now - hb->table.heard[node];
    }
}

void plait_heartbeat_ask(struct plait_heartbeat *hb, double seconds,
                         struct plait_stuck_rank *ranks)
{
    const struct timespec until =
        plait_clock_in(CLOCK_MONOTONIC, (int64_t)(seconds * 1e9));

    pthread_mutex_lock(&hb->lock);
    memset(hb->has, 0, (size_t)hb->site.world * sizeof(*hb->has));
    for (int i = 0; i < hb->site.nnodes; i++)
        hb->node[i].got = hb->node[i].tries = 0;
    hb->answers = ranks;
    wake_thread(hb);
    while (!is_complete(hb) && pthread_cond_timedwait(&hb->answered, &hb->lock,
                                                      &until) != ETIMEDOUT)
        ;
    hb->answers = NULL;
    note_silent(hb, ranks);
    pthread_mutex_unlock(&hb->lock);
}

int plait_heartbeat_thread(const struct plait_heartbeat *hb)
{
    return hb->tid;
}

void plait_heartbeat_end(struct plait_heartbeat *hb, enum plait_beat_kind kind)
{
    pthread_mutex_lock(&hb->lock);
    send_end(hb, kind);
    pthread_mutex_unlock(&hb->lock);
}

bool plait_heartbeat_ended(const struct plait_heartbeat *hb,
                           enum plait_beat_kind kind)
{
    return hb->told >= (int)kind;
}

/* -- life ------------------------------------------------------------------ */

/* Which ranks each node has. -1: one has none. */
static int list_ranks(struct plait_heartbeat *hb)
{
    const struct plait_heartbeat_site *s = &hb->site;
    int used = 0;

    for (int r = 0; r < s->world; r++)
        hb->node[hb->node_of[r]].nranks++;
    for (int i = 0; i < s->nnodes; i++) {
        if (hb->node[i].nranks == 0)
            return -1;
        used += hb->node[i].nranks;
        hb->node[i].first = used;
    }
    for (int r = s->world - 1; r >= 0; r--)
        hb->ranks[--hb->node[hb->node_of[r]].first] = r;
    return 0;
}

static int copy_site(struct plait_heartbeat *hb)
{
    const struct plait_heartbeat_site *s = &hb->site;
    size_t n = (size_t)s->world;

    hb->at = calloc(n, sizeof(*hb->at));
    hb->node_of = calloc(n, sizeof(*hb->node_of));
    hb->ranks = calloc(n, sizeof(*hb->ranks));
    hb->has = calloc(n, sizeof(*hb->has));
    hb->node = calloc((size_t)s->nnodes, sizeof(*hb->node));
    if (!hb->at || !hb->node_of || !hb->ranks || !hb->has || !hb->node)
        return -1;
    memcpy(hb->at, s->at, n * sizeof(*hb->at));
    memcpy(hb->node_of, s->node_of, n * sizeof(*hb->node_of));
    return list_ranks(hb);
}

static int start_thread(struct plait_heartbeat *hb)
{
    pthread_condattr_t clock;
    sigset_t all, before;
    int number;

    pthread_mutex_init(&hb->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&hb->answered, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&hb->thread, NULL, keep_beating, hb);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number == 0)
        return 0;
    pthread_cond_destroy(&hb->answered);
    pthread_mutex_destroy(&hb->lock);
    errno = number;
    return -1;
}

static void heartbeat_free(struct plait_heartbeat *hb)
{
    int saved = errno;

    if (hb->wake >= 0)
        close(hb->wake);
    close(hb->link.fd);
    plait_beat_table_clear(&hb->table);
    free(hb->at);
    free(hb->node_of);
    free(hb->ranks);
    free(hb->has);
    free(hb->node);
    free(hb);
    errno = saved;
}

struct plait_heartbeat *
plait_heartbeat_create(int fd, int rank,
                       const struct plait_heartbeat_site *site)
{
    struct plait_heartbeat *hb = calloc(1, sizeof(*hb));

    if (!hb) {
        close(fd);
        return NULL;
    }
    hb->site = *site;
    hb->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    plait_heartbeat_link_init(&hb->link, fd, site->node, &site->at[rank],
                              site->secret);
    if (hb->wake < 0 || copy_site(hb) < 0 ||
        plait_beat_table_init(&hb->table, site->nnodes, site->node,
                              plait_clock_now()) < 0)
        goto error;
    hb->site.at = NULL;
    hb->site.node_of = NULL;
    hb->site.secret = NULL;
    while (hb->ranks[hb->node[site->node].first + hb->speaker] != rank)
        hb->speaker++;
    hb->table.speaker[site->node] =
        (unsigned char)(hb->speaker < 255 ? hb->speaker : 255);
    if (start_thread(hb) == 0)
        return hb;

error:
    heartbeat_free(hb);
    return NULL;
}

void plait_heartbeat_destroy(struct plait_heartbeat *hb)
{
    int saved = errno;

    if (!hb)
        return;
    pthread_mutex_lock(&hb->lock);
    hb->leave = true;
    pthread_mutex_unlock(&hb->lock);
    wake_thread(hb);
    pthread_join(hb->thread, NULL);
    pthread_cond_destroy(&hb->answered);
    pthread_mutex_destroy(&hb->lock);
    heartbeat_free(hb);
    errno = saved;
}
