/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/start/meeting_here.h"
#include "topology/start/meeting_private.h"
#include "topology/start/meeting_visit.h"

/* A member tries all ports and addresses of its host at once, and waits for the
 * one that proves that it knows the token. So other programs that listen at
 * these ports, or say nothing, do not delay it. */

enum {
    ADDRESSES_MOST = 4,
    /* ms until the first port, the others, and a list of names are tried
     * again */
    AGAIN_MS = 20,
    AGAIN_OTHERS_MS = 500,
    /* How often a connection may be dropped, as happens where too many
     * strangers come at once; a wrong proof is dropped as well. The waits
     * double from AGAIN_MS to AGAIN_OTHERS_MS: four seconds in all. */
    DROPS_MOST = 12
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t plait_meeting_end_of_quiet(const struct plait_meeting_visit *v)
{
    int64_t at = plait_clock_ms() + v->place->quiet * INT64_C(1000);

    return v->place->quiet ? earlier(at, v->end) : v->end;
}

/* ---- one try ---- */

void plait_meeting_end_try(struct plait_meeting_try *t, int problem)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    t->phase = PLAIT_TRY_OVER;
    t->problem = problem;
}

static void try_again(struct plait_meeting_try *t, int64_t ms)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    t->phase = PLAIT_TRY_WAITS;
    t->again = plait_clock_ms() + ms;
    t->used = 0;
}

/* Nobody listens: the host may come yet, unless it had come and has gone. */
static void refused(const struct plait_meeting_visit *v,
                    struct plait_meeting_try *t, int problem)
{
    int64_t patient = v->begin + v->place->patience * INT64_C(1000);

    if (t->drops)
        plait_meeting_end_try(t, ECONNRESET);
    else if (plait_clock_ms() < patient &&
             (problem == ECONNREFUSED || problem == EAGAIN ||
              problem == EACCES))
        try_again(t, t == v->tries ? AGAIN_MS : AGAIN_OTHERS_MS);
    else
        plait_meeting_end_try(t, problem);
}

static void dropped(struct plait_meeting_try *t)
{
    int64_t ms = (int64_t)AGAIN_MS << t->drops++;

    if (t->drops > DROPS_MOST || !t->at)
        plait_meeting_end_try(t, ECONNRESET);
    else
        try_again(t, earlier(ms, AGAIN_OTHERS_MS));
}

static void begin_try(const struct plait_meeting_visit *v,
                      struct plait_meeting_try *t)
{
    struct sockaddr_storage at;

    if (!t->at) {
        int list = plait_clock_ms() - v->begin >= AGAIN_OTHERS_MS;

        t->fd = plait_meeting_connect_here(v->place->here);
        if (t->fd < 0 && (list || errno == EACCES))
            t->fd = plait_meeting_find_here(v->place->here);
        if (t->fd < 0)
            refused(v, t, errno);
        else
            t->phase = PLAIT_TRY_GREETED;
        return;
    }
    memcpy(&at, t->at->ai_addr, t->at->ai_addrlen);
    /* The same place in both families. */
    ((struct sockaddr_in *)&at)->sin_port = htons((uint16_t)t->port);
    t->fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0)
        plait_meeting_end_try(t, errno);
    else if (connect(t->fd, (struct sockaddr *)&at, t->at->ai_addrlen) == 0 ||
             errno == EINPROGRESS)
        t->phase = PLAIT_TRY_CONNECTS;
    else
        refused(v, t, errno);
}

static void end_connect(const struct plait_meeting_visit *v,
                        struct plait_meeting_try *t)
{
    int problem = 0;
    socklen_t size = sizeof(problem);

    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0)
        problem = errno;
    if (problem)
        refused(v, t, problem);
    else
        t->phase = PLAIT_TRY_GREETED;
}

