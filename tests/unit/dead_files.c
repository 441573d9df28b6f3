/* SPDX-License-Identifier: Apache-2.0 */
/* usage: dead_files DIR COMMAND...: runs the command with a file system in DIR
 * whose server never answers, like NFS after a failure: a process that accesses
 * it waits until it is killed. 77: not possible on this machine. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

/* The kernel sends requests to the server by /dev/fuse, which the command keeps
 * open and never reads. */
static int mount_dead(const char *dir)
{
    int spaces = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
    char options[100];
    int fuse;

    if (unshare(spaces) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    fuse = open("/dev/fuse", O_RDWR);
    if (fuse < 0)
        return -1;
    snprintf(options, sizeof(options),
             "fd=%d,rootmode=40000,user_id=%d,group_id=%d", fuse,
             (int)geteuid(), (int)getegid());
    return mount("dead", dir, "fuse", MS_NOSUID | MS_NODEV, options);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: dead_files DIR COMMAND...\n");
        return 2;
    }
    if (mount_dead(argv[1]) < 0) {
        fprintf(stderr, "dead_files: %s: %s\n", argv[1], strerror(errno));
        return 77;
    }
    execvp(argv[2], argv + 2);
    fprintf(stderr, "dead_files: %s: %s\n", argv[2], strerror(errno));
    return 127;
}
