/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/members.h"
#include "runtime/comm/shm/engine.h"
#include "runtime/comm/shm/shm.h"
#include "runtime/comm/tcp/links.h"
#include "runtime/comm/tcp/socket_move.h"
#include "topology/base/hash.h"

/* Ranks on CPUs that meet by the launch contract, without MPI. They use TCP,
 * and shared memory inside a node. The loss of a peer makes every transfer of
 * every group fail, on all ranks. */

/* How long a waiting rank sleeps if nobody wakes it, ms. */
#define NAP_MS 1
/* A rank that waits for shared memory also has to look at its links now and
 * then. A look takes ten times as long as one at shared memory, so it happens
 * once in this many rounds; where ranks share cores in every second round,
 * which is after a rank has dozed and before it sleeps. */
#define LOOK_EVERY 16
#define LOOK_EVERY_SHARED 2

/* What the groups of a world share. */
struct socket_world {
    struct plait_members *members; /* owned; NULL: taken by the caller */
    struct plait_links *links;
    struct plait_engine *engine;
    int nap_ms;          /* the longest sleep while waiting for peers */
    unsigned look_every; /* LOOK_EVERY, LOOK_EVERY_SHARED */
    struct plait_shm_world shm;
    struct socket_request *open; /* requests that are not waited for yet */
};

struct socket_comm {
    struct plait_comm base;
    struct socket_world *world;
    bool owner;            /* destroys the world */
    bool here;             /* all ranks are on this machine */
    struct plait_shm *shm; /* NULL: ranks are on several nodes */
    struct plait_socket_group group;
    int *peer; /* [size] of group; owned */
    uint64_t splits;
};

struct socket_request {
    struct plait_request base;
    struct plait_engine_job job;
    struct socket_world *world;
    struct plait_links *links;
    bool by_shm, lost;
    bool here;      /* all ranks it waits for are on this machine */
    unsigned stuck; /* rounds in which shm did not move */
    struct plait_shm_transfer shm;
    struct plait_socket_move move;
    struct plait_entry entry;
    bool entered; /* in a collective, since it was advanced first */
    struct socket_request *next, **at; /* among the world's open ones */
};

static const struct plait_comm_vtable socket_vtable;

static struct socket_comm *socket_of(struct plait_comm *comm)
{
    return (struct socket_comm *)comm;
}

/* A rank that cannot take part in what it was called for gives up, so that the
 * others do not wait for it. */
static int lost(struct plait_comm *comm)
{
    struct plait_links *links = socket_of(comm)->world->links;

    if (!plait_links_failure(links))
        plait_links_refuse(links, "out of memory");
    return plait_comm_fail(comm, "%s: %s", comm->name,
                           plait_links_failure(links));
}

/* -- life ---------------------------------------------------------------- */

static void wait_for_peers(void *arg)
{
    const struct socket_world *world = arg;

    plait_links_wait(world->links, world->nap_ms);
}

/* Requests that were under way when a peer was lost are done by now, but may
 * not have been waited for: free them. */
static void world_destroy(struct socket_world *world)
{
    struct socket_request *r;

    plait_engine_destroy(world->engine);
    while ((r = world->open)) {
        world->open = r->next;
        plait_socket_end(&r->move);
        free(r);
    }
    plait_links_destroy(world->links);
    plait_bells_destroy(world->shm.bells);
    plait_members_destroy(world->members);
    free(world);
}

static struct socket_world *world_create(struct plait_links *links)
{
    struct socket_world *world = calloc(1, sizeof(*world));

    if (!world)
        return NULL;
    world->links = links;
    world->nap_ms = NAP_MS;
    world->look_every = LOOK_EVERY;
    world->engine = plait_engine_create(true, wait_for_peers, world);
    if (!world->engine) {
        free(world);
        return NULL;
    }
    return world;
}

static void socket_destroy(struct plait_comm *comm)
{
    struct socket_comm *c = socket_of(comm);

    plait_shm_destroy(c->shm);
    if (c->owner)
        world_destroy(c->world);
    free(c->peer);
    free(c);
}

