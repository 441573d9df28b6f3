/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "topology/start/meeting.h"
#include "topology/start/meeting_here.h"
#include "topology/start/meeting_line.h"

/* A member tries all ports and addresses of its host at once, and waits for the
 * one that proves to know the token: what else listens there, or says nothing,
 * costs it nothing. */

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

enum phase {
    WAITS,    /* is to be connected at `again` */
    CONNECTS, /* until it can be written to */
    GREETED,  /* the greeting is to come */
    PROVES,   /* the welcome is to come */
    WELCOME,
    OVER /* see problem */
};

struct
try {
    const struct addrinfo *at; /* NULL: on this machine */
    int fd, port, drops, problem;
    enum phase phase;
    int64_t again; /* ms */
    size_t used;
    char line[PLAIT_MEETING_OVERHEAD];
    struct plait_meeting_talk talk;
};

struct visit {
    const struct plait_meeting_place *place;
    char text[PLAIT_MEETING_SAID];
    int64_t begin, end; /* ms */
    int ntries;
    struct try *tries;
    struct pollfd *polls;
    struct addrinfo *addresses;
    char *answer; /* of PLAIT_MEETING_ANSWER + PLAIT_MEETING_OVERHEAD */
    size_t used;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When a host that sends nothing from now on is given up. */
static int64_t end_of_quiet(const struct visit *v)
{
    int64_t at = now_ms() + v->place->quiet * INT64_C(1000);

    return v->place->quiet ? earlier(at, v->end) : v->end;
}

/* ---- one try ---- */

static void end_try(struct try *t, int problem)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    t->phase = OVER;
    t->problem = problem;
}

static void try_again(struct try *t, int64_t ms)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    t->phase = WAITS;
    t->again = now_ms() + ms;
    t->used = 0;
}

/* Nobody listens: the host may come yet, unless it had come and has gone. */
static void refused(const struct visit *v, struct try *t, int problem)
{
    int64_t patient = v->begin + v->place->patience * INT64_C(1000);

    if (t->drops)
        end_try(t, ECONNRESET);
    else if (now_ms() < patient && (problem == ECONNREFUSED ||
                                    problem == EAGAIN || problem == EACCES))
        try_again(t, t == v->tries ? AGAIN_MS : AGAIN_OTHERS_MS);
    else
        end_try(t, problem);
}

static void dropped(struct try *t)
{
    int64_t ms = (int64_t)AGAIN_MS << t->drops++;

    if (t->drops > DROPS_MOST || !t->at)
        end_try(t, ECONNRESET);
    else
        try_again(t, earlier(ms, AGAIN_OTHERS_MS));
}

static void begin_try(const struct visit *v, struct try *t)
{
    struct sockaddr_storage at;

    if (!t->at) {
        int list = now_ms() - v->begin >= AGAIN_OTHERS_MS;

        t->fd = plait_meeting_connect_here(v->place->here);
        if (t->fd < 0 && (list || errno == EACCES))
            t->fd = plait_meeting_find_here(v->place->here);
        if (t->fd < 0)
            refused(v, t, errno);
        else
            t->phase = GREETED;
        return;
    }
    memcpy(&at, t->at->ai_addr, t->at->ai_addrlen);
    /* The same place in both families. */
    ((struct sockaddr_in *)&at)->sin_port = htons((uint16_t)t->port);
    t->fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0)
        end_try(t, errno);
    else if (connect(t->fd, (struct sockaddr *)&at, t->at->ai_addrlen) == 0 ||
             errno == EINPROGRESS)
        t->phase = CONNECTS;
    else
        refused(v, t, errno);
}

static void end_connect(const struct visit *v, struct try *t)
{
    int problem = 0;
    socklen_t size = sizeof(problem);

    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0)
        problem = errno;
    if (problem)
        refused(v, t, problem);
    else
        t->phase = GREETED;
}

