/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/capture.h"
#include "topology/cli/cmd_doctor.h"

/* Root can read everything; what matters is whether users can. */

enum { SECONDS_MOST = 20, NOBODY = 65534 };

struct errand {
    void (*work)(void *arg, int fd);
    void *arg;
    uid_t uid; /* 0: as who asks */
    gid_t gid;
};

static void become_user(void *arg, int fd)
{
    const struct errand *errand = arg;

    if (errand->uid && (setgroups(0, NULL) < 0 || setgid(errand->gid) < 0 ||
                        setuid(errand->uid) < 0))
        return;
    errand->work(errand->arg, fd);
}

char *doctor_as_user(void (*work)(void *arg, int fd), void *arg)
{
    struct errand errand = {work, arg, 0, 0};
    size_t size;

    if (geteuid() == 0) {
        const struct passwd *nobody = getpwnam("nobody");

        errand.uid = nobody ? nobody->pw_uid : NOBODY;
        errand.gid = nobody ? nobody->pw_gid : NOBODY;
    }
    return plait_capture_call(become_user, &errand, SECONDS_MOST, &size);
}

static void try_open(void *arg, int fd)
{
    int file = open(arg, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    dprintf(fd, "%d", file < 0 ? errno : 0);
}

int doctor_user_reads(const char *path)
{
    char *text = doctor_as_user(try_open, (void *)path);
    int rc = text && *text ? atoi(text) : -1;

    free(text);
    return rc;
}
