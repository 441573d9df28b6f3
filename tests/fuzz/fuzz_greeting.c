/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/bootstrap/notice.h"

/* The first bytes that any process can send to a rank's port, over a real
 * socket, in two parts. The seal of the corpus is by the secret of this file,
 * so that the reader gets further than a stranger would; without the right seal
 * nothing is accepted. */

static const char secret[] = "00112233445566778899aabbccddeeff";
static const char other[] = "ffeeddccbbaa99887766554433221100";

static void count_stopped(void *arg, int rank)
{
    if (rank < 0 || rank > 3)
        __builtin_trap();
    ++*(int *)arg;
}

/* The greatest result, or -1. *told: notices that were believed. */
static int hear(const uint8_t *data, size_t size, const char *key, int *told)
{
    uint64_t ids[4] = {0x0101010101010101}, newest[4] = {0};
    struct plait_rendezvous m = {.size = 4,
                                 .key = 5,
                                 .ids = ids,
                                 .newest = newest,
                                 .stopped = count_stopped,
                                 .arg = told};
    struct plait_greeting g = {.got = 0};
    size_t part[2] = {size / 3, size - size / 3};
    int fd[2], heard = 0, most = -1;

    *told = 0;
    strcpy(m.secret, key);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0)
        return -1;
    for (int i = 0; i < 2 && heard >= 0; i++) {
        if (part[i] && send(fd[0], data, part[i], MSG_NOSIGNAL) < 0)
            break;
        data += part[i];
        do {
            heard = plait_greeting_hear(&g, &m, fd[1]);
            if (heard == 1 &&
                (g.hello.rank > 3 || plait_greeting_reply(&g, &m, fd[1]) < 0))
                __builtin_trap();
            most = heard > most ? heard : most;
        } while (heard == 1);
        if (heard == PLAIT_GREETING_NOTICE &&
            plait_notice_take(&m, &g.hello, g.seal))
            ++*told;
        if (heard > 1)
            break;
    }
    close(fd[0]);
    close(fd[1]);
    return most;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int told, heard;

    hear(data, size, secret, &told);
    heard = hear(data, size, other, &told);
    /* A proof of the past is none. */
    if (heard == 1 || heard == 2 || told > 0)
        __builtin_trap();
    return 0;
}
