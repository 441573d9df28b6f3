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

/* Time limits: for the other machine to confirm that it has the bytes; between
 * looks at that; for a connection to send its whole notice. HEARD: how many
 * silent connections one check of the port waits for. */
enum { TAKEN_MS = 2000, LOOK_MS = 5, PATIENCE_MS = 200, HEARD = 16 };

struct head {
    char magic[8];
    uint64_t key;
    uint32_t rank, size;
    uint32_t stopped; /* the rank, in a notice of that kind */
    unsigned char zero[12];
};

_Static_assert(sizeof(struct head) == PLAIT_NOTICE_HEAD, "");

static const char out[8] = "PLAITOUT", stopped[8] = "PLAITSTP";

static int make_proof(const struct plait_meeting *m,
                      const unsigned char head[PLAIT_NOTICE_HEAD],
                      unsigned char proof[PLAIT_PROOF_SIZE])
{
    unsigned char text[1 + PLAIT_NOTICE_HEAD] = {'x'};

    memcpy(text + 1, head, PLAIT_NOTICE_HEAD);
    return plait_proof_make(m->secret, text, sizeof(text), proof);
}

static int send_notice(const struct plait_meeting *m, int fd,
                       const char magic[8], int who)
{
    struct head head = {.key = m->key,
                        .rank = (uint32_t)m->root,
                        .size = (uint32_t)m->size,
                        .stopped = (uint32_t)who};
    struct plait_notice notice;

    memcpy(head.magic, magic, sizeof(head.magic));
    memcpy(notice.head, &head, sizeof(head));
    if (make_proof(m, notice.head, notice.proof) < 0)
        return -1;
    return plait_write_all(fd, &notice, sizeof(notice));
}

int plait_notice_send_stopped(const struct plait_meeting *m, int fd, int who)
{
    return send_notice(m, fd, stopped, who);
}

int plait_notice_send(const struct plait_meeting *m, int fd)
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

bool plait_notice_take(const struct plait_meeting *m, const void *head,
                       const unsigned char proof[PLAIT_PROOF_SIZE])
{
    unsigned char want[PLAIT_PROOF_SIZE];
    struct head h;

    memcpy(&h, head, sizeof(h));
    if (!plait_notice_begins(head) ||
        (h.key != m->key && (!m->also || h.key != m->also)) ||
        h.rank != (uint32_t)m->rank || h.size != (uint32_t)m->size ||
        make_proof(m, head, want) < 0 || !plait_proof_same(want, proof))
        return false;
    if (memcmp(h.magic, out, sizeof(out)) == 0)
        return true;
    if (m->stopped && h.stopped < h.size)
        m->stopped(m->arg, (int)h.stopped);
    return false;
}

bool plait_notice_came(const struct plait_meeting *m, int listener)
{
    const struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
    struct plait_notice notice;
    bool came = false;
    int silent = 0;

    for (int i = 0; i < SOMAXCONN && silent < HEARD && !came; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            break;
        errno = 0;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        came = plait_read_all(fd, notice.head, sizeof(notice.head)) == 0 &&
               plait_notice_begins(notice.head) &&
               plait_read_all(fd, notice.proof, sizeof(notice.proof)) == 0 &&
               plait_notice_take(m, notice.head, notice.proof);
        silent += errno == EAGAIN;
        close(fd);
    }
    return came;
}
