/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/comm/world.h"
#include "runtime/data/dataset.h"
#include "topology/base/files.h"

/* One rank of each node, its leader, opens a dataset and passes the open files
 * to the others over a socket, one message for each segment. All read through
 * the same page cache, so that the node reads each page once. */

/* One segment as in its message, where the path follows. */
struct record {
    struct plait_segment segment; /* pointers and the file are the sender's */
    int64_t segments, tokens, images; /* of the whole dataset */
};

/* -- one message --------------------------------------------------------- */

union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(sizeof(int))];
};

static int send_segment(int to, const struct record *r, const char *path,
                        int fd)
{
    struct iovec part[] = {{(void *)r, sizeof(*r)},
                           {(void *)path, strlen(path) + 1}};
    union control control = {.room = {0}};
    struct msghdr m = {.msg_iov = part,
                       .msg_iovlen = 2,
                       .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    return sendmsg(to, &m, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* The caller closes the file; -1 with errno. */
static int receive_segment(int from, struct record *r, char path[PATH_MAX])
{
    struct iovec part[] = {{r, sizeof(*r)}, {path, PATH_MAX}};
    union control control = {.room = {0}};
    struct msghdr m = {.msg_iov = part,
                       .msg_iovlen = 2,
                       .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    ssize_t got = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = got < 0 ? NULL : CMSG_FIRSTHDR(&m);
    int fd;

    if (got < 0)
        return -1;
    if (!c && m.msg_flags & MSG_CTRUNC) {
        errno = EMFILE; /* no number is free for the file */
        return -1;
    }
    if ((size_t)got <= sizeof(*r) || !c || c->cmsg_type != SCM_RIGHTS) {
        errno = ECONNRESET; /* the leader has failed, and reports it */
        return -1;
    }
    memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    return fd;
}

/* -- all segments -------------------------------------------------------- */

static int send_segments(const struct plait_dataset *ds, const int *to, int n,
                         struct plait_error *err)
{
    for (int i = 0; i < ds->nsegments; i++) {
        const struct plait_segment *s = &ds->segments[i];
        struct record r = {.segment = *s,
                           .segments = ds->nsegments,
                           .tokens = ds->tokens,
                           .images = ds->images};
        int rc = 0;

        for (int k = 0; k < n && rc == 0; k++)
            rc = send_segment(to[k], &r, s->path, s->fd);
        if (rc < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            err->text[0] = '\0'; /* that rank has failed, and reports it */
            return -1;
        }
        if (rc < 0)
            return plait_errorf(err, "%s: cannot pass it on: %s", s->path,
                                strerror(errno));
    }
    return 0;
}

/* Appends the next segment to ds; returns how many there will be, or -1. */
static int64_t add_received(struct plait_dataset *ds, int from)
{
    struct plait_segment *more, *s;
    struct record r;
    char path[PATH_MAX];
    int fd = receive_segment(from, &r, path);
    char *copy;

    if (fd < 0)
        return -1;
    if (ds->nsegments == 0)
        plait_files_allow((size_t)r.segments);
    more = realloc(ds->segments, (size_t)r.segments * sizeof(*more));
    if (more)
        ds->segments = more;
    copy = more ? strdup(path) : NULL;
    if (!copy) {
        close(fd);
        errno = ENOMEM;
        return -1;
    }
    s = &ds->segments[ds->nsegments];
    *s = r.segment;
    s->path = copy;
    s->map = NULL;
    s->fd = fd;
    plait_segment_advise(s);
    ds->nsegments++;
    ds->tokens = r.tokens;
    ds->images = r.images;
    return r.segments;
}

static struct plait_dataset *receive_segments(int from, const char *path,
                                              struct plait_error *err)
{
    struct plait_dataset *ds = calloc(1, sizeof(*ds));
    int64_t segments = 1;

    if (ds && (ds->path = strdup(path)))
        while (segments >= 0 && ds->nsegments < segments)
            segments = add_received(ds, from);
    if (ds && ds->path && segments >= 0)
        return ds;
    plait_errorf(err, "%s: not passed on by this node's first rank: %s", path,
                 strerror(errno));
    plait_dataset_destroy(ds);
    return NULL;
}

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
    node->all = plait_gather_values(world, rc, &me, sizeof(me), err);
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

/* A connection to the leader; -1 where its sockets cannot be reached, as from
 * another container's network. */
static int reach_leader(const struct node *node)
{
    struct sockaddr_un name;
    socklen_t n = socket_name(&name, node);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, n) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Accept the n connections that are waiting, only from processes of this
 * user. */
static int accept_all(struct node *node, int n, struct plait_error *err)
{
    for (int i = 0; i < n;) {
        int fd = accept4(node->listener, NULL, NULL, SOCK_CLOEXEC);
        struct ucred who = {.uid = (uid_t)-1};
        socklen_t len = sizeof(who);

        if (fd < 0)
            return plait_errorf(err, "dataset: accept: %s", strerror(errno));
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len);
        if (who.uid == geteuid())
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
    char me = mine, *all = plait_gather_values(world, 0, &me, 1, err);

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
               send_segments(*ds, node->link, n, err) == 0;
    } else {
        *ds = node->link[0] >= 0 ? receive_segments(node->link[0], path, err)
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
                        "%s: rank %d (%s) finds other files there than rank 0: "
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