/* A line that is not the host's ends the try. */
static void take_line(const struct plait_meeting_visit *v,
                      struct plait_meeting_try *t, const char *line)
{
    char said[PLAIT_MEETING_SAID + PLAIT_MEETING_OVERHEAD];
    char proof[PLAIT_MEETING_PROOF], wanted[PLAIT_MEETING_PROOF];
    const char *rest;
    int n;

    if (t->phase == PLAIT_TRY_PROVES) {
        plait_meeting_prove(v->place->token, "welcome", &t->talk, "", wanted);
        if (plait_meeting_parse_host(line, "welcome", proof, &rest) < 0 ||
            *rest || !plait_meeting_same(proof, wanted))
            plait_meeting_end_try(t, EPROTO);
        else
            t->phase = PLAIT_TRY_WELCOME;
        return;
    }
    if (plait_meeting_parse_hello(line, t->talk.host) < 0) {
        plait_meeting_end_try(t, EPROTO);
        return;
    }
    if (plait_meeting_nonce(t->talk.member) < 0) {
        plait_meeting_end_try(t, errno);
        return;
    }
    plait_meeting_prove(v->place->token, "member", &t->talk, v->text, proof);
    n = snprintf(said, sizeof(said), "member %d %s %s %s\n", t->talk.index,
                 t->talk.member, proof, v->text);
    if (send(t->fd, said, (size_t)n, MSG_NOSIGNAL) == n)
        t->phase = PLAIT_TRY_PROVES;
    else
        dropped(t);
}

