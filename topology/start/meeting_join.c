/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/start/meeting.h"
#include "topology/start/meeting_private.h"
#include "topology/start/meeting_visit.h"

/* A member's visit: it finds the host, proves to be a member, and waits for the
 * answer. */

/* Drop the empty lines before the answer: those are signs of life. */
static void drop_signs(struct plait_meeting_visit *v)
{
    size_t signs = 0;

    while (signs < v->used && v->answer[signs] == '\n')
        signs++;
    v->used -= signs;
    memmove(v->answer, v->answer + signs, v->used);
}

static int check_answer(const struct plait_meeting_visit *v,
                        const struct plait_meeting_try *t,
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

static int read_answer(struct plait_meeting_visit *v,
                       struct plait_meeting_try *t,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err)
{
    size_t most = PLAIT_MEETING_ANSWER + PLAIT_MEETING_OVERHEAD;
    struct pollfd one = {.fd = t->fd, .events = POLLIN};
    char *end;

    memcpy(v->answer, t->line, t->used);
    v->used = t->used;
    for (;;) {
        int64_t now, until = plait_meeting_end_of_quiet(v);
        ssize_t n = -1;
        int rc;

        drop_signs(v);
        if ((end = memchr(v->answer, '\n', v->used))) {
            *end = '\0';
            return check_answer(v, t, answer, err);
        }
        if (v->used == most)
            return plait_errorf(err, "the answer is too long");
        now = plait_clock_ms();
        rc = poll(&one, 1, (int)(until > now ? until - now : 0));
        if (rc > 0)
            n = recv(t->fd, v->answer + v->used, most - v->used, 0);
        if (n < 0 && rc && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n == 0)
            errno = ECONNRESET;
        if (rc == 0 && until < v->end)
            return plait_meeting_say_unwelcome(v, ETIME, err);
        if (rc == 0)
            errno = ETIMEDOUT;
        if (n <= 0)
            return plait_errorf(err, "no answer came: %s", strerror(errno));
        v->used += (size_t)n;
    }
}

static void end_visit(struct plait_meeting_visit *v)
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

static int begin_visit(struct plait_meeting_visit *v,
                       const struct plait_meeting_place *place, int index,
                       const char *text, int seconds, struct plait_error *err)
{
    memset(v, 0, sizeof(*v));
    v->place = place;
    v->begin = plait_clock_ms();
    v->end = v->begin + seconds * INT64_C(1000);
    snprintf(v->text, sizeof(v->text), "%s", text);
    for (char *at = v->text; (at = strchr(at, '\n'));)
        *at = ' '; /* one line */
    if (plait_meeting_list_tries(v, err) < 0)
        return -1;
    for (int i = 0; i < v->ntries; i++)
        v->tries[i].talk.index = index;
    return 0;
}

/* Wait for a welcome, and then for the answer. */
static int stay(struct plait_meeting_visit *v,
                char answer[PLAIT_MEETING_ANSWER], struct plait_error *err)
{
    struct plait_meeting_try *host =
        plait_meeting_find_host(v, PLAIT_TRY_WELCOME, err);

    if (!host) {
        int saved = errno;

        plait_meeting_say_left(v);
        errno = saved;
        return -1;
    }
    for (int i = 0; i < v->ntries; i++)
        if (&v->tries[i] != host)
            plait_meeting_end_try(&v->tries[i], 0);
    return read_answer(v, host, answer, err);
}

int plait_meeting_join(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err)
{
    struct plait_meeting_visit v;
    int rc = begin_visit(&v, place, index, text, seconds, err);

    if (rc == 0)
        rc = stay(&v, answer, err);
    end_visit(&v);
    return rc;
}

/* One whose greeting is to come, or NULL. */
static struct plait_meeting_try *
find_connected(const struct plait_meeting_visit *v)
{
    for (int i = 0; i < v->ntries; i++)
        if (v->tries[i].phase == PLAIT_TRY_GREETED)
            return &v->tries[i];
    return NULL;
}

int plait_meeting_call(struct plait_meeting_place *place, int index,
                       const char *text, int seconds, struct plait_error *err)
{
    struct plait_meeting_try *host = NULL;
    struct plait_meeting_visit v;
    int fd = -1;

    snprintf(place->text, sizeof(place->text), "%s", text);
    if (begin_visit(&v, place, index, text, seconds, err) == 0) {
        host = plait_meeting_find_host(&v, PLAIT_TRY_PROVES, err);
        if (!host)
            host = find_connected(&v);
    }
    if (host) {
        place->proved = host->phase == PLAIT_TRY_PROVES;
        place->talk = host->talk;
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
    struct plait_meeting_visit v;
    int rc =
        begin_visit(&v, place, place->talk.index, place->text, seconds, err);

    if (rc < 0) {
        int saved = errno;

        close(fd);
        errno = saved;
    } else {
        for (int i = 1; i < v.ntries; i++)
            plait_meeting_end_try(&v.tries[i], ECONNREFUSED);
        v.tries[0].fd = fd;
        v.tries[0].phase = place->proved ? PLAIT_TRY_PROVES : PLAIT_TRY_GREETED;
        v.tries[0].talk = place->talk;
        rc = stay(&v, answer, err);
    }
    end_visit(&v);
    return rc;
}
