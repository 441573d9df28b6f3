/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/data/dataset.h"
#include "runtime/data/segments.h"

/* What a rank gets from the first one of its node: messages with an open file
 * each. A message begins with a byte: its size divided by 4, or 0 for one
 * without a file. */

static size_t send_message(int fd, int file, const uint8_t *data, size_t size)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    size_t n = size - 1 < data[0] * 4u ? size - 1 : data[0] * 4u;
    struct iovec part = {(void *)(data + 1), n};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *c = &control.align;

    if (data[0]) {
        m.msg_control = control.room;
        m.msg_controllen = sizeof(control.room);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(file));
        memcpy(CMSG_DATA(c), &file, sizeof(file));
    }
    if (sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return size;
    return 1 + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_dataset *ds;
    struct plait_error err = {""};
    int fd[2], file = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (file < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd) < 0)
        return 0;
    while (size > 0) {
        size_t n = send_message(fd[0], file, data, size);

        data += n;
        size -= n;
    }
    close(fd[0]);
    ds = plait_segments_receive(fd[1], "tokens", &err);
    if (!ds && !err.text[0])
        __builtin_trap();
    plait_dataset_destroy(ds);
    close(fd[1]);
    close(file);
    return 0;
}
