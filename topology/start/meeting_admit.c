/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/base/text.h"
#include "topology/start/meeting_private.h"

/* Who of those that connect becomes a member. */

int plait_meeting_watch(struct plait_meeting *meeting, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};

    return epoll_ctl(meeting->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Greet a new guest at once with a nonce of its own. */
static void greet(struct plait_meeting *meeting, int fd,
                  const struct sockaddr_storage *from)
{
    struct plait_guest *guest =
        plait_guests_add(meeting->guests, fd, from, plait_clock_ms());
    struct plait_meeting_guest *own = guest ? guest->own : NULL;
    char line[PLAIT_MEETING_OVERHEAD];
    int n;

    if (!guest)
        return;
    if (plait_meeting_nonce(own->talk.host) < 0 ||
        plait_meeting_watch(meeting, fd, guest) < 0)
        goto error;
    n = snprintf(line, sizeof(line), "plait-meeting %d %s\n",
                 PLAIT_MEETING_VERSION, own->talk.host);
    if (send(fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n)
        return;
error:
    plait_guests_drop(meeting->guests, guest);
}

bool plait_meeting_accept(struct plait_meeting *meeting)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof(from);
    int fd = accept4(meeting->listener, (struct sockaddr *)&from, &size,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        if (plait_guests_make_room(meeting->guests))
            return true;
        /* Other files of this process are in the way. */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        return false;
    }
    if (fd < 0)
        return errno == ECONNABORTED || errno == EINTR;
    if (meeting->here && !plait_meeting_is_own(fd))
        close(fd);
    else
        greet(meeting, fd, &from);
    return true;
}

/* A member of version 1 has sent the token. It may know this step's: then the
 * host is told of it, since the member takes the greeting for its answer. */
static void note_old(struct plait_meeting *meeting, const char *line)
{
    const struct plait_meeting_talk none = {"", "", 0};
    char token[65], proof[PLAIT_MEETING_PROOF], wanted[PLAIT_MEETING_PROOF];
    int index;

    if (plait_meeting_parse_old(line, token, &index) < 0 || meeting->check ||
        index >= meeting->nmembers)
        return;
    plait_meeting_prove(token, "old", &none, "", proof);
    plait_meeting_prove(meeting->token, "old", &none, "", wanted);
    if (plait_meeting_same(proof, wanted) && meeting->old < 0)
        meeting->old = index;
}

/* A member has given up before it was greeted. 1: the line is such a one.
 * (Where members have tokens of their own, nobody asks who has left.) */
static int note_left(struct plait_meeting *meeting, const char *line)
{
    struct plait_meeting_talk talk = {"", "", 0};
    char proof[PLAIT_MEETING_PROOF], wanted[PLAIT_MEETING_PROOF];

    if (plait_meeting_parse_left(line, &talk, proof) < 0)
        return 0;
    plait_meeting_prove(meeting->token, "left", &talk, "", wanted);
    if (!meeting->check && talk.index < meeting->nmembers &&
        plait_meeting_same(proof, wanted))
        meeting->members[talk.index].left = 1;
    return 1;
}

static int welcome(struct plait_meeting *meeting,
                   struct plait_meeting_member *member)
{
    char line[PLAIT_MEETING_OVERHEAD], proof[PLAIT_MEETING_PROOF];
    int n;

    plait_meeting_prove(member->token, "welcome", &member->talk, "", proof);
    n = snprintf(line, sizeof(line), "welcome %s\n", proof);
    if (send(member->fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) != n)
        return 0;
    epoll_ctl(meeting->epoll, EPOLL_CTL_DEL, member->fd, NULL);
    return 1;
}

/* Is the line from a member that has not come yet? */
static int admit(struct plait_meeting *meeting, struct plait_guest *guest)
{
    struct plait_meeting_guest *own = guest->own;
    struct plait_meeting_member new = {.fd = guest->fd};
    char proof[PLAIT_MEETING_PROOF], wanted[PLAIT_MEETING_PROOF];
    const char *text;

    if (plait_meeting_parse_member(own->line, &own->talk, proof, &text) < 0) {
        if (!note_left(meeting, own->line))
            note_old(meeting, own->line);
        return 0;
    }
    new.talk = own->talk;
    memcpy(new.token, meeting->token, sizeof(new.token));
    if (new.talk.index >= meeting->nmembers ||
        meeting->members[new.talk.index].said ||
        (meeting->check &&
         !meeting->check(meeting->arg, new.talk.index, text, new.token)))
        return 0;
    plait_meeting_prove(new.token, "member", &new.talk, text, wanted);
    if (!plait_meeting_same(proof, wanted) || !(new.said = strdup(text)))
        return 0;
    plait_text_clean(new.said);
    if (!welcome(meeting, &new)) {
        free(new.said);
        return 0;
    }
    pthread_mutex_lock(&meeting->lock);
    meeting->members[new.talk.index] = new;
    pthread_mutex_unlock(&meeting->lock);
    return 1;
}

/* Whatever is wrong with a line, its sender learns only that it is dropped. */
int plait_meeting_read_guest(struct plait_meeting *meeting,
                             struct plait_guest *guest)
{
    struct plait_meeting_guest *own = guest->own;
    ssize_t n = recv(guest->fd, own->line + own->used,
                     sizeof(own->line) - 1 - own->used, 0);
    char *end;
    int came = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    own->used += n > 0 ? (size_t)n : 0;
    end = memchr(own->line, '\n', own->used);
    if (!end && n > 0 && own->used < sizeof(own->line) - 1)
        return 0;
    if (end) {
        *end = '\0';
        came = admit(meeting, guest);
    }
    if (came)
        plait_guests_take(meeting->guests, guest);
    else
        plait_guests_drop(meeting->guests, guest);
    return came;
}
