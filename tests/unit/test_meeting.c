/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "meeting_guest.h"
#include "tap.h"
#include "topology/start/meeting.h"
#include "topology/start/meeting_here.h"

/* Who may join a meeting, and who has left it. */

/* Has the other side closed it, after the greeting? */
static int is_dropped(int fd)
{
    char line[256];

    return read_line(fd, line, sizeof(line)) < 0 ||
           read_line(fd, line, sizeof(line)) < 0;
}

static int check_said(void *arg, int index, const char *text,
                      char token[PLAIT_MEETING_TOKEN])
{
    (void)arg;
    strcpy(token, "known");
    return index == 1 && strcmp(text, "a member") == 0;
}

/* On one machine, where a name serves as well as a port. Connections that send
 * nothing are dropped, the oldest first. */
static void check_here(void)
{
    struct plait_meeting_place place = {.token = "known", .patience = 60};
    struct plait_meeting *meeting;
    struct plait_error err;
    static char said[PLAIT_MEETING_ANSWER];
    int status = 1, held[1100];
    pid_t pid;

    snprintf(place.here, sizeof(place.here), "plait-test-%d", (int)getpid());
    meeting = plait_meeting_create_here(1, "known", place.here, &err);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        struct sockaddr_un at;
        socklen_t size = plait_meeting_address(place.here, &at);

        for (int i = 0; i < 1100; i++) {
            held[i] = socket(AF_UNIX, SOCK_STREAM, 0);
            if (connect(held[i], (struct sockaddr *)&at, size) < 0)
                _exit(2);
        }
        _exit(plait_meeting_join(&place, 0, "", 60, said, &err) < 0 ||
              strcmp(said, "well") != 0 || !is_dropped(held[0]));
    }
    ok(meeting && plait_meeting_wait(meeting, 60) == 1,
       "a member comes behind 1,100 silent guests");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... hears the answer, and the oldest guest has gone");
    plait_meeting_destroy(meeting);
    place.patience = 0;
    ok(plait_meeting_join(&place, 0, "", 1, said, &err) < 0,
       "nobody is there: %s", err.text);
}

static void check_strangers(void)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(2, "known", NULL, &err);
    int port = plait_meeting_port(meeting), status[2];
    pid_t pid[2];

    plait_meeting_check(meeting, check_said, NULL);
    fflush(stdout);
    pid[0] = come(port, 0, "a member", 1);
    ok(plait_meeting_wait(meeting, 1) == 0 && !plait_meeting_said(meeting, 0),
       "who does not pass the check is no member");
    waitpid(pid[0], &status[0], 0);
    ok(status[0] != 0, "... and hears nothing");
    pid[1] = come(port, 1, "a member", 60);
    ok(has_come(meeting, 1), "who does, is");
    plait_meeting_close(meeting);
    waitpid(come(port, 1, "a member", 60), &status[0], 0);
    ok(status[0] != 0, "after the close nobody can come");
    plait_meeting_answer(meeting, "well");
    plait_meeting_part(meeting, 60);
    waitpid(pid[1], &status[1], 0);
    ok(status[1] == 0, "the member hears the answer");
    plait_meeting_destroy(meeting);
}

/* A member gives up a host that sends nothing, but waits for one that gives
 * signs of life. */
static void check_quiet(void)
{
    static char said[PLAIT_MEETING_ANSWER];
    struct plait_meeting *meetings[2];
    struct plait_error err;
    int status[2] = {1, 1}, count = 9;
    pid_t pid[2];

    for (int i = 0; i < 2; i++) {
        struct plait_meeting_place place = {
            .host = "127.0.0.1", .token = "known", .quiet = 3};

        meetings[i] = plait_meeting_create(1 + !i, "known", NULL, &err);
        ok(!i || plait_meeting_keep(meetings[i], 1) == 0, "a host");
        place.port = plait_meeting_port(meetings[i]);
        fflush(stdout);
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(i ? plait_meeting_join(&place, 0, "", 60, said, &err) < 0 ||
                          strcmp(said, "well") != 0
                    : plait_meeting_join(&place, 0, "", 60, said, &err) == 0 ||
                          errno != ETIME);
    }
    ok(has_come(meetings[0], 0) && has_come(meetings[1], 0), "members come");
    waitpid(pid[0], &status[0], 0);
    ok(status[0] == 0, "one gives up a host without signs of life");
    ok(plait_meeting_left(meetings[0], &count) == 0 && count == 1,
       "the host knows which member has left");
    sleep(1); /* the other one came at the same time */
    ok(plait_meeting_left(meetings[1], &count) < 0 && count == 0,
       "the other stays while there are signs");
    plait_meeting_answer(meetings[1], "well");
    waitpid(pid[1], &status[1], 0);
    ok(status[1] == 0, "... which are no answer");
    plait_meeting_destroy(meetings[0]);
    plait_meeting_destroy(meetings[1]);
}