/* A line that is not the host's ends the try. */
static void take_line(const struct visit *v, struct try *t, const char *line)
{
    char said[PLAIT_MEETING_SAID + PLAIT_MEETING_OVERHEAD];
    char proof[PLAIT_MEETING_PROOF], wanted[PLAIT_MEETING_PROOF];
    const char *rest;
    int n;

    if (t->phase == PROVES) {
        plait_meeting_prove(v->place->token, "welcome", &t->talk, "", wanted);
        if (plait_meeting_parse_host(line, "welcome", proof, &rest) < 0 ||
            *rest || !plait_meeting_same(proof, wanted))
            end_try(t, EPROTO);
        else
            t->phase = WELCOME;
        return;
    }
    if (plait_meeting_parse_hello(line, t->talk.host) < 0) {
        end_try(t, EPROTO);
        return;
    }
    if (plait_meeting_nonce(t->talk.member) < 0) {
        end_try(t, errno);
        return;
    }
    plait_meeting_prove(v->place->token, "member", &t->talk, v->text, proof);
    n = snprintf(said, sizeof(said), "member %d %s %s %s\n", t->talk.index,
                 t->talk.member, proof, v->text);
    if (send(t->fd, said, (size_t)n, MSG_NOSIGNAL) == n)
        t->phase = PROVES;
    else
        dropped(t);
}

/* Read up to the welcome; what comes behind it stays in t->line. */
static void hear(const struct visit *v, struct try *t)
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
    while ((t->phase == GREETED || t->phase == PROVES) &&
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
    if (t->phase != WELCOME && t->used == sizeof(t->line))
        end_try(t, EPROTO);
}

/* ---- all of them ---- */

static int list_tries(struct visit *v, struct plait_error *err)
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

/* Begin what is due, and wait until something comes; until `end` at most. */
static int await(struct visit *v, int64_t end)
{
    int64_t until = end, now = now_ms();

    for (int i = 0; i < v->ntries; i++) {
        struct try *t = &v->tries[i];

        if (t->phase == WAITS && t->again <= now)
            begin_try(v, t);
        if (t->phase == WAITS)
            until = earlier(until, t->again);
        v->polls[i].fd = t->fd;
        v->polls[i].events = t->phase == CONNECTS ? POLLOUT : POLLIN;
        v->polls[i].revents = 0;
    }
    now = now_ms();
    return poll(v->polls, (nfds_t)v->ntries,
                (int)(until > now ? until - now : 0));
}

/* Why there was no welcome, as far as one reason can say it: that the host has
 * gone, or that something else is in its place, counts most. */
static int find_problem(const struct visit *v)
{
    int problem = v->tries[0].problem;

    for (int i = 0; i < v->ntries; i++)
        if (v->tries[i].problem == ECONNRESET ||
            (v->tries[i].problem == EPROTO && problem != ECONNRESET))
            problem = v->tries[i].problem;
    return problem;
}

static int say_unwelcome(const struct visit *v, int problem,
                         struct plait_error *err)
{
    const struct plait_meeting_place *place = v->place;

