/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/bootstrap/greeting.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "runtime/comm/bootstrap/notice.h"
#include "topology/base/clock.h"

/* The seal follows the hello without a gap, as it does in a notice. */
_Static_assert(offsetof(struct plait_greeting, seal) ==
                   offsetof(struct plait_greeting, hello) +
                       sizeof(struct plait_hello),
               "");
_Static_assert(sizeof(struct plait_hello) == PLAIT_NOTICE_HEAD, "");

static const char magic[8] = "PLAITRV4";

static const unsigned char no_nonce[PLAIT_GREETING_NONCE];

/* The port at the end that listens; 0: the socket has none. */
static unsigned port_of(int fd, bool listens)
{
    struct sockaddr_storage a = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(a);

    if ((listens ? getsockname : getpeername)(fd, (struct sockaddr *)&a, &n) <
            0 ||
        (a.ss_family != AF_INET && a.ss_family != AF_INET6))
        return 0;
    /* The same place in both families. */
    return ntohs(((const struct sockaddr_in *)&a)->sin_port);
}

/* HMAC-SHA-256, keyed by the secret, of the sender's role, the listener's port,
 * the rank's hello and the listener's nonce; the seal has a role of its own and
 * no such nonce. */
static int make_proof(const struct plait_rendezvous *m, char who, unsigned port,
                      const struct plait_hello *hello,
                      const unsigned char nonce[PLAIT_GREETING_NONCE],
                      unsigned char proof[PLAIT_PROOF_SIZE])
{
    unsigned char text[3 + sizeof(*hello) + PLAIT_GREETING_NONCE];

    text[0] = (unsigned char)who;
    text[1] = (unsigned char)(port >> 8);
    text[2] = (unsigned char)port;
    memcpy(text + 3, hello, sizeof(*hello));
    memcpy(text + 3 + sizeof(*hello), nonce, PLAIT_GREETING_NONCE);
    return plait_proof_make(m->secret, text, sizeof(text), proof);
}

static bool check_proof(const struct plait_rendezvous *m, char who,
                        unsigned port, const struct plait_hello *hello,
                        const unsigned char nonce[PLAIT_GREETING_NONCE],
                        const unsigned char proof[PLAIT_PROOF_SIZE])
{
    unsigned char want[PLAIT_PROOF_SIZE];

    return make_proof(m, who, port, hello, nonce, want) == 0 &&
           plait_proof_same(want, proof);
}

/* Read what has come of a message of which `want` bytes are missing. 1: all. */
static int read_some(struct plait_greeting *g, int fd, void *to, size_t want)
{
    ssize_t n = recv(fd, to, want, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0) {
        errno = ECONNRESET;
        return -1;
    }
    g->got += (size_t)n;
    return (size_t)n == want;
}

/* -- who has connected ----------------------------------------------------- */

int plait_greeting_begin(struct plait_greeting *g,
                         const struct plait_rendezvous *m, int fd)
{
    memset(g, 0, sizeof(*g));
    g->hello.key = m->key;
    g->hello.rank = (uint32_t)m->rank;
    g->hello.size = (uint32_t)m->size;
    g->hello.began = plait_clock_ns();
    memcpy(g->hello.magic, magic, sizeof(magic));
    if (getrandom(g->hello.nonce, sizeof(g->hello.nonce), 0) !=
            sizeof(g->hello.nonce) ||
        make_proof(m, 'h', port_of(fd, false), &g->hello, no_nonce, g->seal) <
            0)
        return -1;
    return plait_write_all(fd, &g->hello, sizeof(g->hello) + sizeof(g->seal));
}

int plait_greeting_prove(const struct plait_greeting *g,
                         const struct plait_rendezvous *m, int fd)
{
    unsigned char proof[PLAIT_PROOF_SIZE];
    unsigned port = port_of(fd, false);

    errno = EACCES;
    if (!check_proof(m, '0', port, &g->hello, g->answer.nonce,
                     g->answer.proof) ||
        make_proof(m, 'n', port, &g->hello, g->answer.nonce, proof) < 0)
        return -1;
    return plait_write_all(fd, proof, sizeof(proof));
}

int plait_greeting_finish(struct plait_greeting *g,
                          const struct plait_rendezvous *m, int fd)
{
    char confirmed;
    int rc;

    if (g->got == sizeof(g->answer))
        return read_some(g, fd, &confirmed, 1);
    rc = read_some(g, fd, (char *)&g->answer + g->got,
                   sizeof(g->answer) - g->got);
    return rc <= 0 ? rc : plait_greeting_prove(g, m, fd);
}

/* -- who listens ----------------------------------------------------------- */

static bool is_hello(const struct plait_greeting *g,
                     const struct plait_rendezvous *m, int fd)
{
    const struct plait_hello *h = &g->hello;

    return memcmp(h->magic, magic, sizeof(magic)) == 0 &&
           (h->key == m->key || (m->also && h->key == m->also)) &&
           h->size == (uint32_t)m->size && h->rank < h->size &&
           check_proof(m, 'h', port_of(fd, true), h, no_nonce, g->seal);
}

int plait_greeting_hear(struct plait_greeting *g,
                        const struct plait_rendezvous *m, int fd)
{
    size_t hello = sizeof(g->hello) + sizeof(g->seal);
    int rc;

    if (g->got < hello) {
        rc = read_some(g, fd, (char *)&g->hello + g->got, hello - g->got);
        if (rc <= 0)
            return rc;
        if (plait_notice_begins(&g->hello))
            return PLAIT_GREETING_NOTICE;
        errno = EACCES;
        return is_hello(g, m, fd) ? 1 : -1;
    }
    rc = read_some(g, fd, (char *)g->proof + (g->got - hello),
                   hello + sizeof(g->proof) - g->got);
    if (rc <= 0)
        return rc;
    errno = EACCES;
    return check_proof(m, 'n', port_of(fd, true), &g->hello, g->answer.nonce,
                       g->proof)
               ? 2
               : -1;
}

int plait_greeting_reply(struct plait_greeting *g,
                         const struct plait_rendezvous *m, int fd)
{
    if (getrandom(g->answer.nonce, sizeof(g->answer.nonce), 0) !=
            sizeof(g->answer.nonce) ||
        make_proof(m, '0', port_of(fd, true), &g->hello, g->answer.nonce,
                   g->answer.proof) < 0)
        return -1;
    return plait_write_all(fd, &g->answer, sizeof(g->answer));
}

int plait_greeting_confirm(int fd)
{
    return plait_write_all(fd, "", 1);
}

/* -- both ------------------------------------------------------------------ */

void plait_greeting_settle(int fd)
{
    const struct timeval no_limit = {0};
    int one = 1;

    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &no_limit, sizeof(no_limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &no_limit, sizeof(no_limit));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}