/* Afterwards nothing uses the buffers of transfers that were under way. */
static void socket_abort(struct plait_comm *comm)
{
    struct socket_world *world = socket_of(comm)->world;

    plait_links_fail(world->links, "given up");
    plait_engine_settle(world->engine);
}

static const char *socket_difference(const struct plait_comm *comm)
{
    const struct socket_comm *c = (const struct socket_comm *)comm;

    return plait_links_difference(c->world->links);
}

static void socket_refuse(struct plait_comm *comm, const char *why)
{
    plait_links_refuse(socket_of(comm)->world->links, why);
}

static bool socket_lost(const struct plait_comm *comm)
{
    const struct socket_comm *c = (const struct socket_comm *)comm;

    return plait_links_failure(c->world->links) != NULL;
}

/* Takes over `peer`, also on failure. */
static struct socket_comm *make_comm(struct socket_world *world, uint64_t id,
                                     const struct plait_identity *self,
                                     int *peer, const struct plait_ops *ops,
                                     struct plait_device *dev)
{
    struct socket_comm *c = calloc(1, sizeof(*c));

    if (!c) {
        free(peer);
        return NULL;
    }
    plait_comm_init(&c->base, &socket_vtable, ops, dev, self);
    c->world = world;
    c->peer = peer;
    c->group = (struct plait_socket_group){.links = world->links,
                                           .name = c->base.name,
                                           .id = id,
                                           .rank = self->rank,
                                           .size = self->size,
                                           .peer = peer};
    return c;
}

/* Collective. */
static int share_memory(struct socket_comm *c)
{
    struct plait_shm_world *shm = &c->world->shm;
    int ranks;

    if (c->owner && plait_shm_world_init(&c->base, shm) < 0)
        return -1;
    if (c->owner && plait_bells_crowded(shm->bells, &ranks) > 0) {
        plait_engine_share(c->world->engine);
        c->world->look_every = LOOK_EVERY_SHARED;
    }
    if (c->owner)
        plait_links_set_bells(c->world->links, shm->bells);
    c->here = true;
    for (int r = 0; r < c->base.size; r++)
        c->here &= plait_bells_near(shm->bells, c->peer[r]);
    return plait_shm_create(&c->base, shm, &c->shm);
}

static struct socket_comm *world_comm(struct socket_world *world,
                                      const struct plait_members *m,
                                      const struct plait_ops *ops,
                                      struct plait_device *dev)
{
    const struct plait_identity self = {"world", m->rank, m->n};
    int *peer = malloc((size_t)m->n * sizeof(*peer));

    for (int r = 0; peer && r < m->n; r++)
        peer[r] = r;
    if (!peer)
        return NULL;
    return make_comm(world, PLAIT_HASH_START, &self, peer, ops, dev);
}

static struct plait_comm *
members_world(struct plait_members *m, struct plait_comm *star,
              const struct plait_ops *ops, struct plait_device *dev,
              double timeout_s, struct plait_error *err)
{
    struct plait_links *links = plait_links_create(m, star, timeout_s, err);
    struct socket_world *world = links ? world_create(links) : NULL;
    struct socket_comm *c = world ? world_comm(world, m, ops, dev) : NULL;
    int rc = c || !links ? 0 : plait_errorf(err, "out of memory");

    if (links && star)
        rc = plait_comm_agree_over(star, rc, err);
    if (c) {
        c->owner = true;
        if (rc == 0 && share_memory(c) == 0)
            return &c->base;
        if (rc == 0)
            plait_errorf(err, "%s", plait_comm_error(&c->base));
        plait_comm_destroy(&c->base);
        return NULL;
    }
    if (world)
        world_destroy(world);
    else
        plait_links_destroy(links);
    return NULL;
}

