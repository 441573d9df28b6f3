/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "meeting_guest.h"
#include "tap.h"
#include "topology/base/clock.h"
#include "topology/start/meeting.h"
#include "topology/start/meeting_line.h"

/* What those can do who may not join a meeting, or have taken the place of its
 * host; and meetings in two parts, and of two versions. */

/* ---- attacks ---- */

static void close_inherited(int but)
{
    for (int fd = 3; fd < 64; fd++)
        if (fd != but)
            close(fd);
}

/* Run a meeting of one member with the token "known" in this process while
 * `attack` runs in a child, which ends with 0 if it has got nothing. The member
 * comes during the attack, or behind it. 1: the attack has got nothing, and the
 * member has heard the answer. */
static int holds(int (*attack)(int port), int behind)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(1, "known", NULL, &err);
    int port = plait_meeting_port(meeting), status[2] = {1, 1}, came, ends[2];
    pid_t pid[2];
    char byte;

    if (pipe(ends))
        perror("pipe");
    fflush(stdout);
    pid[0] = fork();
    if (pid[0] == 0) {
        close_inherited(ends[1]);
        _exit(attack(port));
    }
    close(ends[1]);
    pid[1] = fork();
    if (pid[1] == 0) {
        close_inherited(ends[0]);
        if (!behind || read(ends[0], &byte, 1) != 0)
            sleep(1);
        waitpid(come(port, 0, "a member", 60), &status[0], 0);
        _exit(status[0] != 0);
    }
    close(ends[0]);
    came = plait_meeting_wait(meeting, 60) == 1;
    plait_meeting_answer(meeting, "well");
    waitpid(pid[1], &status[1], 0);
    plait_meeting_destroy(meeting); /* ends the attack */
    waitpid(pid[0], &status[0], 0);
    if (!came || status[0] || status[1])
        diag("came %d, attack %d, member %d", came, status[0], status[1]);
    return came && status[0] == 0 && status[1] == 0;
}

/* 1,000 connections at a time that say nothing, and new ones for those that are
 * dropped. */
static int hold_many(int port)
{
    struct rlimit files = {4096, 4096};
    int fds[1000];
    char byte;

    setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < 1000; i++)
        fds[i] = dial(port);
    for (int turn = 0; turn < 2000; turn++)
        for (int i = 0; i < 1000; i++)
            if (fds[i] < 0 || recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0) {
                if (fds[i] >= 0)
                    close(fds[i]);
                fds[i] = dial(port);
                if (fds[i] < 0)
                    return 0; /* the meeting has ended */
            }
    return 0;
}

/* What gets no more than the greeting, whatever is sent behind it. */
static int send_wrong(int port)
{
    static const char *const lines[] = {
        "\n",
        "member 0\n",
        "plait other 0 a member\n",
        "member -1 00000000000000000000000000000000 "
        "0000000000000000000000000000000000000000000000000000000000000000 x\n",
        "member 99 00000000000000000000000000000000 "
        "0000000000000000000000000000000000000000000000000000000000000000 x\n",
        "member 0 00000000000000000000000000000000 "
        "0000000000000000000000000000000000000000000000000000000000000000 x\n"};
    static char huge[100000];
    char line[256];
    int got = 0, fd;

    memset(huge, 'x', sizeof(huge));
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) + 2; i++) {
        const char *text = huge;
        size_t size = sizeof(huge);

        if (i < sizeof(lines) / sizeof(lines[0])) {
            text = lines[i];
            size = strlen(text);
        }
        fd = dial(port);
        if (fd < 0 || read_line(fd, line, sizeof(line)) < 0)
            return 2;
        if (i == sizeof(lines) / sizeof(lines[0]) + 1)
            size = 40; /* cut */
        for (size_t at = 0; at < size;) {
            ssize_t n = send(fd, text + at, size - at, MSG_NOSIGNAL);

            if (n <= 0)
                break;
            at += (size_t)n;
        }
        shutdown(fd, SHUT_WR);
        got += read_line(fd, line, sizeof(line)) >= 0;
        close(fd);
    }
    return got != 0;
}

/* A whole proof, but of another connection; and a proof by the right token with
 * another text, index or role. */
static int replay(int port)
{
    struct plait_meeting_talk talk = {.index = 0, .member = "0"};
    char line[256], first[33], proof[PLAIT_MEETING_PROOF];
    int got = 0;

    memset(talk.member, '0', sizeof(talk.member) - 1);
    for (int i = 0; i < 4; i++) {
        int fd = dial(port);

        if (fd < 0 || read_line(fd, line, sizeof(line)) < 0 ||
            plait_meeting_parse_hello(line, talk.host) < 0)
            return 2;
        if (i == 0)
            memcpy(first, talk.host, sizeof(first));
        if (i == 1)
            memcpy(talk.host, first, sizeof(first));
        plait_meeting_prove(i ? "known" : "unknown",
                            i == 2 ? "welcome" : "member", &talk,
                            i == 3 ? "another" : "text", proof);
        dprintf(fd, "member 0 %s %s text\n", talk.member, proof);
        got += read_line(fd, line, sizeof(line)) >= 0;
        close(fd);
    }
    return got != 0;
}

