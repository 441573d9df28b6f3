/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_TCP_RANKS_H
#define PLAIT_TESTS_UNIT_TCP_RANKS_H

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/rendezvous.h"
#include "topology/layout/launch.h"

/* Runs n processes that can meet with plait_tcp_create(); each calls
 * run_rank(), which returns 0 for success. Returns how many failed. */
static int run_processes(int n,
                         int (*run_rank)(const struct plait_launch *launch,
                                         void *arg),
                         void *arg)
{
    struct plait_launch launch = {.world_size = n};
    int port = 0, fd = plait_rendezvous_listen(&port), status, failed = 0;

    close(fd);
    launch.master_port = port;
    strcpy(launch.master_addr, "localhost");
    strcpy(launch.jobid, "9.0");
    fflush(stdout);
    for (launch.rank = 0; launch.rank < n; launch.rank++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(run_rank(&launch, arg));
        failed += pid < 0;
    }
    while (wait(&status) > 0)
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return failed;
}

#endif