struct plait_comm *plait_members_world(struct plait_members *m,
                                       const struct plait_ops *ops,
                                       struct plait_device *dev,
                                       double timeout_s,
                                       struct plait_error *err)
{
    return members_world(m, NULL, ops, dev, timeout_s, err);
}

struct plait_comm *plait_socket_over(struct plait_comm *star,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     double timeout_s, struct plait_error *err)
{
    struct plait_members *m = plait_members_create(star, launch, err);
    struct plait_comm *comm =
        m ? members_world(m, star, ops, dev, timeout_s, err) : NULL;

    if (comm)
        socket_of(comm)->world->members = m;
    else
        plait_members_destroy(m);
    return comm;
}

static struct plait_members *socket_take_members(struct plait_comm *comm)
{
    struct socket_world *world = socket_of(comm)->world;
    struct plait_members *m = world->members;

    world->members = NULL;
    return m;
}

static int socket_shared_cores(const struct plait_comm *comm, int *ranks)
{
    const struct socket_comm *c = (const struct socket_comm *)comm;

    return plait_bells_crowded(c->world->shm.bells, ranks);
}

static void socket_rest(struct plait_comm *comm)
{
    socket_of(comm)->world->nap_ms = 100;
}

static void socket_break(struct plait_comm *comm)
{
    plait_links_fail(socket_of(comm)->world->links,
                     "given up: a rank does not answer");
}

static void read_links(void *arg)
{
    plait_links_move(arg);
}

static bool socket_look(struct plait_comm *comm)
{
    struct socket_world *world = socket_of(comm)->world;

    plait_engine_call(world->engine, read_links, world->links);
    return plait_links_failure(world->links) != NULL;
}

/* -- split --------------------------------------------------------------- */

struct candidate {
    int32_t key;
    int rank; /* in the parent */
};

static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The ranks of this rank's color, ordered by key; *peer is malloc'ed. Sets this
 * rank's number among them, and how many they are. */
static int *choose_peers(const struct socket_comm *parent,
                         const struct plait_group_request *all,
                         struct plait_identity *self)
{
    int n = parent->base.size, me = parent->base.rank, *peer;
    struct candidate *list = calloc((size_t)n, sizeof(*list));

    self->rank = self->size = 0;
    for (int i = 0; list && i < n; i++)
        if (all[i].color == all[me].color)
            list[self->size++] = (struct candidate){all[i].key, i};
    if (list)
        qsort(list, (size_t)self->size, sizeof(*list), compare_candidates);
    peer = list ? calloc((size_t)self->size, sizeof(*peer)) : NULL;
    for (int i = 0; peer && i < self->size; i++) {
        peer[i] = parent->peer[list[i].rank];
        if (list[i].rank == me)
            self->rank = i;
    }
    free(list);
    return peer;
}

static int socket_split(struct plait_comm *parent,
                        const struct plait_split *into,
                        const struct plait_group_site *site,
                        struct plait_comm **comm, struct plait_error *err)
{
    struct socket_comm *p = socket_of(parent), *c = NULL;
    struct plait_identity self = {.name = into->name};
    int *peer, rc = 0;
    uint64_t id;

    *comm = NULL;
    p->splits++;
    id = (p->group.id + p->splits) * UINT64_C(0x9e3779b97f4a7c15);
    id = (id ^ (id >> 32) ^ (uint32_t)into->color) *
         UINT64_C(0xd6e8feb86659fd93);
    if (into->color >= 0) {
        peer = choose_peers(p, site->asked, &self);
        c = peer
                ? make_comm(p->world, id, &self, peer, parent->ops, parent->dev)
                : NULL;
        if (!c || share_memory(c) < 0)
            rc = plait_errorf(err, "%s",
                              c ? plait_comm_error(&c->base) : "out of memory");
    }
    /* The other ranks may wait for this one in the new group. */
    if (rc < 0 && !plait_links_failure(p->world->links))
        plait_links_refuse(p->world->links, err->text);
    if (rc < 0)
        plait_comm_destroy(c ? &c->base : NULL);
    else if (c)
        *comm = &c->base;
    return rc;
}

