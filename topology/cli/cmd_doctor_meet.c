/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topology/base/secret.h"
#include "topology/base/text.h"
#include "topology/cli/cmd_doctor_meet.h"
#include "topology/start/meeting.h"

/* All nodes say at a first meeting where they listen, and are told where the
 * others do; when each has tried the next one they come to a second, so that
 * none stops to listen before. */

#define VARIABLE "PLAIT_DOCTOR_MEET"

/* QUIET: how long a meeting waits for one more node, once one has come. TRY:
 * how long a connection may take. */
enum { QUIET = 15, TRY = 5, TOKEN = 65 };
_Static_assert(2 * (QUIET + TRY) < DOCTOR_MEET_MOST, "both meetings");

struct doctor_meet {
    char *const *names, *const *addresses;
    int n;
    struct plait_meeting *meeting[2];
    pthread_t thread;
    atomic_int over;
};

/* "NAME ADDRESS PORT,..." for each member in order; nothing for one that has
 * not come, and for those that no longer fit. */
static void tell_places(struct doctor_meet *meet, char *buffer, size_t size)
{
    struct plait_text text = {buffer, size, 0};

    buffer[0] = '\0';
    for (int i = 0; i < meet->n; i++) {
        const char *said = plait_meeting_said(meet->meeting[0], i);
        char name[256] = "";
        int port = 0, k = 0;

        if (said && sscanf(said, "%255s %d", name, &port) != 2)
            name[0] = '\0';
        while (k < meet->n && strcmp(meet->names[k], name) != 0)
            k++;
        if (name[0] && k < meet->n)
            plait_text_add(&text, "%s %s %d", name, meet->addresses[k], port);
        plait_text_add(&text, ",");
    }
}

/* 1 where all have come, or no more do; 0: it is over. */
static bool wait_for_all(struct doctor_meet *meet,
                         struct plait_meeting *meeting)
{
    while (!meet->over) {
        int rc = plait_meeting_wait(meeting, QUIET), any = rc == 1;

        for (int i = 0; i < meet->n && !any; i++)
            any = plait_meeting_said(meeting, i) != NULL;
        if (rc < 0)
            return false;
        if (any)
            return true;
    }
    return false;
}

static void *host(void *arg)
{
    struct doctor_meet *meet = arg;
    char *answer = malloc(PLAIT_MEETING_ANSWER);

    if (answer && wait_for_all(meet, meet->meeting[0])) {
        tell_places(meet, answer, PLAIT_MEETING_ANSWER - 2);
        plait_meeting_answer(meet->meeting[0], answer);
        if (wait_for_all(meet, meet->meeting[1]))
            plait_meeting_answer(meet->meeting[1], "done");
    }
    free(answer);
    return NULL;
}

struct doctor_meet *doctor_meet_create(char *const *names,
                                       char *const *addresses, int n,
                                       const uint16_t listen[2],
                                       const uint16_t ports[2],
                                       struct plait_error *err)
{
    struct doctor_meet *meet = calloc(1, sizeof(*meet));
    char token[TOKEN], value[256];

    if (!meet || plait_secret_create(token, sizeof(token)) < 0) {
        plait_errorf(err, "%s", strerror(errno));
        free(meet);
        return NULL;
    }
    *meet =
        (struct doctor_meet){.names = names, .addresses = addresses, .n = n};
    for (int i = 0; i < 2; i++)
        meet->meeting[i] =
            plait_meeting_create(n, token, listen[0] ? listen : NULL, err);
    if (!meet->meeting[0] || !meet->meeting[1])
        goto error;
    snprintf(value, sizeof(value), "%d %d %u %u %s",
             plait_meeting_port(meet->meeting[0]),
             plait_meeting_port(meet->meeting[1]), ports[0], ports[1], token);
    if (setenv(VARIABLE, value, 1) < 0 ||
        (errno = pthread_create(&meet->thread, NULL, host, meet))) {
        plait_errorf(err, "%s", strerror(errno));
        goto error;
    }
    return meet;
error:
    plait_meeting_destroy(meet->meeting[0]);
    plait_meeting_destroy(meet->meeting[1]);
    free(meet);
    return NULL;
}

void doctor_meet_destroy(struct doctor_meet *meet)
{
    if (!meet)
        return;
    meet->over = 1;
    plait_meeting_cancel(meet->meeting[0]);
    plait_meeting_cancel(meet->meeting[1]);
    pthread_join(meet->thread, NULL);
    plait_meeting_destroy(meet->meeting[0]);
    plait_meeting_destroy(meet->meeting[1]);
    free(meet);
}