    if (problem == ETIME)
        plait_errorf(err, "%s has sent nothing for %d seconds", place->host,
                     place->quiet);
    else if (problem == EPROTO)
        plait_errorf(err,
                     "what listens at port %d of %s is not of this step: it "
                     "cannot prove to know its token",
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

/* The first try that has come to `phase`, or NULL with the reason in err. */
static struct try *find_host(struct visit *v, enum phase phase,
                             struct plait_error *err)
{
    int64_t end = end_of_quiet(v);
    int left, connected;

    do {
        if (await(v, end) < 0 && errno != EINTR) {
            plait_errorf(err, "cannot wait: %s", strerror(errno));
            return NULL;
        }
        left = connected = 0;
        for (int i = 0; i < v->ntries; i++) {
            struct try *t = &v->tries[i];

            if (t->phase == CONNECTS && v->polls[i].revents)
                end_connect(v, t);
            else if (t->phase != WAITS && v->polls[i].revents)
                hear(v, t);
            if (t->phase == phase)
                return t;
            left += t->phase != OVER;
            connected += t->phase == GREETED || t->phase == PROVES;
        }
    } while (left && now_ms() < end);
    say_unwelcome(v,
                  !left                          ? find_problem(v)
                  : connected && v->place->quiet ? ETIME
                                                 : ETIMEDOUT,
                  err);
    return NULL;
}

/* ---- the answer ---- */

/* Drop the empty lines before the answer: those are signs of life. */
static void drop_signs(struct visit *v)
{
    size_t signs = 0;

    while (signs < v->used && v->answer[signs] == '\n')
        signs++;
    v->used -= signs;
    memmove(v->answer, v->answer + signs, v->used);
}

static int check_answer(const struct visit *v, const struct try *t,
                        char answer[PLAIT_MEETING_ANSWER],
                        struct plait_error *err)
{
    char proof[PLAIT_MEETING_PROOF], wanted[PLAIT_MEETING_PROOF];
    const char *text;

    if (plait_meeting_parse_host(v->answer, "answer", proof, &text) == 0 &&
        strlen(text) < PLAIT_MEETING_ANSWER) {
        plait_meeting_prove(v->place->token, "answer", &t->talk, text, wanted);
        if (plait_meeting_same(proof, wanted)) {
            strcpy(answer, text);
            return 0;
        }
    }
    errno = EPROTO;
    return plait_errorf(err, "the answer is not of this step's host");
}

static int read_answer(struct visit *v, struct try *t,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err)
{
    size_t most = PLAIT_MEETING_ANSWER + PLAIT_MEETING_OVERHEAD;
    struct pollfd one = {.fd = t->fd, .events = POLLIN};
    char *end;

    memcpy(v->answer, t->line, t->used);
    v->used = t->used;
    for (;;) {
        int64_t now, until = end_of_quiet(v);
        ssize_t n = -1;
        int rc;

        drop_signs(v);
        if ((end = memchr(v->answer, '\n', v->used))) {
            *end = '\0';
            return check_answer(v, t, answer, err);
        }
        if (v->used == most)
            return plait_errorf(err, "the answer is too long");
        now = now_ms();
        rc = poll(&one, 1, (int)(until > now ? until - now : 0));
        if (rc > 0)
            n = recv(t->fd, v->answer + v->used, most - v->used, 0);
        if (n < 0 && rc && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n == 0)
            errno = ECONNRESET;
        if (rc == 0 && until < v->end)
            return say_unwelcome(v, ETIME, err);
        if (rc == 0)
            errno = ETIMEDOUT;
        if (n <= 0)
            return plait_errorf(err, "no answer came: %s", strerror(errno));
        v->used += (size_t)n;
    }
}

static void end_visit(struct visit *v)
{
    int saved = errno;

    for (int i = 0; i < v->ntries && v->tries; i++)
        if (v->tries[i].fd >= 0)
            close(v->tries[i].fd);
    if (v->addresses)
        freeaddrinfo(v->addresses);
    free(v->tries);
    free(v->polls);
    free(v->answer);
    errno = saved;
}

static int begin_visit(struct visit *v, const struct plait_meeting_place *place,
                       int index, const char *text, int seconds,
                       struct plait_error *err)
{
    memset(v, 0, sizeof(*v));
    v->place = place;
    v->begin = now_ms();
    v->end = v->begin + seconds * INT64_C(1000);
    snprintf(v->text, sizeof(v->text), "%s", text);
    for (char *at = v->text; (at = strchr(at, '\n'));)
        *at = ' '; /* one line */
    if (list_tries(v, err) < 0)
        return -1;
    for (int i = 0; i < v->ntries; i++)
        v->tries[i].talk.index = index;
    return 0;
}

/* Wait for a welcome, and then for the answer. */
static int stay(struct visit *v, char answer[PLAIT_MEETING_ANSWER],
                struct plait_error *err)
{
    struct try *host = find_host(v, WELCOME, err);

    for (int i = 0; i < v->ntries && host; i++)
        if (&v->tries[i] != host)
            end_try(&v->tries[i], 0);
    return host ? read_answer(v, host, answer, err) : -1;
}

int plait_meeting_join(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err)
{
    struct visit v;
    int rc = begin_visit(&v, place, index, text, seconds, err);

    if (rc == 0)
        rc = stay(&v, answer, err);
    end_visit(&v);
    return rc;
}

int plait_meeting_call(struct plait_meeting_place *place, int index,
                       const char *text, int seconds, struct plait_error *err)
{
    struct try *host = NULL;
    struct visit v;
    int fd = -1;

    place->index = index;
    snprintf(place->text, sizeof(place->text), "%s", text);
    if (begin_visit(&v, place, index, text, seconds, err) == 0)
        host = find_host(&v, GREETED, err);
    if (host) {
        fd = host->fd;
        host->fd = -1;
    }
    end_visit(&v);
    return fd;
}

/* A connection that was dropped meanwhile is made again. */
int plait_meeting_hear(const struct plait_meeting_place *place, int fd,
                       int seconds, char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err)
{
    struct visit v;
    int rc = begin_visit(&v, place, place->index, place->text, seconds, err);

    if (rc < 0) {
        int saved = errno;

        close(fd);
        errno = saved;
    } else {
        for (int i = 1; i < v.ntries; i++)
            end_try(&v.tries[i], ECONNREFUSED);
        v.tries[0].fd = fd;
        v.tries[0].phase = GREETED;
        rc = stay(&v, answer, err);
    }
    end_visit(&v);
    return rc;
}