/* -- transfers ----------------------------------------------------------- */

static struct socket_request *request_of(struct plait_engine_job *job)
{
    return (struct socket_request *)((char *)job -
                                     offsetof(struct socket_request, job));
}

/* Shows the peers, the first time that it is called, which collective this
 * is. */
static void enter_once(struct socket_request *r)
{
    if (r->entered || !r->entry.name)
        return;
    r->entered = true;
    plait_links_enter(r->links, &r->entry);
}

static enum plait_moved leave_when_done(struct socket_request *r,
                                        enum plait_moved now)
{
    if (now == PLAIT_DONE)
        plait_links_leave(&r->entry);
    return now;
}

static enum plait_moved advance_links(struct plait_engine_job *job)
{
    struct socket_request *r = request_of(job);
    enum plait_moved now;

    enter_once(r);
    now = plait_socket_advance(&r->move);
    r->lost = r->move.failed;
    return leave_when_done(r, now);
}

/* Shared memory does not show that a peer is lost, but its link does. */
static enum plait_moved advance_shm(struct plait_engine_job *job)
{
    struct socket_request *r = request_of(job);
    enum plait_moved now;

    enter_once(r);
    r->lost = plait_links_failure(r->links) != NULL;
    if (r->lost)
        return leave_when_done(r, PLAIT_DONE);
    now = plait_shm_advance(&r->shm);
    if (now == PLAIT_DONE && plait_shm_difference(&r->shm)) {
        plait_links_differ(r->links, plait_shm_difference(&r->shm));
        r->lost = true;
    }
    if (now == PLAIT_STUCK && ++r->stuck % r->world->look_every == 0 &&
        plait_links_move(r->links))
        now = PLAIT_MOVED;
    return leave_when_done(r, now);
}

/* Only ranks of this machine can ring this rank's bell. */
static bool doze_here(struct plait_engine_job *job)
{
    struct socket_request *r = request_of(job);

    if (!r->here || r->world->nap_ms > NAP_MS || !plait_links_ring(r->links))
        return false;
    plait_bells_doze(r->world->shm.bells);
    return true;
}

static void rest_here(struct plait_engine_job *job)
{
    struct socket_world *world = request_of(job)->world;

    plait_bells_rest(world->shm.bells, NAP_MS);
}

static int begin_transfer(struct socket_comm *c, const struct plait_transfer *t,
                          size_t each, struct socket_request *r)
{
    r->world = c->world;
    r->links = c->world->links;
    r->here = c->here;
    r->job.doze = doze_here;
    r->job.rest = rest_here;
    /* Messages concern two ranks only. */
    if (t->kind != PLAIT_SEND && t->kind != PLAIT_RECV)
        plait_socket_entry(&r->entry, &c->group, &c->base.call);
    r->by_shm = plait_shm_takes(c->shm, t);
    if (r->by_shm) {
        plait_shm_begin(c->shm, &r->shm, t, &c->base.call);
        r->job.advance = advance_shm;
        return 0;
    }
    r->job.advance = advance_links;
    return plait_socket_begin(&r->move, &c->group, t, each,
                              r->entry.name ? &r->entry : NULL);
}

/* A blocking call: starts the transfer and waits. */
static int run_now(struct socket_comm *c, const struct plait_transfer *t,
                   size_t each, bool on_links)
{
    struct socket_request r = {.base = {.comm = &c->base}};
    struct plait_shm *shm = c->shm;
    int rc;

    if (on_links) /* host values have no element type */
        c->shm = NULL;
    rc = plait_links_failure(c->world->links) ? -1
                                              : begin_transfer(c, t, each, &r);
    c->shm = shm;
    if (rc < 0)
        return lost(&c->base);
    plait_engine_run(c->world->engine, &r.job);
    plait_socket_end(&r.move);
    return r.lost ? lost(&c->base) : 0;
}

