/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create, fallocate */
#include "config.h"

#include "runtime/train/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/train/watchdog/signals.h"

/* Both lives run the same file (anew.h), so structures are as they were; what
 * their pointers point to follows, in the order of move_all(). */
struct head {
    char magic[8];
    uint64_t bytes; /* of a head */
    int64_t pid;
    int signal; /* that has come, 0: none */
    struct plait_elastic elastic;
    struct plait_members members;
    uint64_t text; /* bytes of elastic.config_text */
    int copies;
};

#define MAGIC "Panew01"

/* The file is written or read by the same functions. */
struct carrier {
    int fd;
    bool writes;
    bool failed; /* with errno */
};

static void move(struct carrier *c, void *what, size_t bytes)
{
    char *at = what;

    while (bytes > 0 && !c->failed) {
        ssize_t n =
            c->writes ? write(c->fd, at, bytes) : read(c->fd, at, bytes);

        if (n == 0)
            errno = ENODATA;
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            c->failed = true;
        }
    }
}

/* Returns `block`, or what was read in its place, malloc'ed; NULL: failed. */
static void *move_block(struct carrier *c, void *block, size_t bytes)
{
    if (!c->writes)
        block = c->failed ? NULL : malloc(bytes);
    if (block)
        move(c, block, bytes);
    else
        c->failed = true;
    return block;
}

static void move_members(struct carrier *c, struct plait_members *m)
{
    size_t n = (size_t)m->size;

    m->all = move_block(c, m->all, n * sizeof(*m->all));
    m->present = move_block(c, m->present, n * sizeof(*m->present));
    m->order = move_block(c, m->order, n * sizeof(*m->order));
    m->ids = move_block(c, m->ids, n * sizeof(*m->ids));
    m->newest = move_block(c, m->newest, n * sizeof(*m->newest));
    m->out = move_block(c, m->out, n * sizeof(*m->out));
}

static void move_elastic(struct carrier *c, struct plait_elastic *e, size_t n,
                         size_t text)
{
    e->members = move_block(c, e->members, n * sizeof(*e->members));
    e->silent = move_block(c, e->silent, n * sizeof(*e->silent));
    e->config_text = move_block(c, e->config_text, text);
}

/* -- copies ---------------------------------------------------------------- */

static int count_whole(const struct plait_copies *copies)
{
    int n = 0;

    for (const struct plait_copy *copy = copies->first; copy; copy = copy->next)
        n += copy->whole;
    return n;
}

static void write_copies(struct carrier *c, struct plait_copies *copies)
{
    struct plait_copy *copy;

    while ((copy = copies->first) != NULL) {
        if (copy->whole) {
            move(c, &copy->size, sizeof(copy->size));
            move(c, copy->image, copy->size);
        }
        copies->first = copy->next;
        free(copy->image);
        free(copy);
    }
}

/* The file gives back the memory of what was read. */
static void read_copies(struct carrier *c, struct plait_copies *copies, int n)
{
    for (int i = 0; i < n && !c->failed; i++) {
        struct plait_copy *copy;
        size_t size = 0;
        char *image;

        move(c, &size, sizeof(size));
        image = move_block(c, NULL, size);
        copy = plait_copies_add(copies, image, size);
        if (copy)
            copy->whole = !c->failed;
        else
            c->failed = true;
        fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  lseek(c->fd, 0, SEEK_CUR));
    }
}

/* -- the file -------------------------------------------------------------- */

int plait_carry_write(struct plait_elastic *e, const struct plait_members *m,
                      struct plait_error *err)
{
    struct carrier c = {.fd = memfd_create("plait-anew", MFD_CLOEXEC),
                        .writes = true};
    struct head head;

    memset(&head, 0, sizeof(head));
    memcpy(head.magic, MAGIC, sizeof(head.magic));
    head.bytes = sizeof(head);
    head.pid = getpid();
    head.elastic = *e;
    head.members = *m;
    head.text = strlen(e->config_text) + 1;
    head.copies = count_whole(e->copies);
    c.failed = c.fd < 0;
    move(&c, &head, sizeof(head));
    move_members(&c, &head.members);
    move_elastic(&c, &head.elastic, (size_t)m->size, head.text);
    write_copies(&c, e->copies);
    if (!c.failed && lseek(c.fd, 0, SEEK_SET) == 0)
        return c.fd;
    plait_errorf(err, "memory for what it must keep: %s", strerror(errno));
    if (c.fd >= 0)
        close(c.fd);
    return -1;
}

int plait_carry_finish(int fd, const struct plait_elastic *e,
                       struct plait_error *err)
{
    struct head head;

    if (pread(fd, &head, sizeof(head), 0) == sizeof(head)) {
        head.signal = plait_signals_caught();
        memcpy(head.elastic.held, e->held, sizeof(e->held));
        head.elastic.nheld = e->nheld;
        if (pwrite(fd, &head, sizeof(head), 0) == sizeof(head))
            return 0;
    }
    return plait_errorf(err, "the file of what it must keep: %s",
                        strerror(errno));
}

static bool is_own(const struct carrier *c, const struct head *head)
{
    return !c->failed && memcmp(head->magic, MAGIC, sizeof(head->magic)) == 0 &&
           head->bytes == sizeof(*head) && head->pid == getpid();
}

static int refuse(int fd, struct plait_error *err)
{
    plait_errorf(err,
                 "PLAIT_ANEW: descriptor %d is not what an earlier life "
                 "of this process has left; do not set it",
                 fd);
    close(fd);
    return -1;
}

int plait_carry_read(int fd, struct plait_elastic *e, struct plait_members **m,
                     struct plait_error *err)
{
    struct carrier c = {.fd = fd};
    struct head head;

    move(&c, &head, sizeof(head));
    if (!is_own(&c, &head))
        return refuse(fd, err);
    *m = malloc(sizeof(**m));
    if (!*m)
        return plait_errorf(err, "out of memory");
    **m = head.members;
    *e = head.elastic;
    move_members(&c, *m);
    move_elastic(&c, e, (size_t)(*m)->size, head.text);
    e->copies = plait_copies_create();
    if (e->copies)
        read_copies(&c, e->copies, head.copies);
    close(fd);
    if (!e->copies || c.failed)
        return plait_errorf(err,
                            "cannot read what an earlier life of this "
                            "process has left: %s",
                            strerror(errno));
    /* A second one would end the process. */
    if (head.signal && plait_signals_caught() != head.signal)
        raise(head.signal);
    return 0;
}