/* Half a line, and then nothing for as long as it is let. */
static int stay_silent(int port)
{
    int fds[200];
    char line[256];

    for (int i = 0; i < 200; i++) {
        fds[i] = dial(port);
        if (fds[i] < 0 || read_line(fds[i], line, sizeof(line)) < 0 ||
            send(fds[i], "member 0 0000", 13, MSG_NOSIGNAL) < 0)
            return 2;
    }
    return read_line(fds[0], line, sizeof(line)) >= 0;
}

static void check_attacks(void)
{
    ok(holds(hold_many, 0), "1,000 connections and more keep no member out");
    ok(holds(send_wrong, 1), "wrong, cut and huge lines get no answer");
    ok(holds(replay, 1), "nor does the proof of another connection");
    ok(holds(stay_silent, 0), "half a line keeps no member out");
}

/* How long a wrong proof takes until it is dropped does not tell how much of it
 * was right. */
/* No line is dropped before its end: each byte of a wrong proof is taken. */
static void check_guessing(void)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(1, "known", NULL, &err);
    char line[256], byte;
    int early = 0, late = 0;
    pthread_t thread;

    pthread_create(&thread, NULL, wait_long, meeting);
    for (int i = 0; i < 20; i++) {
        int fd = dial(plait_meeting_port(meeting));
        struct pollfd one = {.fd = fd, .events = POLLIN};
        int64_t begin;

        read_line(fd, line, sizeof(line));
        /* Wrong from the first byte on, or in none of the first 100. */
        snprintf(line, sizeof(line), "%s 0 %032d %064d",
                 i % 2 ? "member" : "xxxxxx", 0, 0);
        for (char *at = line; *at; at++)
            send(fd, at, 1, MSG_NOSIGNAL);
        early += poll(&one, 1, 50) > 0;
        begin = (int64_t)plait_clock_ns();
        send(fd, " \n", 2, MSG_NOSIGNAL);
        late += recv(fd, &byte, 1, 0) != 0 ||
                (int64_t)plait_clock_ns() - begin > 5000000000;
        close(fd);
    }
    ok(!early && !late,
       "%d of 20 wrong lines are dropped before their end, %d "
       "stay after it",
       early, late);
    plait_meeting_cancel(meeting);
    pthread_join(thread, NULL);
    plait_meeting_destroy(meeting);
}

/* ---- what has taken the host's port ---- */

/* A process that listens in the host's place. It sends `lines` after a
 * greeting, and ends with 1 if what it hears has the token in it. */
static pid_t pose(int *port, const char *lines)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    /* As far as one knows who has no token. */
    static const char forged[] =
        "welcome 0000000000000000000000000000000000000000000000000000"
        "000000000000\nanswer 00000000000000000000000000000000000000"
        "00000000000000000000000000 go 1\n";
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
    char text[4096];
    ssize_t n;
    pid_t pid;

    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 9) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        perror("a listener");
    *port = ntohs(at.sin_port);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        fd = accept(listener, NULL, NULL);
        close(listener);
        send(fd, lines, strlen(lines), MSG_NOSIGNAL);
        n = recv(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        if (n > 0)
            send(fd, forged, strlen(forged), MSG_NOSIGNAL);
        _exit(strstr(text, "known") != NULL);
    }
    close(listener);
    return pid;
}

static void check_posers(void)
{
    static const char *const lines[] = {
        "plait-meeting 2 00000000000000000000000000000000\n", "go 1\n",
        "SSH-2.0-server\r\n",
        "\n\nplait-meeting 2 00000000000000000000000000000000\n\nwelcome "
        "0000000000000000000000000000000000000000000000000000000000000000\n",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    static char said[PLAIT_MEETING_ANSWER];
    struct plait_error err;
    int status;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct plait_meeting_place place = {
            .host = "127.0.0.1", .token = "known", .patience = 30};
        pid_t pid = pose(&place.port, lines[i]);
        int rc = plait_meeting_join(&place, 0, "text", 30, said, &err);

        ok(rc < 0 && errno == EPROTO, "what poses as the host, %zu: %s", i,
           err.text);
        waitpid(pid, &status, 0);
        ok(status == 0, "... and does not see the token");
    }
}