static void open_request(struct socket_world *world, struct socket_request *r)
{
    r->next = world->open;
    r->at = &world->open;
    if (r->next)
        r->next->at = &r->next;
    world->open = r;
}

static void close_request(struct socket_request *r)
{
    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
}

static int socket_run(struct plait_comm *comm, const struct plait_transfer *t,
                      struct plait_queue *q, struct plait_request **req)
{
    struct socket_comm *c = socket_of(comm);
    size_t each = plait_dtype_size(t->type);
    struct socket_request *r;

    (void)q;
    if (!req)
        return run_now(c, t, each, false);
    r = calloc(1, sizeof(*r));
    if (!r || plait_links_failure(c->world->links) ||
        begin_transfer(c, t, each, r) < 0) {
        free(r);
        return lost(comm);
    }
    r->base.comm = comm;
    open_request(c->world, r);
    plait_engine_start(c->world->engine, &r->job);
    *req = &r->base;
    return 0;
}

static int socket_wait(struct plait_request *req, struct plait_queue *q)
{
    struct socket_request *r = (struct socket_request *)req;

    (void)q;
    plait_engine_wait(socket_of(req->comm)->world->engine, &r->job);
    req->begun = r->job.begun;
    req->ended = r->job.ended;
    close_request(r);
    plait_socket_end(&r->move);
    return r->lost ? lost(req->comm) : 0;
}

static int socket_progress(struct plait_comm *comm)
{
    plait_engine_poke(socket_of(comm)->world->engine);
    return 0;
}

/* -- host values --------------------------------------------------------- */

static int socket_host_all_gather(struct plait_comm *comm, const void *send,
                                  void *recv, size_t bytes)
{
    const struct plait_transfer t = {
        .kind = PLAIT_ALL_GATHER, .send = send, .recv = recv, .n = bytes};

    return run_now(socket_of(comm), &t, 1, true);
}

static int socket_barrier(struct plait_comm *comm)
{
    char here = 1, *all = malloc((size_t)comm->size);
    int rc;

    if (!all)
        return lost(comm);
    rc = socket_host_all_gather(comm, &here, all, 1);
    free(all);
    return rc;
}

static int socket_host_broadcast(struct plait_comm *comm, void *buf,
                                 size_t bytes, int root)
{
    const struct plait_transfer t = {.kind = PLAIT_BROADCAST,
                                     .send = buf,
                                     .recv = buf,
                                     .n = bytes,
                                     .peer = root};

    return run_now(socket_of(comm), &t, 1, true);
}

static int socket_host_all_reduce(struct plait_comm *comm, double *values,
                                  size_t n, enum plait_reduce op)
{
    double *all = malloc((size_t)comm->size * n * sizeof(*all) + 1);
    int rc;

    if (!all)
        return lost(comm);
    rc = socket_host_all_gather(comm, values, all, n * sizeof(*all));
    for (size_t i = 0; rc == 0 && i < n; i++) {
        double y = all[i];

        for (int r = 1; r < comm->size; r++) {
            double x = all[(size_t)r * n + i];

            y = op == PLAIT_SUM ? y + x : x > y || x != x ? x : y;
        }
        values[i] = y;
    }
    free(all);
    return rc;
}

static const struct plait_comm_vtable socket_vtable = {
    .name = "socket",
    .shows = true,
    .destroy = socket_destroy,
    .abort = socket_abort,
    .leaves = true,
    .lost = socket_lost,
    .difference = socket_difference,
    .refuse = socket_refuse,
    .look = socket_look,
    .take_members = socket_take_members,
    .shared_cores = socket_shared_cores,
    .rest = socket_rest,
    .break_all = socket_break,
    .split = socket_split,
    .run = socket_run,
    .wait = socket_wait,
    .progress = socket_progress,
    .barrier = socket_barrier,
    .host_broadcast = socket_host_broadcast,
    .host_all_gather = socket_host_all_gather,
    .host_all_reduce = socket_host_all_reduce,
};
