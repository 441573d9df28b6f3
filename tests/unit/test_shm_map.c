/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/comm/shm/shm_map.h"
#include "tap.h"

/* Shared memory, of whose name another user may have made something else. */
enum { SIZE = 8192 };

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
    return done_testing();
}