/* At the first free one of the ports. */
static int listen_at(const unsigned ports[2], int *port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6,
                              .sin6_addr = in6addr_any};
    struct sockaddr_in at4 = {.sin_family = AF_INET};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), six = fd >= 0;

    if (!six)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (unsigned p = ports[0]; fd >= 0 && p <= ports[1]; p++) {
        at.sin6_port = at4.sin_port = htons((uint16_t)p);
        if (bind(fd, six ? (struct sockaddr *)&at : (struct sockaddr *)&at4,
                 six ? sizeof(at) : sizeof(at4)) == 0) {
            *port = (int)p;
            return listen(fd, 16) == 0 ? fd : -1;
        }
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* 0, or an errno. */
static int try_address(const struct addrinfo *at)
{
    int error = 0, fd = socket(at->ai_family,
                               SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t size = sizeof(error);

    if (fd < 0)
        return errno;
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
        error = errno;
        if (error == EINPROGRESS) {
            int rc = poll(&wait, 1, TRY * 1000);

            if (rc == 1)
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
            else
                error = rc ? errno : ETIMEDOUT;
        }
    }
    close(fd);
    return error;
}

static const char *try_place(const char *address, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(address, port, &hints, &found), error = ENOENT;

    if (rc)
        return gai_strerror(rc);
    for (const struct addrinfo *at = found; at && error; at = at->ai_next)
        error = try_address(at);
    freeaddrinfo(found);
    return error ? strerror(error) : NULL;
}

/* The next member's place after `index`, and its name. 0 where there is
 * none. */
static int find_next(char *answer, int index, char name[256], char address[256],
                     char port[8])
{
    int n = 0, found = 0;

    for (const char *p = answer; (p = strchr(p, ',')); p++)
        n++;
    for (int step = 1; step < n && !found; step++) {
        const char *p = answer;

        for (int k = (index + step) % n; k > 0; k--)
            p = strchr(p, ',') + 1;
        found =
            sscanf(p, "%255[^ ,] %255[^ ,] %7[0-9]", name, address, port) == 3;
    }
    return found;
}

static void try_next(struct findings *f, const unsigned ports[2], char *answer,
                     int index, char *to, size_t size)
{
    char name[256], address[256], port[8];
    const char *why;

    if (!find_next(answer, index, name, address, port)) {
        findings_add(f, FINDING_GOOD, "network", "srun's host can be reached");
        return;
    }
    why = try_place(address, port);
    if (!why) {
        findings_add(f, FINDING_GOOD, "network",
                     "srun's host and the next node's ports can be reached");
        return;
    }
    snprintf(to, size, "%s", name);
    findings_add(f, FINDING_BAD, "network",
                 "cannot reach another node at a port for MASTER_PORT: %s; let "
                 "nodes connect to each other's ports %u-%u",
                 why, ports[0], ports[1]);
}

static void meet_others(struct findings *f, struct plait_meeting_place *place,
                        int second, const unsigned ports[2], char *to,
                        size_t size)
{
    const char *rank = getenv("SLURM_PROCID"),
               *self = getenv("SLURMD_NODENAME");
    char *answer = malloc(PLAIT_MEETING_ANSWER), said[300];
    int port = 0, fd = listen_at(ports, &port), index = rank ? atoi(rank) : 0;
    struct plait_error err;

    snprintf(said, sizeof(said), "%.255s %d", self ? self : "?", port);
    if (!answer)
        findings_add(f, FINDING_UNCHECKED, "network", "out of memory");
    else if (plait_meeting_join(place, index, said, 4 * QUIET, answer, &err) <
             0)
        findings_add(f, FINDING_BAD, "network",
                     "cannot reach srun's host %.100s: %.250s; planned steps "
                     "need it: let nodes connect to its SrunPortRange",
                     place->host, err.text);
    else {
        try_next(f, ports, answer, index, to, size);
        place->port = second;
        plait_meeting_join(place, index, "tried", 4 * QUIET, answer, NULL);
    }
    if (fd < 0)
        findings_add(f, FINDING_BAD, "ports",
                     "no port from %u to %u is free for MASTER_PORT", ports[0],
                     ports[1]);
    else
        close(fd);
    free(answer);
}

void doctor_meet_join(struct findings *findings, char *to, size_t size)
{
    const char *value = getenv(VARIABLE),
               *host_name = getenv("SLURM_LAUNCH_NODE_IPADDR");
    struct plait_meeting_place place = {.patience = TRY};
    unsigned ports[2];
    int second;

    to[0] = '\0';
    if (!value)
        return;
    if (!host_name || sscanf(value, "%d %d %u %u %64s", &place.port, &second,
                             &ports[0], &ports[1], place.token) != 5) {
        findings_add(findings, FINDING_UNCHECKED, "network",
                     "whether srun's host can be reached: Slurm does not say "
                     "which host it is");
        return;
    }
    snprintf(place.host, sizeof(place.host), "%s", host_name);
    meet_others(findings, &place, second, ports, to, size);
}
