/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/comm/consensus.h"
#include "runtime/data/dataset.h"
#include "runtime/data/segments.h"

/* One rank of each node, its leader, opens a dataset and passes the open files
 * to the others over a socket, one message for each segment. All read through
 * the same page cache, so that the node reads each page once. */

/* -- the ranks of a node -------------------------------------------------- */

struct member {
    uint64_t node, nonce; /* `nonce` names the leader's socket */
};

struct node {
    struct member *all; /* [ranks] */
    int leader, others;
    int listener; /* the leader's socket */
    int *link;    /* sockets to the other ranks, or to the leader */
};

/* An abstract socket name: no file is left behind. */
static socklen_t socket_name(struct sockaddr_un *name, const struct node *node)
{
    int n;

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    n = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
                 "plait-data-%016" PRIx64, node->all[node->leader].nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Collective, and fails on all ranks or on none. */
static int find_node(struct node *node, struct plait_comm *world, uint64_t id,
                     struct plait_error *err)
{
    int size = plait_comm_size(world), rc = 0, i;
    struct member me = {.node = id};

    node->link = malloc((size_t)size * sizeof(*node->link));
    for (i = 0; node->link && i < size; i++)
        node->link[i] = -1;
    if (!node->link || getrandom(&me.nonce, sizeof(me.nonce), 0) < 0)
        rc = plait_errorf(err, "dataset: %s", strerror(errno));
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    node->all = plait_gather_values(world, &me, sizeof(me), err);
    if (!node->all)
        return -1;
    for (i = 0; node->all[i].node != id; i++)
        ;
    node->leader = i;
    for (i++; i < size; i++)
        node->others += node->all[i].node == id;
    return 0;
}

static int start_listening(struct node *node, struct plait_error *err)
{
    struct sockaddr_un name;
    socklen_t n = socket_name(&name, node);

    node->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (node->listener < 0 ||
        bind(node->listener, (struct sockaddr *)&name, n) < 0 ||
        listen(node->listener, node->others) < 0)
        return plait_errorf(err, "dataset: a socket for the other ranks: %s",
                            strerror(errno));
    return 0;
}

static bool is_own(int fd)
{
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t n = sizeof(who);

    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n);
    return who.uid == geteuid();
}

/* A connection to the leader; -1 where its sockets cannot be reached, as from
 * another container's network or where another user, who can read the socket's
 * name in /proc/net/unix, has filled its queue. It is not waited for there. */
static int reach_leader(const struct node *node)
{
    struct sockaddr_un name;
    socklen_t n = socket_name(&name, node);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, n) == 0 &&
        is_own(fd) && fcntl(fd, F_SETFL, 0) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Accept the n connections that are waiting, only from processes of this
 * user. */
static int accept_all(struct node *node, int n, struct plait_error *err)
{
    for (int i = 0; i < n;) {
        int fd = accept4(node->listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            return plait_errorf(err, "dataset: accept: %s", strerror(errno));
        if (is_own(fd))
            node->link[i++] = fd;
        else
            close(fd);
    }
    return 0;
}

/* A rank that fails closes its sockets, for others may wait for it there. */
static void close_links(struct node *node, int size)
{
    int saved = errno;

    for (int i = 0; node->link && i < size; i++) {
        if (node->link[i] >= 0)
            close(node->link[i]);
        node->link[i] = -1;
    }
    if (node->listener >= 0)
        close(node->listener);
    node->listener = -1;
    errno = saved;
}

static void close_node(struct node *node, int size)
{
    close_links(node, size);
    free(node->link);
    free(node->all);
}

/* -- collective ----------------------------------------------------------- */

/* How many of this node's other ranks have reached their leader. */
static int count_reached(const struct node *node, struct plait_comm *world,
                         bool mine, struct plait_error *err)
{
    int size = plait_comm_size(world), n = 0;
    char me = mine, *all = plait_gather_values(world, &me, 1, err);

    if (!all)
        return -1;
    for (int i = 0; i < size; i++)
        n += node->all[i].node == node->all[node->leader].node && all[i];
    free(all);
    return n;
}

/* A leader opens the files, and listens for the other ranks. */
static int open_as_leader(struct node *node, struct plait_comm *world,
                          const char *path, enum plait_data_format format,
                          struct plait_dataset **ds, struct plait_error *err)
{
    if (plait_comm_rank(world) != node->leader)
        return 0;
    *ds = plait_dataset_create(path, format, err);
    return *ds ? start_listening(node, err) : -1;
}

static int pass_on(struct node *node, struct plait_comm *world,
                   const char *path, enum plait_data_format format,
                   struct plait_dataset **ds, struct plait_error *err)
{
    bool leads = plait_comm_rank(world) == node->leader, good;
    int n;

    if (!leads)
        node->link[0] = reach_leader(node);
    n = count_reached(node, world, !leads && node->link[0] >= 0, err);
    if (n < 0)
        return -1;
    if (leads) {
        good = accept_all(node, n, err) == 0 &&
               plait_segments_send(*ds, node->link, n, err) == 0;
    } else {
        *ds = node->link[0] >= 0
                  ? plait_segments_receive(node->link[0], path, err)
                  : plait_dataset_create(path, format, err);
        good = *ds != NULL;
    }
    if (good)
        return 0;
    close_links(node, plait_comm_size(world));
    return -1;
}

/* The files may be of each node, or not yet be the same on all: every rank that
 * has opened them itself compares its own with rank 0's. */
static int compare_files(const struct node *node, struct plait_comm *world,
                         const struct plait_dataset *ds,
                         struct plait_error *err)
{
    int rank = plait_comm_rank(world), rc = 0;
    struct identity {
        int64_t bytes;
        uint64_t hash;
    } mine = {.bytes = -1}, first;
    char host[256] = "";

    if (rank == node->leader || node->link[0] < 0)
        rc = plait_dataset_identity(ds, &mine.bytes, &mine.hash, err);
    first = mine;
    if (plait_comm_host_broadcast(world, &first, sizeof(first), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    if (mine.bytes < 0 || first.bytes < 0 ||
        (mine.bytes == first.bytes && mine.hash == first.hash))
        return rc;
    gethostname(host, sizeof(host) - 1);
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: rank %d (%s) sees other files there than rank 0: "
                        "%lld bytes and hash %016" PRIx64 ", not %lld and "
                        "%016" PRIx64,
                        plait_dataset_path(ds), rank, host,
                        (long long)mine.bytes, mine.hash,
                        (long long)first.bytes, first.hash);
}

struct plait_dataset *plait_dataset_open(const char *path,
                                         enum plait_data_format format,
                                         struct plait_comm *world, uint64_t id,
                                         struct plait_error *err)
{
    struct node node = {.listener = -1};
    struct plait_dataset *ds = NULL;
    int size = plait_comm_size(world), rc;

    if (size == 1)
        return plait_dataset_create(path, format, err);
    rc = find_node(&node, world, id, err);
    if (rc == 0) {
        rc = open_as_leader(&node, world, path, format, &ds, err);
        rc = plait_error_consensus(world, rc, err);
    }
    if (rc == 0) {
        rc = pass_on(&node, world, path, format, &ds, err);
        rc = plait_error_consensus(world, rc, err);
    }
    if (rc == 0) {
        rc = compare_files(&node, world, ds, err);
        rc = plait_error_consensus(world, rc, err);
    }
    close_node(&node, size);
    if (rc == 0)
        return ds;
    plait_dataset_destroy(ds);
    return NULL;
}
