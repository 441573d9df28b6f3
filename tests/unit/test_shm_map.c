/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/shm/shm_map.h"
#include "tap.h"

/* Shared memory, of whose name another user may have made something else. */
enum { SIZE = 8192 };

/* Whether a name is left by a sweep, made `age` seconds ago by user `owner`. */
static bool is_left(const char *name, int age, uid_t owner)
{
    struct timespec at[2] = {{.tv_sec = time(NULL) - age},
                             {.tv_sec = time(NULL) - age}};
    char path[80];
    bool left;
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);

    if (fd < 0 || fchown(fd, owner, -1) < 0 || futimens(fd, at) < 0)
        return false;
    close(fd);
    plait_shm_sweep();
    snprintf(path, sizeof(path), "/dev/shm%s", name);
    left = access(path, F_OK) == 0;
    shm_unlink(name);
    return left;
}

static void test_sweep(void)
{
    enum { OLD = 3700, YOUNG = 3500 };
    char area[64], other[64];

    snprintf(area, sizeof(area), "/plait-%016x-test", (unsigned)getpid());
    snprintf(other, sizeof(other), "/plait-%d", (int)getpid());
    ok(!is_left(area, OLD, geteuid()), "what a killed rank left is removed");
    ok(is_left(area, YOUNG, geteuid()), "... not what is just being opened");
    ok(is_left(other, OLD, geteuid()), "... nor another program's");
    if (geteuid() == 0)
        ok(is_left(area, OLD, 65534), "... nor another user's");
    else
        skip("only root can give memory away");
}

int main(void)
{
    char name[64], path[80], *made, *opened;
    void *again;

    snprintf(name, sizeof(name), "/plait-test-%d", (int)getpid());
    snprintf(path, sizeof(path), "/dev/shm%s", name);
    made = plait_shm_map(name, true, SIZE);
    if (!made)
        return skip_all("no shared memory");
    again = plait_shm_map(name, true, SIZE);
    ok(!again && errno == EEXIST, "what is there is not made again");
    opened = plait_shm_map(name, false, SIZE);
    strcpy(made, "seen");
    ok(opened && strcmp(opened, "seen") == 0, "both see it");
    ok(!plait_shm_map(name, false, SIZE + 1) && errno == EPERM,
       "memory that is too short is refused");
    if (geteuid() == 0 && chown(path, 65534, 65534) == 0)
        ok(!plait_shm_map(name, false, SIZE) && errno == EPERM,
           "memory of another user is refused");
    else
        skip("only root can give it away");
    shm_unlink(name);
    if (symlink("/etc/hostname", path) == 0)
        ok(!plait_shm_map(name, false, 1) && !plait_shm_map(name, true, SIZE),
           "a link is not followed");
    unlink(path);
    munmap(made, SIZE);
    if (opened)
        munmap(opened, SIZE);
    test_sweep();
    return done_testing();
}