void plait_meeting_say_left(const struct plait_meeting_visit *v)
{
    char said[PLAIT_MEETING_OVERHEAD], proof[PLAIT_MEETING_PROOF];

    for (int i = 0; i < v->ntries; i++) {
        struct plait_meeting_try *t = &v->tries[i];

        if (t->phase != PLAIT_TRY_GREETED ||
            plait_meeting_nonce(t->talk.member) < 0)
            continue;
        t->talk.host[0] = '\0';
        plait_meeting_prove(v->place->token, "left", &t->talk, "", proof);
        snprintf(said, sizeof(said), "left %d %s %s\n", t->talk.index,
                 t->talk.member, proof);
        send(t->fd, said, strlen(said), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* Read up to the welcome; what comes behind it stays in t->line. */
static void hear(const struct plait_meeting_visit *v,
                 struct plait_meeting_try *t)
{
    ssize_t n = recv(t->fd, t->line + t->used, sizeof(t->line) - t->used, 0);
    char *end;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        dropped(t);
        return;
    }
    t->used += (size_t)n;
    while ((t->phase == PLAIT_TRY_GREETED || t->phase == PLAIT_TRY_PROVES) &&
           (end = memchr(t->line, '\n', t->used))) {
        char line[sizeof(t->line)];
        size_t size = (size_t)(end - t->line);

        memcpy(line, t->line, size);
        line[size] = '\0';
        t->used -= size + 1;
        memmove(t->line, end + 1, t->used);
        if (size)
            take_line(v, t, line);
    }
    if (t->phase != PLAIT_TRY_WELCOME && t->used == sizeof(t->line))
        plait_meeting_end_try(t, EPROTO);
}

/* ---- all of them ---- */

int plait_meeting_list_tries(struct plait_meeting_visit *v,
                             struct plait_error *err)
{
    const struct plait_meeting_place *place = v->place;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int count = 0, rc = 0, ports = 1 + place->nothers;

    if (!*place->here)
        rc = getaddrinfo(place->host, NULL, &hints, &v->addresses);
    if (rc) {
        errno = ENOENT;
        return plait_errorf(err, "%s: %s", place->host, gai_strerror(rc));
    }
    for (struct addrinfo *at = v->addresses; at; at = at->ai_next)
        count += count < ADDRESSES_MOST;
    v->ntries = *place->here ? 1 : count * ports;
    v->tries = calloc((size_t)v->ntries, sizeof(*v->tries));
    v->polls = calloc((size_t)v->ntries, sizeof(*v->polls));
    v->answer = malloc(PLAIT_MEETING_ANSWER + PLAIT_MEETING_OVERHEAD);
    if (!v->tries || !v->polls || !v->answer)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < v->ntries; i++)
        v->tries[i].fd = -1;
    for (int i = 0; i < ports && !*place->here; i++) {
        struct addrinfo *at = v->addresses;

        for (int j = 0; j < count; j++, at = at->ai_next) {
            v->tries[i * count + j].at = at;
            v->tries[i * count + j].port =
                i ? place->others[i - 1] : place->port;
        }
    }
    return 0;
}

/* Begin what is due, and wait until something comes; until `end` at most, and
 * not where no try is left. */
static int await(struct plait_meeting_visit *v, int64_t end)
{
    int64_t until = end, now = plait_clock_ms();
    int left = 0;

    for (int i = 0; i < v->ntries; i++) {
        struct plait_meeting_try *t = &v->tries[i];

        if (t->phase == PLAIT_TRY_WAITS && t->again <= now)
            begin_try(v, t);
        if (t->phase == PLAIT_TRY_WAITS)
            until = earlier(until, t->again);
        left += t->phase != PLAIT_TRY_OVER;
        v->polls[i].fd = t->fd;
        v->polls[i].events = t->phase == PLAIT_TRY_CONNECTS ? POLLOUT : POLLIN;
        v->polls[i].revents = 0;
    }
    now = plait_clock_ms();
    return poll(v->polls, (nfds_t)v->ntries,
                (int)(left && until > now ? until - now : 0));
}

/* Each attempt may have failed for another reason. The one to report first is
 * that the host has gone, or that another program is in its place. */
static int find_problem(const struct plait_meeting_visit *v)
{
    int problem = v->tries[0].problem;

    for (int i = 0; i < v->ntries; i++)
        if (v->tries[i].problem == ECONNRESET ||
            (v->tries[i].problem == EPROTO && problem != ECONNRESET))
            problem = v->tries[i].problem;
    return problem;
}

int plait_meeting_say_unwelcome(const struct plait_meeting_visit *v,
                                int problem, struct plait_error *err)
{
    const struct plait_meeting_place *place = v->place;

    if (problem == ETIME)
        plait_errorf(err, "%s has sent nothing for %d seconds", place->host,
                     place->quiet);
    else if (problem == EPROTO)
        plait_errorf(err,
                     "port %d of %s belongs to another program: it cannot "
                     "prove that it knows this step's token",
                     place->port, place->host);
    else if (*place->here)
        plait_errorf(err, "cannot reach the first task of this node: %s",
                     strerror(problem));
    else
        plait_errorf(err, "cannot reach port %d of %s: %s", place->port,
                     place->host, strerror(problem));
    errno = problem;
    return -1;
}

struct plait_meeting_try *
plait_meeting_find_host(struct plait_meeting_visit *v,
                        enum plait_meeting_phase phase, struct plait_error *err)
{
    int64_t end = plait_meeting_end_of_quiet(v);
    int left, connected;

    do {
        if (await(v, end) < 0 && errno != EINTR) {
            plait_errorf(err, "cannot wait: %s", strerror(errno));
            return NULL;
        }
        left = connected = 0;
        for (int i = 0; i < v->ntries; i++) {
            struct plait_meeting_try *t = &v->tries[i];

            if (t->phase == PLAIT_TRY_CONNECTS && v->polls[i].revents)
                end_connect(v, t);
            else if (t->phase != PLAIT_TRY_WAITS && v->polls[i].revents)
                hear(v, t);
            if (t->phase == phase)
                return t;
            left += t->phase != PLAIT_TRY_OVER;
            connected +=
                t->phase == PLAIT_TRY_GREETED || t->phase == PLAIT_TRY_PROVES;
        }
    } while (left && plait_clock_ms() < end);
    plait_meeting_say_unwelcome(v,
                                !left                          ? find_problem(v)
                                : connected && v->place->quiet ? ETIME
                                                               : ETIMEDOUT,
                                err);
    return NULL;
}
