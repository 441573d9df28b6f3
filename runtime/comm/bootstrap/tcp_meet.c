/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/bootstrap/tcp_meet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/ended.h"
#include "topology/base/files.h"
#include "topology/base/hash.h"

void plait_tcp_lines_init(struct plait_tcp_lines *lines, int rank, int size)
{
    plait_tcp_tree_init(&lines->tree, rank, size);
    lines->up = -1;
    for (int i = 0; i < PLAIT_TCP_WAYS; i++)
        lines->down[i] = -1;
}

void plait_tcp_lines_close(struct plait_tcp_lines *lines)
{
    if (lines->up >= 0)
        close(lines->up);
    for (int i = 0; i < PLAIT_TCP_WAYS; i++)
        if (lines->down[i] >= 0)
            close(lines->down[i]);
}

/* -- parents and children -------------------------------------------------- */

/* How a rank and its children meet. The key differs from the world's, so that a
 * rank that looks for rank 0 near its port is not taken for a child. */
static struct plait_rendezvous meeting_at(const struct plait_rendezvous *m,
                                          int root)
{
    struct plait_rendezvous at = *m;

    at.key = plait_hash_text(m->key + (uint64_t)root, "tree");
    at.root = root;
    return at;
}

static int join_parent(struct plait_tcp_lines *l,
                       const struct plait_rendezvous *m,
                       const struct plait_tcp_contact *parent,
                       struct plait_error *err)
{
    const struct plait_rendezvous at = meeting_at(m, l->tree.parent);
    char own[HOST_NAME_MAX + 1] = "";

    gethostname(own, sizeof(own) - 1);
    l->up = plait_rendezvous_join(
        &at, strcmp(parent->host, own) ? parent->host : "localhost",
        parent->port, 1, err);
    return l->up < 0 ? -1 : 0;
}

/* Children come in any order; no other rank is let in. */
static int gather_children(struct plait_tcp_lines *l,
                           const struct plait_rendezvous *m, int listener,
                           struct plait_error *err)
{
    const struct plait_rendezvous at = meeting_at(m, m->rank);
    int rc, *fds;

    if (l->tree.ways == 0)
        return 0;
    fds = calloc((size_t)m->size, sizeof(*fds));
    if (!fds)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < l->tree.ways; i++)
        fds[l->tree.first[i]] = -1;
    rc = plait_rendezvous_gather(&at, listener, fds, err);
    for (int i = 0; i < l->tree.ways; i++)
        l->down[i] = fds[l->tree.first[i]];
    free(fds);
    return rc;
}

int plait_tcp_meet_group(struct plait_tcp_lines *lines,
                         const struct plait_rendezvous *group,
                         const struct plait_tcp_contact *parent, int listener,
                         struct plait_error *err)
{
    if (lines->tree.parent >= 0 && join_parent(lines, group, parent, err) < 0)
        return -1;
    return gather_children(lines, group, listener, err);
}

/* -- rank 0 ---------------------------------------------------------------- */

static bool is_child(const struct plait_tcp_tree *tree, int rank)
{
    int child = plait_tcp_tree_child(tree, rank);

    return child >= 0 && tree->first[child] == rank;
}

static int rank_lost(int rank, struct plait_error *err)
{
    return plait_errorf(err, "world: rank %d is gone: %s", rank,
                        strerror(errno));
}

/* Tell all ranks but rank 0's own children where their parents are. */
static int tell_places(const struct plait_tcp_lines *l, int n, const int *fds,
                       struct plait_error *err)
{
    struct plait_tcp_contact *all = calloc((size_t)n, sizeof(*all));
    struct plait_tcp_place *places = calloc((size_t)n, sizeof(*places));
    int rc = all && places ? 0 : plait_errorf(err, "out of memory");

    for (int i = 1; rc == 0 && i < n; i++)
        if (plait_read_all(fds[i], &all[i], sizeof(all[i])) < 0)
            rc = rank_lost(i, err);
    if (rc == 0 && plait_tcp_places(all, n, places) < 0)
        rc = plait_errorf(err, "out of memory");
    for (int i = 1; rc == 0 && i < n; i++)
        if (!is_child(&l->tree, i) &&
            plait_write_all(fds[i], &places[i], sizeof(places[i])) < 0)
            rc = rank_lost(i, err);
    free(all);
    free(places);
    return rc;
}

