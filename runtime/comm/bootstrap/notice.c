/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* accept4 */
#include "config.h"

#include "runtime/comm/bootstrap/notice.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/greeting.h"
#include "topology/base/clock.h"
#include "topology/base/guests.h"

/* Time limits: for the other machine to confirm that it has the bytes; between
 * looks at that; for a connection to send its whole notice. CALLERS: how many
 * such connections there are at a time, and FILES, how many files are left to
 * the rest of the process; ACCEPTED: how many one look accepts. */
enum { TAKEN_MS = 2000, LOOK_MS = 5, PATIENCE_MS = 5000 };
enum { CALLERS = 256, FILES = 256, ACCEPTED = 1024 };

struct head {
    char magic[8];
    uint64_t key;
    uint32_t rank, size;
    uint64_t id;      /* the receiver's */
    uint64_t number;  /* plait_clock_ns(): a later one is not less */
    uint32_t stopped; /* the rank, in a notice of that kind */
    uint32_t zero;
};

_Static_assert(sizeof(struct head) == PLAIT_NOTICE_HEAD, "");

static const char out[8] = "PLAITOUT", stopped[8] = "PLAITSTP";

static int make_proof(const struct plait_rendezvous *m,
                      const unsigned char head[PLAIT_NOTICE_HEAD],
                      unsigned char proof[PLAIT_PROOF_SIZE])
{
    unsigned char text[1 + PLAIT_NOTICE_HEAD] = {'x'};

    memcpy(text + 1, head, PLAIT_NOTICE_HEAD);
    return plait_proof_make(m->secret, text, sizeof(text), proof);
}

static int send_notice(const struct plait_rendezvous *m, int fd,
                       const char magic[8], int who)
{
    struct head head = {.key = m->key,
                        .rank = (uint32_t)m->root,
                        .size = (uint32_t)m->size,
                        .id = m->ids[m->root],
                        .number = plait_clock_ns(),
                        .stopped = (uint32_t)who};
    struct plait_notice notice;

    memcpy(head.magic, magic, sizeof(head.magic));
    memcpy(notice.head, &head, sizeof(head));
    if (make_proof(m, notice.head, notice.proof) < 0)
        return -1;
    return plait_write_all(fd, &notice, sizeof(notice));
}

int plait_notice_send_stopped(const struct plait_rendezvous *m, int fd, int who)
{
    return send_notice(m, fd, stopped, who);
}

int plait_notice_send(const struct plait_rendezvous *m, int fd)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    int left = 0;

    if (send_notice(m, fd, out, 0) < 0)
        return -1;
    for (int i = 0; i < TAKEN_MS / LOOK_MS; i++) {
        if (ioctl(fd, SIOCOUTQ, &left) < 0 || left == 0)
            break;
        nanosleep(&pause, NULL);
    }
    return left == 0 ? 0 : -1;
}

bool plait_notice_begins(const void *head)
{
    return memcmp(head, out, sizeof(out)) == 0 ||
           memcmp(head, stopped, sizeof(stopped)) == 0;
}

bool plait_notice_take(const struct plait_rendezvous *m, const void *head,
                       const unsigned char proof[PLAIT_PROOF_SIZE])
{
    unsigned char want[PLAIT_PROOF_SIZE];
    struct head h;

    memcpy(&h, head, sizeof(h));
    if (!m->ids || !plait_notice_begins(head) ||
        (h.key != m->key && (!m->also || h.key != m->also)) ||
        h.rank != (uint32_t)m->rank || h.size != (uint32_t)m->size ||
        h.id != m->ids[m->rank] || make_proof(m, head, want) < 0 ||
        !plait_proof_same(want, proof))
        return false;
    if (memcmp(h.magic, out, sizeof(out)) == 0)
        return true;
    /* Only processes of the same machine see that a process is stopped, so the
     * numbers, which are times, come from one clock. */
    if (!m->stopped || h.stopped >= h.size || h.number <= m->newest[h.stopped])
        return false;
    m->newest[h.stopped] = h.number;
    m->stopped(m->arg, (int)h.stopped);
    return false;
}

/* -- a port without a host ------------------------------------------------- */

struct plait_guests *plait_notice_callers(void)
{
    return plait_guests_create(CALLERS, FILES, sizeof(struct plait_greeting));
}

/* Whether the caller was heard out; *came: it told that this rank is left
 * out. */
static bool hear_caller(const struct plait_rendezvous *m, struct plait_guest *g,
                        bool *came)
{
    struct plait_greeting *greeting = g->own;
    int heard = plait_greeting_hear(greeting, m, g->fd);

    if (heard == PLAIT_GREETING_NOTICE)
        *came |= plait_notice_take(m, &greeting->hello, greeting->seal);
    return heard != 0;
}

/* The next connection; -1: none. */
static int accept_caller(int listener, struct plait_guests *callers,
                         struct sockaddr_storage *from)
{
    socklen_t n;
    int fd;

    do {
        n = sizeof(*from);
        fd = accept4(listener, (struct sockaddr *)from, &n,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
             plait_guests_make_room(callers));
    return fd;
}

bool plait_notice_came(const struct plait_rendezvous *m, int listener,
                       struct plait_guests *callers)
{
    int64_t now = plait_clock_ms();
    struct plait_guest *g, *newer;
    struct sockaddr_storage from;
    bool came = false;
    int fd;

    for (g = plait_guests_oldest(callers); g; g = newer) {
        newer = g->newer;
        if (hear_caller(m, g, &came))
            plait_guests_drop(callers, g);
    }
    plait_guests_drop_before(callers, now - PATIENCE_MS);
    for (int i = 0; i < ACCEPTED && !came &&
                    (fd = accept_caller(listener, callers, &from)) >= 0;
         i++) {
        g = plait_guests_add(callers, fd, &from, now);
        if (g && hear_caller(m, g, &came))
            plait_guests_drop(callers, g);
    }
    return came;
}