/* A host that was stopped before it greeted a member learns that it has left,
 * and from nobody who does not know the token. */
static void check_left(void)
{
    static const char *const tokens[] = {"unknown", "known"};
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(3, "known", NULL, &err);
    static char said[PLAIT_MEETING_ANSWER];
    int status[2] = {1, 1}, count = 0;
    pid_t pid[2];

    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        struct plait_meeting_place place = {.host = "127.0.0.1",
                                            .quiet = 1,
                                            .port =
                                                plait_meeting_port(meeting)};

        strcpy(place.token, tokens[i]);
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(plait_meeting_join(&place, i, "", 60, said, &err) == 0 ||
                  errno != ETIME);
    }
    for (int i = 0; i < 2; i++)
        waitpid(pid[i], &status[i], 0);
    ok(!status[0] && !status[1], "members give up a host that does not greet");
    ok(plait_meeting_wait(meeting, 1) == 0 && !plait_meeting_said(meeting, 1) &&
           plait_meeting_left(meeting, &count) == 1 && count == 1 &&
           plait_meeting_gave_up(meeting, 1),
       "... which learns that they have left");
    ok(!plait_meeting_gave_up(meeting, 0), "... of those that know the token");
    plait_meeting_destroy(meeting);
}

/* A member finds the host at another of its ports, behind ports that are held
 * by processes which say nothing. */
static void check_ports(void)
{
    enum { PORTS = 8 };
    int ports[PORTS], fds[PORTS - 1], status = 1;
    struct plait_meeting_place place = {
        .host = "127.0.0.1", .token = "known", .patience = 30};
    static char said[PLAIT_MEETING_ANSWER];
    struct plait_meeting *meeting;
    struct plait_error err;
    pid_t pid;

    for (int i = 0; i < PORTS; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET};
        socklen_t size = sizeof(at);
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (bind(fd, (struct sockaddr *)&at, size) ||
            getsockname(fd, (struct sockaddr *)&at, &size))
            perror("a port");
        ports[i] = ntohs(at.sin_port);
        if (i == PORTS - 1) {
            close(fd);
            break;
        }
        fds[i] = fd;
        if (i % 2)
            listen(fd, 9);
    }
    meeting = plait_meeting_create_at(1, "known", ports, PORTS, &err);
    ok(meeting && plait_meeting_port(meeting) == ports[PORTS - 1],
       "a host takes the first port that is free");
    place.port = ports[0];
    place.others = ports + 1;
    place.nothers = PORTS - 1;
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(plait_meeting_join(&place, 0, "", 60, said, &err) < 0 ||
              strcmp(said, "well") != 0);
    ok(meeting && plait_meeting_wait(meeting, 30) == 1,
       "a member finds it behind ports that others hold");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... and hears the answer");
    plait_meeting_destroy(meeting);
    for (int i = 0; i < PORTS - 1; i++)
        close(fds[i]);
}

/* Another user has taken the socket's name on this machine. */
static void check_taken_name(void)
{
    struct plait_meeting_place place = {.token = "known", .patience = 30};
    static char said[PLAIT_MEETING_ANSWER];
    struct plait_meeting *meeting;
    struct plait_error err;
    struct sockaddr_un at;
    socklen_t size;
    int ready[2], status = 1;
    pid_t other, pid;
    char byte;

    if (geteuid() != 0) {
        skip("only root can be another user");
        return;
    }
    snprintf(place.here, sizeof(place.here), "plait-test-x%d", (int)getpid());
    size = plait_meeting_address(place.here, &at);
    if (pipe(ready))
        perror("pipe");
    fflush(stdout);
    other = fork();
    if (other == 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        if (setuid(65534) || bind(fd, (struct sockaddr *)&at, size) ||
            listen(fd, 1))
            _exit(1);
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        perror("another user");
    meeting = plait_meeting_create_here(1, "known", place.here, &err);
    ok(meeting != NULL, "a taken name does not keep a host from listening");
    pid = fork();
    if (pid == 0)
        _exit(plait_meeting_join(&place, 0, "", 60, said, &err) < 0 ||
              strcmp(said, "well") != 0);
    ok(meeting && plait_meeting_wait(meeting, 30) == 1,
       "... nor a member from finding it");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... and hearing its answer");
    plait_meeting_destroy(meeting);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    ok(plait_meeting_parse_socket("0: 2 0 1 1 1 7 @name-0123456789abcdef\n",
                                  "name", said) == 0 &&
           strcmp(said, "name-0123456789abcdef") == 0 &&
           plait_meeting_parse_socket("0: 7 @name-01\n", "name", said) < 0 &&
           plait_meeting_parse_socket("0: 7 name\n", "name", said) < 0 &&
           plait_meeting_parse_socket("\n", "name", said) < 0,
       "the system's list of sockets is read");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    check_strangers();
    check_here();
    check_quiet();
    check_left();
    check_ports();
    check_taken_name();
    return done_testing();
}
