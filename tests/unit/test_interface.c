/* SPDX-License-Identifier: Apache-2.0 */
/* The interface over which ranks meet, which NCCL is told. */
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/interface.h"
#include "tap.h"

/* Every address of this machine is found on the interface that has it. */
static void test_own(void)
{
    struct ifaddrs *list;
    char host[128], name[64];
    int n = 0, good = 1;

    if (getifaddrs(&list) < 0) {
        skip("no list of interfaces");
        return;
    }
    for (struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET ||
            getnameinfo(at->ifa_addr, sizeof(struct sockaddr_in), host,
                        sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
            continue;
        n++;
        if (plait_interface_towards(host, name, sizeof(name)) < 0 ||
            strcmp(name, at->ifa_name) != 0) {
            diag("%s is of %s, not of %s", host, at->ifa_name, name);
            good = 0;
        }
    }
    freeifaddrs(list);
    ok(good && n > 0, "the interfaces of %d addresses", n);
}

/* What is in a file of NCCL's counts as chosen, but for a comment. */
static void test_chosen(void)
{
    static const char *const lines[] = {
        "NCCL_DEBUG=WARN\n#NCCL_SOCKET_IFNAME=ib0\n",
        "NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME=ib0\n"};
    char path[] = "/tmp/test_interface.XXXXXX";
    int fd = mkstemp(path);

    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_CONF_FILE");
    if (fd < 0 || plait_interface_is_chosen()) {
        skip("this machine has an interface for NCCL, or no /tmp");
        return;
    }
    setenv("NCCL_CONF_FILE", path, 1);
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(lines[i]);

        ok(pwrite(fd, lines[i], n, 0) == (ssize_t)n && ftruncate(fd, n) == 0 &&
               plait_interface_is_chosen() == (i == 1),
           "a file that %s", i ? "names it" : "names it in a comment");
    }
    close(fd);
    unlink(path);
    unsetenv("NCCL_CONF_FILE");
    setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
    ok(plait_interface_is_chosen(), "the environment");
}

int main(void)
{
    char name[64] = "as it was";

    ok(plait_interface_towards("127.0.0.1", name, sizeof(name)) == 0 &&
           strcmp(name, "lo") == 0,
       "127.0.0.1 is reached over %s", name);
    ok(plait_interface_towards("", name, sizeof(name)) < 0, "no host");
    test_own();
    test_chosen();
    return done_testing();
}
