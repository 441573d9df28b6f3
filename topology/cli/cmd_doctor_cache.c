/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "topology/base/error.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/node/cache.h"

/* The cache of the machine's topology, and whether slurmd can write it. */

/* The largest recorded machine needs 1 MiB. */
enum { NEEDED_KIB = 2048 };

/* slurmd makes the last folder alone. */
static int check_parent(const char *dir, struct findings *f)
{
    char parent[DOCTOR_PATH];
    struct stat st;
    char *slash;

    snprintf(parent, sizeof(parent), "%s", dir);
    slash = strrchr(parent, '/');
    if (!slash)
        return 0;
    slash[slash == parent] = '\0';
    if (stat(parent, &st) < 0)
        findings_add(f, FINDING_BAD, "cache",
                     "%.250s cannot be made: %.250s: %s; slurmd creates only "
                     "the last folder of cache=; create the others at boot "
                     "(tmpfiles.d), or choose another",
                     dir, parent, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        findings_add(f, FINDING_BAD, "cache",
                     "%.250s cannot be made: %.250s is not a folder", dir,
                     parent);
    else
        return 0;
    return -1;
}

/* The file system of `path`, or of the folder that it would be in. */
static int check_room(const char *path, struct findings *f)
{
    char at[DOCTOR_PATH];
    struct statvfs system;
    unsigned long long kib;

    snprintf(at, sizeof(at), "%s", path);
    while (statvfs(at, &system) < 0) {
        char *slash = strrchr(at, '/');

        if (!slash || slash == at)
            return 0;
        *slash = '\0';
    }
    kib = (unsigned long long)system.f_bavail * system.f_frsize / 1024;
    if (system.f_flag & ST_RDONLY)
        findings_add(f, FINDING_BAD, "cache",
                     "%.300s is on a file system that is mounted read-only; "
                     "name another folder by cache=",
                     at);
    else if (kib < NEEDED_KIB || (system.f_files && !system.f_favail))
        findings_add(f, FINDING_BAD, "cache",
                     "%.300s is full (%llu KiB, %llu files free): slurmd "
                     "cannot write %.250s, nor its own files there; empty it",
                     at, kib, (unsigned long long)system.f_favail, path);
    else
        return 0;
    return -1;
}

/* Where there is a folder. */
static void check_folder(const char *dir, struct findings *f)
{
    struct plait_error err;
    char file[DOCTOR_PATH + 16];
    int rc;

    if (plait_node_check_cache(dir, &err) < 0) {
        if (check_room(dir, f) == 0)
            findings_add(f, FINDING_NOTE, "cache",
                         "%s; slurmd writes it when it starts, or else the "
                         "next step with flags does (login nodes need none)",
                         err.text);
        return;
    }
    snprintf(file, sizeof(file), "%s/node.xml", dir);
    rc = doctor_user_reads(file);
    if (rc > 0)
        findings_add(f, FINDING_BAD, "cache",
                     "%s cannot be read by users: %s; chmod 755 the folder "
                     "and 644 the file",
                     file, strerror(rc));
    else
        findings_add(f, FINDING_GOOD, "cache",
                     "%s holds this machine's topology", file);
}

void doctor_check_cache(struct doctor *doctor)
{
    const char *dir = doctor->cache;
    struct findings *f = doctor->findings;
    struct plait_error err;

    if (!dir[0])
        findings_add(f, FINDING_NOTE, "cache",
                     "plugstack.conf says cache=none: each step with flags "
                     "discovers the topology of its nodes again");
    else if (plait_node_check_cache_dir(dir, &err) == 0)
        check_folder(dir, f);
    else if (errno != ENOENT && errno != ENOTDIR)
        findings_add(f, FINDING_BAD, "cache",
                     "%s; the plugin does not use it: remove it, or chown "
                     "root and chmod 755",
                     err.text);
    else if (check_parent(dir, f) == 0 && check_room(dir, f) == 0)
        findings_add(f, FINDING_NOTE, "cache",
                     "%s; slurmd makes it when it starts with the plugin "
                     "(login nodes need none)",
                     err.text);
}