/* Signs of life alone do not make a host. */
static void check_no_welcome(void)
{
    struct plait_meeting_place place = {
        .host = "127.0.0.1", .token = "known", .quiet = 1};
    static char said[PLAIT_MEETING_ANSWER];
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
    struct plait_error err;
    int64_t begin;
    pid_t pid;

    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 9) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        perror("a listener");
    place.port = ntohs(at.sin_port);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        fd = accept(listener, NULL, NULL);
        for (int i = 0; i < 200; i++) {
            send(fd, "\n", 1, MSG_NOSIGNAL);
            usleep(100000);
        }
        _exit(0);
    }
    begin = (int64_t)plait_clock_ns();
    ok(plait_meeting_join(&place, 0, "", 60, said, &err) < 0 &&
           (int64_t)plait_clock_ns() - begin < 10000000000,
       "signs of life without a welcome: %s", err.text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(listener);
}

/* ---- in two parts ---- */

/* The pid of a process that ends with 0 if it hears "well" from the host that
 * `fd` was called at; closes fd here. */
static pid_t hear_well(struct plait_meeting_place *place, int fd)
{
    static char said[PLAIT_MEETING_ANSWER];
    struct plait_error err;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(plait_meeting_hear(place, fd, 30, said, &err) < 0 ||
              strcmp(said, "well") != 0);
    close(fd);
    return pid;
}

/* In two parts: connect while the host does not run, and fork before the rest;
 * a connection that the host has dropped meanwhile is made again. */
static void check_call(int drops)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(1, "known", NULL, &err);
    struct plait_meeting_place place = {.host = "127.0.0.1", .token = "known"};
    int fd, status = 1;
    pid_t pid;

    place.port = plait_meeting_port(meeting);
    fd = plait_meeting_call(&place, 0, "a member", 1, &err);
    ok(fd >= 0 && !place.proved,
       "a member connects to a host that does not look yet");
    if (drops)
        shutdown(fd, SHUT_RDWR);
    pid = hear_well(&place, fd);
    ok(plait_meeting_wait(meeting, 30) == 1 &&
           strcmp(plait_meeting_said(meeting, 0), "a member") == 0,
       "... and its child joins");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... and hears the answer");
    plait_meeting_destroy(meeting);
}

/* A host that runs knows the member's text before that hears the answer. */
static void check_call_greeted(void)
{
    struct plait_meeting_place place = {.host = "127.0.0.1", .token = "known"};
    struct plait_meeting *meeting;
    struct plait_error err;
    int fd, status = 1;
    pthread_t thread;
    pid_t pid;

    meeting = plait_meeting_create(1, "known", NULL, &err);
    place.port = plait_meeting_port(meeting);
    pthread_create(&thread, NULL, wait_long, meeting);
    fd = plait_meeting_call(&place, 0, "a member", 60, &err);
    ok(fd >= 0 && place.proved, "a member calls a host that looks");
    pthread_join(thread, NULL);
    ok(plait_meeting_said(meeting, 0) &&
           strcmp(plait_meeting_said(meeting, 0), "a member") == 0,
       "... which knows at once what it says");
    pid = hear_well(&place, fd);
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... and its child hears the answer");
    plait_meeting_destroy(meeting);
}

/* ---- versions ---- */

static void check_versions(void)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(3, "0123abcd", NULL, &err);
    struct plait_meeting_place place = {.host = "127.0.0.1",
                                        .token = "0123abcd"};
    char line[256];
    int port = plait_meeting_port(meeting), fd;

    fd = dial(port);
    dprintf(fd, "plait 0123abce 1 ok 0 \n");
    ok(plait_meeting_wait(meeting, 1) == 0 && plait_meeting_old(meeting) < 0,
       "an older member without the token does not count");
    close(fd);
    fd = dial(port);
    dprintf(fd, "plait 0123abcd 2 ok 0 \n");
    ok(plait_meeting_wait(meeting, 10) < 0 && errno == EPROTO &&
           plait_meeting_old(meeting) == 2,
       "a member of an older version is told of at once");
    ok(read_line(fd, line, sizeof(line)) >= 0 && strncmp(line, "go", 2) != 0,
       "... and does not take the greeting for a go: %s", line);
    close(fd);
    ok(plait_meeting_wait(meeting, 1) == 0, "... once");
    plait_meeting_destroy(meeting);

    fflush(stdout);
    {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(at);
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        pid_t pid;

        if (bind(listener, (struct sockaddr *)&at, size) ||
            listen(listener, 9) ||
            getsockname(listener, (struct sockaddr *)&at, &size))
            perror("a listener");
        place.port = ntohs(at.sin_port);
        pid = fork();
        if (pid == 0) {
            plait_meeting_refuse_old(&place, 3, "no 0 why");
            _exit(0);
        }
        fd = accept(listener, NULL, NULL);
        read_line(fd, line, sizeof(line));
        ok(strcmp(line, "plait 0123abcd 3 no 0 why") == 0,
           "a host of an older version is told why: %s", line);
        dprintf(fd, "stop\n");
        close(fd);
        close(listener);
        waitpid(pid, NULL, 0);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    check_attacks();
    check_guessing();
    check_posers();
    check_no_welcome();
    check_call(0);
    check_call(1);
    check_call_greeted();
    check_versions();
    return done_testing();
}
