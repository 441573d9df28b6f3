/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
/* Preloaded to simulate a driver that does not answer. The call of hwloc that
 * only discovery makes, and makes first, returns when the file named by
 * $TEST_HANG_FILE is gone. The PIDs of waiting processes are written beside
 * that file. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hwloc.h>

static void note_waiting(const char *file)
{
    char name[4096], pid[32];
    int fd, n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

    snprintf(name, sizeof(name), "%s.pids", file);
    fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, pid, (size_t)n) != n)
        perror(name);
    if (fd >= 0)
        close(fd);
}

int hwloc_topology_set_components(hwloc_topology_t topology,
                                  unsigned long flags, const char *name)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const char *file = getenv("TEST_HANG_FILE");
    int (*real)(hwloc_topology_t, unsigned long, const char *);
    void *found = dlsym(RTLD_NEXT, "hwloc_topology_set_components");

    if (file && access(file, F_OK) == 0)
        note_waiting(file);
    while (file && access(file, F_OK) == 0)
        nanosleep(&pause, NULL);
    if (!found)
        return -1;
    memcpy(&real, &found, sizeof(real));
    return real(topology, flags, name);
}
