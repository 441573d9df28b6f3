/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/train/watchdog/unanswered.h"
#include "tap.h"

/* Connections of this process to itself, over a link in its own network
 * namespace that is cut. */

enum { FULL = 8 << 20, PATIENCE = 200 };

static int set_link(bool up)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP : 0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    int rc = fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &lo);

    close(fd);
    return rc;
}

static int connect_pair(int pair[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int port = socket(AF_INET, SOCK_STREAM, 0);

    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (port < 0 || pair[0] < 0 ||
        bind(port, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        listen(port, 1) < 0 ||
        getsockname(port, (struct sockaddr *)&at, &size) < 0 ||
        connect(pair[0], (struct sockaddr *)&at, sizeof(at)) < 0)
        return -1;
    pair[1] = accept(port, NULL, NULL);
    close(port);
    return pair[1] < 0 ? -1 : 0;
}

static int count_within(int tenths, int n)
{
    int found = plait_unanswered_connections();

    while (tenths-- > 0 && found < n) {
        usleep(100000);
        found = plait_unanswered_connections();
    }
    return found;
}

int main(void)
{
    static char full[FULL];
    int quiet[2], unread[2], cut[2];

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 || set_link(true) < 0) {
        skip("namespaces are not permitted here");
        return done_testing();
    }
    if (!ok(connect_pair(quiet) == 0 && connect_pair(unread) == 0 &&
                connect_pair(cut) == 0,
            "connections"))
        return done_testing();
    ok(send(unread[0], full, FULL, MSG_DONTWAIT) > 0 &&
           count_within(20, 1) == 0,
       "what is sent and not read is acknowledged");
    ok(send(cut[0], full, 1, 0) == 1 && set_link(false) == 0 &&
           send(cut[0], full, 1, 0) == 1 && count_within(PATIENCE, 1) >= 1,
       "what is sent into a link that is down is not");
    ok(set_link(true) == 0, "the link is up");
    for (int i = 0; i < PATIENCE && plait_unanswered_connections() > 0; i++)
        usleep(100000);
    ok(plait_unanswered_connections() == 0, "and it is acknowledged");
    return done_testing();
}
