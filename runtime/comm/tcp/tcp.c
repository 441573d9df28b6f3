/* SPDX-License-Identifier: Apache-2.0 */
/* Host values over TCP, by the launch contract's rendezvous: what NCCL needs to
 * find its peers where there is no MPI. All ranks connect to rank 0, which
 * tells each its parent in a tree of the ranks (tcp_tree.h); later messages go
 * along the tree. For control values, not for the step's data. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/backend.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/rendezvous.h"
#include "runtime/comm/bootstrap/tcp_meet.h"
#include "topology/base/hash.h"
#include "topology/base/text.h"

/* In front of every message: who sends it, and what it has entered. After one
 * with `why` not 0 come so many bytes of text: the sender has given up. */
struct tcp_head {
    struct plait_call call;
    int32_t rank; /* in the world */
    uint16_t why;
    uint8_t differ; /* as ranks have entered different collectives */
    uint8_t waits;  /* nothing follows: the sender has waited for a while */
    char host[64];
};

enum { WHY = 320 };

/* A rank that has waited so long says so, ms: two that wait for each other in
 * different collectives send nothing else. */
#define PATIENCE_MS 300

struct tcp_comm {
    struct plait_comm base;
    struct plait_rendezvous meeting;
    struct plait_tcp_lines lines;
    struct tcp_head head; /* of this rank */
    bool differ;
};

static const struct plait_comm_vtable tcp_vtable;

static struct tcp_comm *tcp_of(struct plait_comm *comm)
{
    return (struct tcp_comm *)comm;
}

/* -- life ---------------------------------------------------------------- */

/* A rank that has not met the others cannot tell them that it lacks memory:
 * there is always enough for one world. */
static struct tcp_comm reserve;

static struct tcp_comm *group_create(const struct plait_identity *self,
                                     uint64_t key, const char *secret,
                                     double timeout_s)
{
    struct tcp_comm *c = malloc(sizeof(*c));

    if (c == NULL && reserve.base.vtable == NULL)
        c = &reserve;
    if (c == NULL)
        return NULL;
    memset(c, 0, sizeof(*c));
    plait_comm_init(&c->base, &tcp_vtable, NULL, NULL, self);
    c->meeting = (struct plait_rendezvous){.name = c->base.name,
                                           .key = key,
                                           .rank = self->rank,
                                           .size = self->size,
                                           .timeout_s = timeout_s};
    memcpy(c->meeting.secret, secret, sizeof(c->meeting.secret));
    plait_tcp_lines_init(&c->lines, self->rank, self->size);
    gethostname(c->head.host, sizeof(c->head.host) - 1);
    return c;
}

static void tcp_destroy(struct plait_comm *comm)
{
    plait_tcp_lines_close(&tcp_of(comm)->lines);
    comm->vtable = NULL;
    if (comm != &reserve.base)
        free(comm);
}

/* Peers that wait for this rank see the connection close. */
static void tcp_abort(struct plait_comm *comm)
{
    const struct plait_tcp_lines *l = &tcp_of(comm)->lines;

    if (l->up >= 0)
        shutdown(l->up, SHUT_RDWR);
    for (int i = 0; i < PLAIT_TCP_WAYS; i++)
        if (l->down[i] >= 0)
            shutdown(l->down[i], SHUT_RDWR);
}

struct plait_comm *plait_tcp_create(const struct plait_launch *launch,
                                    double timeout_s, struct plait_error *err)
{
    uint64_t key = plait_hash_text(PLAIT_HASH_START, launch->jobid);
    const struct plait_identity self = {"world", launch->rank,
                                        launch->world_size};
    struct tcp_comm *c = group_create(&self, key, launch->secret, timeout_s);

    if (c == NULL) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (plait_tcp_meet_world(&c->lines, &c->meeting, launch, err) == 0)
        return &c->base;
    plait_comm_destroy(&c->base);
    return NULL;
}

/* -- host values --------------------------------------------------------- */

/* Writes a head and what follows it, in one piece where that is small. */
static int write_message(struct tcp_comm *c, int fd, const void *buf,
                         size_t bytes)
{
    char both[sizeof(c->head) + 1024];

    c->head.call = c->base.call;
    c->head.rank = c->base.world_rank;
    memcpy(both, &c->head, sizeof(c->head));
    if (bytes <= sizeof(both) - sizeof(c->head)) {
        if (bytes > 0)
            memcpy(both + sizeof(c->head), buf, bytes);
        return plait_write_all(fd, both, sizeof(c->head) + bytes);
    }
    return plait_write_all(fd, both, sizeof(c->head)) < 0 ||
                   plait_write_all(fd, buf, bytes) < 0
               ? -1
               : 0;
}

