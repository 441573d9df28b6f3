/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_SOCKET_LAUNCH_H
#define PLAIT_TESTS_UNIT_SOCKET_LAUNCH_H

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/rendezvous.h"
#include "topology/layout/launch.h"

/* A port that was free a moment ago. */
static inline int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        abort();
    close(fd);
    return ntohs(a.sin_port);
}

/* The test's process; its children are ranks of the same job. Another test at
 * the same port has another job. */
static pid_t test_process;

static void __attribute__((constructor)) note_process(void)
{
    test_process = getpid();
}

/* What a rank on this machine finds in its environment. */
static inline struct plait_launch launch_at(int rank, int world_size, int port)
{
    struct plait_launch l = {
        .rank = rank, .world_size = world_size, .master_port = port};

    strcpy(l.master_addr, "localhost");
    snprintf(l.jobid, sizeof(l.jobid), "%d.0", (int)test_process);
    strcpy(l.secret, "00112233445566778899aabbccddeeff");
    return l;
}

/* If another process takes the port before RANK 0 listens there, RANK 0 takes
 * one of the next ports. */
static inline struct plait_launch launch_of(int rank, int world_size)
{
    int port = 0, fd = plait_rendezvous_listen(&port);

    close(fd);
    return launch_at(rank, world_size, port);
}

#endif