/* Only the connections of rank 0's children are kept. */
static void keep_children(struct plait_tcp_lines *l, int n, int *fds)
{
    for (int i = 1; i < n; i++)
        if (is_child(&l->tree, i))
            l->down[plait_tcp_tree_child(&l->tree, i)] = fds[i];
        else if (fds[i] >= 0)
            close(fds[i]);
}

static int gather_world(struct plait_tcp_lines *l,
                        const struct plait_rendezvous *m, int first,
                        struct plait_error *err)
{
    int *fds = malloc((size_t)m->size * sizeof(*fds));
    int port = first, rc = -1, listener;

    if (!fds)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < m->size; i++)
        fds[i] = -1;
    /* For a moment rank 0 has a connection to each of the others. */
    plait_files_allow((size_t)m->size);
    listener = plait_rendezvous_listen_for(m, &port);
    if (listener < 0)
        plait_errorf(err,
                     "world: cannot listen at MASTER_PORT %d or one of "
                     "the %d ports after it: %s",
                     first, PLAIT_RENDEZVOUS_PORTS - 1, strerror(errno));
    else
        rc = plait_rendezvous_gather(m, listener, fds, err);
    if (rc == 0 && m->size - 1 > PLAIT_TCP_WAYS)
        rc = tell_places(l, m->size, fds, err);
    keep_children(l, m->size, fds);
    if (listener >= 0)
        close(listener);
    free(fds);
    return rc;
}

/* -- the others ------------------------------------------------------------ */

/* Over the connection to rank 0: learn the parent and connect to it, unless
 * rank 0 is the parent. */
static int take_place(struct plait_tcp_lines *l,
                      const struct plait_rendezvous *m, int listener, int port,
                      struct plait_error *err)
{
    struct plait_tcp_contact me = {.key = m->rank, .port = port};
    struct plait_tcp_place place;
    int rc;

    gethostname(me.host, sizeof(me.host) - 1);
    rc = plait_write_all(l->up, &me, sizeof(me));
    if (rc == 0 && l->tree.parent == 0)
        return gather_children(l, m, listener, err);
    if (rc == 0)
        rc = plait_read_all(l->up, &place, sizeof(place));
    errno = rc < 0 ? errno : EPROTO;
    if (rc < 0 || !plait_tcp_contact_is_sound(&place.parent))
        return plait_errorf(err,
                            "world: before all ranks had met, rank 0 ended or "
                            "lost another rank: %s",
                            strerror(errno));
    close(l->up);
    l->up = -1;
    return plait_tcp_meet_group(l, m, &place.parent, listener, err);
}

static int join_world(struct plait_tcp_lines *l,
                      const struct plait_rendezvous *m,
                      const struct plait_launch *launch,
                      struct plait_error *err)
{
    int port = 0, listener = -1, rc = 0;

    if (l->tree.ways > 0 && (listener = plait_rendezvous_listen(&port)) < 0)
        return plait_errorf(err, "world: cannot listen at a port: %s",
                            strerror(errno));
    l->up = plait_rendezvous_join(m, launch->master_addr, launch->master_port,
                                  PLAIT_RENDEZVOUS_PORTS, err);
    if (l->up < 0)
        rc = -1;
    else if (m->size - 1 > PLAIT_TCP_WAYS)
        rc = take_place(l, m, listener, port, err);
    if (listener >= 0)
        close(listener);
    return rc;
}

int plait_tcp_meet_world(struct plait_tcp_lines *lines,
                         const struct plait_rendezvous *world,
                         const struct plait_launch *launch,
                         struct plait_error *err)
{
    struct plait_rendezvous m = *world;
    int rc;

    m.in_vain = plait_ended_some;
    rc = m.rank > 0 ? join_world(lines, &m, launch, err)
                    : gather_world(lines, &m, launch->master_port, err);
    if (rc < 0 && plait_ended_some(NULL))
        plait_ended_tell(err);
    return rc;
}
