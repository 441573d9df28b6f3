/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/convert/convert_dir.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/checkpoint/directory.h"
#include "topology/base/files.h"

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int sync_entry(const char *path, const struct stat *st, int type,
                      struct FTW *at)
{
    (void)st;
    (void)at;
    return type == FTW_F || type == FTW_DP ? plait_files_sync(path) : 0;
}

static int remove_tree(const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0)
        return 0;
    return errno == ENOENT ? 0 : -1;
}

/* -1 also if it is not a directory. */
static int check_empty(const char *path, struct plait_error *err)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    bool empty = true;

    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            empty = false;
    closedir(dir);
    errno = EEXIST;
    return empty ? 0
                 : plait_errorf(err,
                                "%s: the directory is not empty; --to must "
                                "name a new one",
                                path);
}

/* Until it is complete, "A/B" is written as "A/.B.partial". */
static int choose_names(struct plait_convert_dir *dir, const char *to,
                        struct plait_error *err)
{
    size_t n = strlen(to), parent;
    const char *slash;

    while (n > 1 && to[n - 1] == '/')
        n--;
    errno = ENAMETOOLONG;
    if (n >= sizeof(dir->to))
        return plait_errorf(err, "%.40s...: too long a name", to);
    snprintf(dir->to, sizeof(dir->to), "%.*s", (int)n, to);
    slash = strrchr(dir->to, '/');
    parent = slash ? (size_t)(slash - dir->to) + 1 : 0;
    errno = EINVAL;
    if (n == parent || !strcmp(dir->to + parent, ".") ||
        !strcmp(dir->to + parent, ".."))
        return plait_errorf(
            err, "%s: --to must end in the name of a new directory", to);
    snprintf(dir->made, sizeof(dir->made), "%.*s.%s.partial", (int)parent,
             dir->to, dir->to + parent);
    return 0;
}

int plait_convert_dir_open(struct plait_convert_dir *dir, const char *to,
                           struct plait_error *err)
{
    if (choose_names(dir, to, err) < 0 || check_empty(dir->to, err) < 0)
        return -1;
    if (remove_tree(dir->made) < 0)
        return plait_errorf(err,
                            "%s: cannot remove what is left of an unfinished "
                            "conversion: %s",
                            dir->made, strerror(errno));
    return plait_directory_make(dir->made, err);
}

int plait_convert_dir_commit(const struct plait_convert_dir *dir,
                             struct plait_error *err)
{
    char parent[sizeof(dir->to)];
    const char *slash = strrchr(dir->to, '/');

    snprintf(parent, sizeof(parent), "%.*s",
             slash ? (int)(slash - dir->to) + 1 : 1, slash ? dir->to : ".");
    if (nftw(dir->made, sync_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 &&
        rename(dir->made, dir->to) == 0 && plait_files_sync(parent) == 0)
        return 0;
    return plait_errorf(err, "%s: cannot put it in place: %s", dir->to,
                        strerror(errno));
}

void plait_convert_dir_abandon(const struct plait_convert_dir *dir)
{
    int saved = errno;

    remove_tree(dir->made);
    errno = saved;
}