/* Fails the communicator on all ranks with this reason. */
static int refuse(struct tcp_comm *c, bool differ, const char *why)
{
    int fd[PLAIT_TCP_WAYS + 1], n = 0;

    if (c->base.failed)
        return -1;
    c->differ = differ;
    c->head.why = (uint16_t)strnlen(why, WHY - 1);
    c->head.differ = differ;
    fd[n++] = c->lines.up;
    for (int i = 0; i < PLAIT_TCP_WAYS; i++)
        fd[n++] = c->lines.down[i];
    for (int i = 0; i < n; i++)
        if (fd[i] >= 0)
            write_message(c, fd[i], why, c->head.why);
    return plait_comm_fail(&c->base, "%s", why);
}

static int peer_lost(struct tcp_comm *c, int rank)
{
    return plait_comm_fail(&c->base, "%s: rank %d is gone: %s", c->base.name,
                           rank, strerror(errno));
}

/* The sender has given up, or is elsewhere. */
static int hear(struct tcp_comm *c, int fd, int from, struct tcp_head *there)
{
    const struct plait_caller here = {c->base.world_rank, c->head.host,
                                      &c->base.call};
    char why[WHY] = "";

    there->host[sizeof(there->host) - 1] = '\0';
    if (there->why >= sizeof(why) ||
        (there->why > 0 && plait_read_all(fd, why, there->why) < 0))
        return peer_lost(c, from);
    if (there->why == 0)
        plait_call_tell(
            c->base.name,
            (struct plait_caller){there->rank, there->host, &there->call}, here,
            why, sizeof(why));
    plait_text_clean(why);
    return refuse(c, there->why == 0 || there->differ, why);
}

/* Whether a rank that waits for this one is in another collective. A head with
 * another number is of an earlier collective, which is over. */
static bool waits_elsewhere(const struct tcp_comm *c,
                            const struct tcp_head *there)
{
    return there->call.number == c->base.call.number &&
           !plait_call_same(&there->call, &c->base.call);
}

/* The next head that is not that of a rank which only waits. */
static int read_head(struct tcp_comm *c, int fd, struct tcp_head *there)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool told = false;

    do {
        if (!told && poll(&p, 1, PATIENCE_MS) == 0) {
            c->head.waits = told = true;
            write_message(c, fd, NULL, 0);
            c->head.waits = false;
        }
        if (plait_read_all(fd, there, sizeof(*there)) < 0)
            return -1;
    } while (there->waits && !waits_elsewhere(c, there));
    return 0;
}

static int read_message(struct tcp_comm *c, int fd, int from, void *buf,
                        size_t bytes)
{
    struct tcp_head there;

    if (read_head(c, fd, &there) < 0)
        return peer_lost(c, from);
    if (there.why > 0 || !plait_call_same(&there.call, &c->base.call))
        return hear(c, fd, from, &there);
    return plait_read_all(fd, buf, bytes) < 0 ? peer_lost(c, from) : 0;
}

static int send_up(struct tcp_comm *c, const void *buf, size_t bytes)
{
    if (c->lines.up >= 0 && write_message(c, c->lines.up, buf, bytes) < 0)
        return peer_lost(c, c->lines.tree.parent);
    return 0;
}

static int read_up(struct tcp_comm *c, void *buf, size_t bytes)
{
    return read_message(c, c->lines.up, c->lines.tree.parent, buf, bytes);
}

static int read_child(struct tcp_comm *c, int i, void *buf, size_t bytes)
{
    return read_message(c, c->lines.down[i], c->lines.tree.first[i], buf,
                        bytes);
}

static int send_child(struct tcp_comm *c, int i, const void *buf, size_t bytes)
{
    if (write_message(c, c->lines.down[i], buf, bytes) < 0)
        return peer_lost(c, c->lines.tree.first[i]);
    return 0;
}

/* How many ranks this one stands for, itself included. */
static size_t run_of(const struct tcp_comm *c)
{
    return (size_t)(c->lines.tree.first[c->lines.tree.ways] - c->base.rank);
}

