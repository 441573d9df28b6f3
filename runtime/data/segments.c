/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/data/segments.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topology/base/files.h"

/* More files than a dataset has. */
#define SEGMENTS_MOST (1 << 24)

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

/* The one file that came with a message; -1: none, or several, which are
 * closed. */
static int take_file(const struct cmsghdr *c)
{
    size_t n = 0;
    int fd[2] = {-1, -1};

    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(*fd);
    if (n > 2)
        return -1; /* there is no room for them */
    if (n > 0)
        memcpy(fd, CMSG_DATA(c), n * sizeof(*fd));
    if (n < 2)
        return fd[0];
    close(fd[0]);
    close(fd[1]);
    return -1;
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
    int fd = take_file(c);

    if (got < 0)
        return -1;
    if (!c && m.msg_flags & MSG_CTRUNC)
        errno = EMFILE; /* no number is free for the file */
    else if ((size_t)got <= sizeof(*r) || fd < 0)
        errno = ECONNRESET; /* the leader has failed, and reports it */
    else if (path[(size_t)got - sizeof(*r) - 1])
        errno = EPROTO;
    else
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* -- all segments -------------------------------------------------------- */

int plait_segments_send(const struct plait_dataset *ds, const int *to, int n,
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
            return plait_errorf(err,
                                "%s: cannot send it to the other ranks "
                                "of this node: %s",
                                s->path, strerror(errno));
    }
    return 0;
}

/* Appends the next segment to ds; returns how many there will be, or -1.
 * segments: what the first message said, 0: this is the first. */
static int64_t add_received(struct plait_dataset *ds, int from,
                            int64_t segments)
{
    struct plait_segment *more, *s;
    struct record r;
    char path[PATH_MAX];
    int fd = receive_segment(from, &r, path);
    char *copy;

    if (fd < 0)
        return -1;
    if (r.segments < 1 || r.segments > SEGMENTS_MOST ||
        (segments > 0 && r.segments != segments)) {
        close(fd);
        errno = EPROTO;
        return -1;
    }
    if (segments == 0)
        plait_files_allow((size_t)r.segments);
    /* The number alone claims no memory. */
    more = realloc(ds->segments, ((size_t)ds->nsegments + 1) * sizeof(*more));
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
    s->tokenizer[sizeof(s->tokenizer) - 1] = '\0';
    s->map = NULL;
    s->fd = fd;
    plait_segment_advise(s);
    ds->nsegments++;
    ds->tokens = r.tokens;
    ds->images = r.images;
    return r.segments;
}

struct plait_dataset *plait_segments_receive(int from, const char *path,
                                             struct plait_error *err)
{
    struct plait_dataset *ds = calloc(1, sizeof(*ds));
    int64_t segments = 0;

    if (ds && (ds->path = strdup(path)))
        do
            segments = add_received(ds, from, segments);
        while (segments >= 0 && ds->nsegments < segments);
    if (ds && ds->path && segments >= 0)
        return ds;
    plait_errorf(err, "%s: this node's first rank could not send it: %s", path,
                 strerror(errno));
    plait_dataset_destroy(ds);
    return NULL;
}
