/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tap.h"
#include "topology/start/meeting.h"
#include "topology/start/meeting_here.h"
#include "topology/start/meeting_line.h"

/* Who may join a meeting, and what those can do who may not. */

/* Read up to a line end; the line's length without it, -1: the connection has
 * ended. */
static int read_line(int fd, char *line, size_t size)
{
    size_t used = 0;

    while (used < size - 1 && recv(fd, line + used, 1, 0) == 1) {
        if (line[used] == '\n') {
            line[used] = '\0';
            return (int)used;
        }
        used++;
    }
    return -1;
}

/* Has the other side closed it, after the greeting? */
static int is_dropped(int fd)
{
    char line[256];

    return read_line(fd, line, sizeof(line)) < 0 ||
           read_line(fd, line, sizeof(line)) < 0;
}

static int dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval most = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int check_said(void *arg, int index, const char *text,
                      char token[PLAIT_MEETING_TOKEN])
{
    (void)arg;
    strcpy(token, "known");
    return index == 1 && strcmp(text, "a member") == 0;
}

/* Joins a meeting in a child process, which ends with 0 if the answer is
 * "well". */
static pid_t come(int port, int index, const char *text)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct plait_meeting_place place = {
            .host = "127.0.0.1", .token = "known", .port = port};
        char *answer = malloc(PLAIT_MEETING_ANSWER);
        struct plait_error err;

        for (int fd = 3; fd < 64; fd++) /* do not keep the listener open */
            close(fd);
        _exit(!answer ||
              plait_meeting_join(&place, index, text, 60, answer, &err) < 0 ||
              strcmp(answer, "well") != 0);
    }
    return pid;
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
    pid[0] = come(port, 0, "a member");
    ok(plait_meeting_wait(meeting, 1) == 0 && !plait_meeting_said(meeting, 0),
       "who does not pass the check is no member");
    waitpid(pid[0], &status[0], 0);
    ok(status[0] != 0, "... and hears nothing");
    pid[1] = come(port, 1, "a member");
    ok(plait_meeting_wait(meeting, 5) == 0 && plait_meeting_said(meeting, 1),
       "who does, is");
    plait_meeting_close(meeting);
    waitpid(come(port, 1, "a member"), &status[0], 0);
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
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(2, "known", NULL, &err);
    struct plait_meeting_place place = {
        .host = "127.0.0.1", .token = "known", .quiet = 3};
    static char said[PLAIT_MEETING_ANSWER];
    int status = 1, count = 9;
    pid_t pid;

    place.port = plait_meeting_port(meeting);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(plait_meeting_join(&place, 0, "", 60, said, &err) == 0 ||
              errno != ETIME);
    ok(plait_meeting_wait(meeting, 2) == 0 && plait_meeting_said(meeting, 0),
       "a member comes");
    waitpid(pid, &status, 0);
    ok(status == 0, "... and gives up a host without signs of life");
    ok(plait_meeting_keep(meeting, 1) == 0 &&
           plait_meeting_left(meeting, &count) == 0 && count == 1,
       "the host knows which member has left");
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(plait_meeting_join(&place, 1, "", 60, said, &err) < 0 ||
              strcmp(said, "well") != 0);
    ok(plait_meeting_wait(meeting, 60) == 1, "a member comes");
    sleep(6);
    ok(plait_meeting_left(meeting, &count) == 0 && count == 1,
       "... and stays while there are signs");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... which are no answer");
    plait_meeting_destroy(meeting);
}

/* In two parts: connect while the host does not run, and fork before the rest;
 * a connection that the host has dropped meanwhile is made again. */
static void check_call(int drops)
{
    struct plait_error err;
    struct plait_meeting *meeting =
        plait_meeting_create(1, "known", NULL, &err);
    struct plait_meeting_place place = {.host = "127.0.0.1", .token = "known"};
    static char said[PLAIT_MEETING_ANSWER];
    int fd, status = 1;
    pid_t pid;

    place.port = plait_meeting_port(meeting);
    fd = plait_meeting_call(&place, 0, "a member", 10, &err);
    ok(fd >= 0, "a member connects to a host that does not look yet");
    if (drops)
        shutdown(fd, SHUT_RDWR);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(plait_meeting_hear(&place, fd, 30, said, &err) < 0 ||
              strcmp(said, "well") != 0);
    close(fd);
    ok(plait_meeting_wait(meeting, 30) == 1 &&
           strcmp(plait_meeting_said(meeting, 0), "a member") == 0,
       "... and its child joins");
    plait_meeting_answer(meeting, "well");
    waitpid(pid, &status, 0);
    ok(status == 0, "... and hears the answer");
    plait_meeting_destroy(meeting);
}

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
        waitpid(come(port, 0, "a member"), &status[0], 0);
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
static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *wait_long(void *meeting)
{
    plait_meeting_wait(meeting, 60);
    return NULL;
}

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
        begin = now_ns();
        send(fd, " \n", 2, MSG_NOSIGNAL);
        late += recv(fd, &byte, 1, 0) != 0 || now_ns() - begin > 5000000000;
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
        if (n > 0) /* as far as it knows */
            send(fd,
                 "welcome 0000000000000000000000000000000000000000000000000000"
                 "000000000000\nanswer 00000000000000000000000000000000000000"
                 "00000000000000000000000000 go 1\n",
                 160, MSG_NOSIGNAL);
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
        .host = "127.0.0.1", .token = "known", .quiet = 2};
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
    begin = now_ns();
    ok(plait_meeting_join(&place, 0, "", 60, said, &err) < 0 &&
           now_ns() - begin < 10000000000,
       "signs of life without a welcome: %s", err.text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(listener);
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
    check_strangers();
    check_here();
    check_quiet();
    check_call(0);
    check_call(1);
    check_attacks();
    check_guessing();
    check_posers();
    check_no_welcome();
    check_ports();
    check_taken_name();
    check_versions();
    return done_testing();
}
