/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a node get a dataset's open files from their first one. Another
 * process that has filled the queue of its socket does not keep them waiting:
 * they open the files themselves. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/data/data.h"
#include "tap.h"
#include "tcp_ranks.h"
#include "temp_path.h"

enum { RANKS = 3, TOKENS = 4096, WITHIN_S = 20 };

static char data[TEMP_PATH];
static bool filled;

/* Connects to the socket until its queue is full. */
static void fill_queue(int listener)
{
    struct sockaddr_un name;
    socklen_t n = sizeof(name);
    int fd;

    if (getsockname(listener, (struct sockaddr *)&name, &n) < 0 ||
        name.sun_family != AF_UNIX)
        return;
    do
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    while (fd >= 0 && connect(fd, (struct sockaddr *)&name, n) == 0);
    if (errno != EAGAIN)
        abort();
}

/* In place of libc's: strangers come as soon as somebody listens. */
int listen(int fd, int backlog)
{
    int rc = (int)syscall(SYS_listen, fd, backlog);

    if (rc == 0 && filled)
        fill_queue(fd);
    return rc;
}

static int run_rank(const struct plait_launch *launch, void *arg)
{
    struct plait_error err = {""};
    struct plait_comm *world;
    struct plait_dataset *ds = NULL;
    int rc = 1;

    (void)arg;
    alarm(WITHIN_S);
    world = plait_tcp_create(launch, 60, &err);
    if (world)
        ds = plait_dataset_open(data, PLAIT_DATA_LLMC, world, 1, &err);
    if (ds)
        rc = plait_dataset_tokens(ds) == TOKENS ? 0 : 2;
    else
        diag("rank %d: %s", launch->rank, err.text);
    plait_dataset_destroy(ds);
    plait_comm_destroy(world);
    return rc;
}

/* llm.c's format: 256 int32 of header, tokens of 16 bits. */
static void write_tokens(void)
{
    const int32_t head[256] = {20240520, 1, TOKENS};
    const uint16_t tokens[TOKENS] = {0};
    int fd = mkstemp(temp_path(data, "share"));

    if (fd < 0 || write(fd, head, sizeof(head)) != sizeof(head) ||
        write(fd, tokens, sizeof(tokens)) != sizeof(tokens))
        exit(1);
    close(fd);
}

int main(void)
{
    write_tokens();
    ok(run_processes(RANKS, run_rank, NULL) == 0,
       "ranks of a node get the files from the first");
    filled = true;
    ok(run_processes(RANKS, run_rank, NULL) == 0,
       "and open them themselves where the queue of its socket is full");
    unlink(data);
    return done_testing();
}