/* all[i] = what rank `rank + i` sends, for the ranks that this one stands for;
 * on rank 0 for all. */
static int gather_up(struct tcp_comm *c, const void *send, char *all,
                     size_t bytes)
{
    const int *first = c->lines.tree.first, rank = c->base.rank;

    memmove(all, send, bytes);
    for (int i = 0; i < c->lines.tree.ways; i++)
        if (read_child(c, i, all + (size_t)(first[i] - rank) * bytes,
                       (size_t)(first[i + 1] - first[i]) * bytes) < 0)
            return -1;
    return send_up(c, all, run_of(c) * bytes);
}

/* The reverse: rank 0's all[r] goes to rank r. */
static int scatter_down(struct tcp_comm *c, char *all, size_t bytes)
{
    const int *first = c->lines.tree.first, rank = c->base.rank;

    if (c->lines.up >= 0 && read_up(c, all, run_of(c) * bytes) < 0)
        return -1;
    for (int i = 0; i < c->lines.tree.ways; i++)
        if (send_child(c, i, all + (size_t)(first[i] - rank) * bytes,
                       (size_t)(first[i + 1] - first[i]) * bytes) < 0)
            return -1;
    return 0;
}

/* Send a buffer down to all ranks except `from` and its ancestors, which have
 * it already. */
static int send_down(struct tcp_comm *c, void *buf, size_t bytes, int from)
{
    int over = plait_tcp_tree_child(&c->lines.tree, from);

    if (c->lines.up >= 0 && over < 0 && c->base.rank != from &&
        read_up(c, buf, bytes) < 0)
        return -1;
    for (int i = 0; i < c->lines.tree.ways; i++)
        if (i != over && send_child(c, i, buf, bytes) < 0)
            return -1;
    return 0;
}

static int tcp_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                              int root)
{
    struct tcp_comm *c = tcp_of(comm);
    int over = plait_tcp_tree_child(&c->lines.tree, root);

    if (over >= 0 && read_child(c, over, buf, bytes) < 0)
        return -1;
    if ((over >= 0 || comm->rank == root) && send_up(c, buf, bytes) < 0)
        return -1;
    return send_down(c, buf, bytes, root);
}

static int tcp_host_all_gather(struct plait_comm *comm, const void *send,
                               void *recv, size_t bytes)
{
    struct tcp_comm *c = tcp_of(comm);

    if (gather_up(c, send, (char *)recv + (size_t)comm->rank * bytes, bytes) <
        0)
        return -1;
    return send_down(c, recv, bytes * (size_t)comm->size, 0);
}

/* Summed on the way up, in an order that depends only on the number of
 * ranks. */
static int tcp_host_all_reduce(struct plait_comm *comm, double *values,
                               size_t n, enum plait_reduce op)
{
    struct tcp_comm *c = tcp_of(comm);
    double *other = malloc(n * sizeof(*other) + 1);
    int rc = 0;

    if (other == NULL)
        return refuse(c, false, "out of memory");
    for (int k = 0; rc == 0 && k < c->lines.tree.ways; k++) {
        rc = read_child(c, k, other, n * sizeof(*other));
        for (size_t i = 0; rc == 0 && i < n; i++) {
            double x = other[i], *y = &values[i];

            *y = op == PLAIT_SUM ? *y + x : x > *y || x != x ? x : *y;
        }
    }
    if (rc == 0)
        rc = send_up(c, values, n * sizeof(*values));
    if (rc == 0)
        rc = send_down(c, values, n * sizeof(*values), 0);
    free(other);
    return rc;
}

static int tcp_barrier(struct plait_comm *comm)
{
    double here = 0;

    return tcp_host_all_reduce(comm, &here, 1, PLAIT_MAX);
}

/* -- split --------------------------------------------------------------- */

static struct plait_comm *connect_group(struct tcp_comm *parent,
                                        const struct plait_split *into,
                                        const struct plait_tcp_place *place,
                                        int listener, struct plait_error *err)
{
    const struct plait_identity self = {into->name, place->rank, place->size};
    uint64_t key =
        plait_hash_text(parent->meeting.key + into->color + 1, into->name);
    struct tcp_comm *c = group_create(&self, key, parent->meeting.secret,
                                      parent->meeting.timeout_s);

    if (c == NULL) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (plait_tcp_meet_group(&c->lines, &c->meeting, &place->parent, listener,
                             err) == 0)
        return &c->base;
    tcp_destroy(&c->base);
    return NULL;
}

/* What rank 0 says is checked before it is used. */
static int check_place(const struct tcp_comm *c,
                       const struct plait_tcp_place *place,
                       struct plait_error *err)
{
    const struct plait_tcp_contact *p = &place->parent;

    if (place->rank >= 0 && place->rank < place->size &&
        place->size <= c->base.size && plait_tcp_contact_is_sound(p))
        return 0;
    errno = EPROTO;
    return plait_errorf(err, "%s: rank 0 gave this rank no place in the group",
                        c->base.name);
}

/* Rank 0 collects the contacts of all ranks and tells each its place. */
static int exchange_places(struct tcp_comm *c,
                           const struct plait_tcp_contact *me,
                           struct plait_tcp_place *place,
                           struct plait_error *err)
{
    size_t n = run_of(c);
    struct plait_tcp_contact *all = calloc(n, sizeof(*all));
    struct plait_tcp_place *places = calloc(n, sizeof(*places));
    int rc = -1;

    if (!all || !places)
        rc = refuse(c, false, "out of memory");
    else if (gather_up(c, me, (char *)all, sizeof(*all)) < 0)
        plait_errorf(err, "%s", c->base.error);
    else if (c->base.rank == 0 && plait_tcp_places(all, (int)n, places) < 0)
        plait_errorf(err, "out of memory");
    else if (scatter_down(c, (char *)places, sizeof(*places)) < 0)
        plait_errorf(err, "%s", c->base.error);
    else
        rc = me->color < 0 ? 0 : check_place(c, &places[0], err);
    if (rc == 0)
        *place = places[0];
    free(all);
    free(places);
    return rc;
}

static int tcp_split(struct plait_comm *parent, const struct plait_split *into,
                     const struct plait_group_site *site,
                     struct plait_comm **comm, struct plait_error *err)
{
    struct plait_tcp_contact me = {.color = into->color, .key = into->key};
    struct plait_tcp_place place;
    int listener = -1, port = 0, rc = -1;

    (void)site;
    *comm = NULL;
    parent->call = plait_call_make(
        &(struct plait_operation){
            .op = PLAIT_OP_CONTROL_ALL_GATHER, .type = -1, .bytes = sizeof(me)},
        ++parent->ncalls, PLAIT_HERE);
    if (into->color >= 0)
        listener = plait_rendezvous_listen(&port);
    me.port = port;
    gethostname(me.host, sizeof(me.host) - 1);
    if (into->color >= 0 && listener < 0) {
        plait_errorf(err, "%s: %s", into->name, strerror(errno));
        refuse(tcp_of(parent), false, err->text);
    } else if (exchange_places(tcp_of(parent), &me, &place, err) == 0) {
        if (into->color >= 0)
            *comm = connect_group(tcp_of(parent), into, &place, listener, err);
        rc = into->color < 0 || *comm ? 0 : -1;
    }
    if (listener >= 0)
        close(listener);
    return rc;
}

/* -- transfers ----------------------------------------------------------- */

static int tcp_run(struct plait_comm *comm, const struct plait_transfer *t,
                   struct plait_queue *q, struct plait_request **req)
{
    (void)t;
    (void)q;
    (void)req;
    return plait_comm_fail(comm,
                           "%s: the rendezvous carries control values "
                           "only",
                           comm->name);
}

static void tcp_refuse(struct plait_comm *comm, const char *why)
{
    struct tcp_comm *c = tcp_of(comm);
    char text[WHY];

    snprintf(text, sizeof(text), "rank %d: %s", comm->world_rank, why);
    refuse(c, false, text);
}

static const char *tcp_difference(const struct plait_comm *comm)
{
    return ((const struct tcp_comm *)comm)->differ ? comm->error : NULL;
}

static const struct plait_comm_vtable tcp_vtable = {
    .name = "tcp",
    .difference = tcp_difference,
    .refuse = tcp_refuse,
    .destroy = tcp_destroy,
    .abort = tcp_abort,
    .leaves = true,
    .split = tcp_split,
    .run = tcp_run,
    .barrier = tcp_barrier,
    .host_broadcast = tcp_host_broadcast,
    .host_all_gather = tcp_host_all_gather,
    .host_all_reduce = tcp_host_all_reduce,
};
