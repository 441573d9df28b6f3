/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/base/files.h"

static char *join_path(const char *dir, const char *name)
{
    char *path;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

char *plait_checkpoint_path(const char *dir, int64_t step)
{
    char name[40];

    snprintf(name, sizeof(name), "step-%08lld", (long long)step);
    return join_path(dir, name);
}

char *plait_directory_temporary(const char *dir, int64_t step)
{
    char name[40];

    snprintf(name, sizeof(name), ".step-%08lld", (long long)step);
    return join_path(dir, name);
}

int plait_directory_remove(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int number = 0;

    if (!dir)
        return errno == ENOENT ? 0 : -1;
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
            unlinkat(dirfd(dir), entry->d_name, 0) < 0)
            number = errno;
    closedir(dir);
    if (number == 0)
        return rmdir(path);
    errno = number;
    return -1;
}

/* NFS keeps files that somebody reads. The next save removes them. */
static bool is_in_use(void)
{
    return errno == EBUSY || errno == ENOTEMPTY;
}

/* Only one checkpoint is written at a time: other hidden ones are left over
 * from killed runs. */
static int remove_unfinished(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int rc = 0;
    char *left;

    if (!dir)
        return -1;
    while (rc == 0 && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, ".step-", 6) != 0)
            continue;
        left = join_path(path, entry->d_name);
        rc = left ? plait_directory_remove(left) : -1;
        if (left && rc < 0 && is_in_use())
            rc = 0;
        free(left);
    }
    closedir(dir);
    return rc;
}

int plait_directory_make(const char *dir, struct plait_error *err)
{
    char *inside = join_path(dir, ".");
    int rc = 0;

    if (plait_files_make_dir(dir) < 0)
        rc = plait_errorf(err, "%s: cannot make the directory: %s", dir,
                          strerror(errno));
    else if (!inside || access(inside, W_OK | X_OK) < 0)
        rc = plait_errorf(err, "%s: checkpoints cannot be written there: %s",
                          dir, strerror(errno));
    free(inside);
    return rc;
}

int plait_directory_prepare(const char *dir, const char *temporary,
                            struct plait_error *err)
{
    int fd;

    if (plait_directory_make(dir, err) < 0)
        return -1;
    if (remove_unfinished(dir) < 0)
        return plait_errorf(err,
                            "%s: cannot remove what is left of an "
                            "unfinished checkpoint: %s",
                            dir, strerror(errno));
    if (mkdir(temporary, 0777) < 0 ||
        (fd = open(temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return plait_errorf(err, "%s: cannot make the directory: %s", temporary,
                            strerror(errno));
    return fd;
}

int plait_directory_check(int made, const char *temporary,
                          struct plait_error *err)
{
    struct stat a, b;

    if (fstat(made, &a) == 0 && stat(temporary, &b) == 0 &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return 0;
    errno = ESTALE;
    return plait_errorf(err, "%s: another process has removed it", temporary);
}

/* "latest" -> "step-00000020" */
static int link_latest(const char *dir, const char *path)
{
    char *latest = join_path(dir, "latest"),
         *temporary = join_path(dir, ".latest");
    int rc = -1;

    if (latest && temporary && (unlink(temporary) == 0 || errno == ENOENT) &&
        symlink(strrchr(path, '/') + 1, temporary) == 0)
        rc = rename(temporary, latest);
    free(latest);
    free(temporary);
    return rc;
}

static int exchange(const char *a, const char *b)
{
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

/* Puts `temporary` in the place of an older checkpoint of the same step, which
 * gets the name `temporary` or `old`. If that fails, it is as it was. */
static int replace_checkpoint(const char *dir, const char *temporary,
                              const char *path, const char *old)
{
    bool at_once = exchange(temporary, path) == 0;
    int saved;

    /* Not every file system can exchange two directories. */
    if (!at_once && rename(path, old) < 0)
        return -1;
    if (link_latest(dir, path) == 0 &&
        (at_once || rename(temporary, path) == 0))
        return 0;
    saved = errno;
    if (at_once)
        exchange(temporary, path);
    else
        rename(old, path);
    errno = saved;
    return -1;
}

/* The link is changed before the rename: as long as it leads to a checkpoint
 * that does not exist yet, older ones count, while a new checkpoint of a later
 * step than the link's would be ignored. */
static int put_in_place(const char *dir, const char *temporary,
                        const char *path, const char *old)
{
    if (access(path, F_OK) == 0)
        return replace_checkpoint(dir, temporary, path, old);
    return link_latest(dir, path) < 0 ? -1 : rename(temporary, path);
}

int plait_directory_commit(const char *dir, const char *temporary,
                           const char *path, int made, struct plait_error *err)
{
    char *old = NULL;
    int rc = -1;

    if (plait_directory_check(made, temporary, err) < 0)
        return -1;
    if (asprintf(&old, "%s.old", temporary) < 0)
        return plait_errorf(err, "%s: out of memory", path);
    /* A run that went on from an earlier step may write this step again. */
    if (fsync(made) < 0 || plait_directory_remove(old) < 0 ||
        put_in_place(dir, temporary, path, old) < 0 ||
        plait_files_sync(dir) < 0)
        plait_errorf(err, "%s: cannot put the checkpoint in place: %s", path,
                     strerror(errno));
    else
        rc = 0;
    /* What an exchange has left. The next save tries again. */
    if (rc == 0) {
        plait_directory_remove(temporary);
        plait_directory_remove(old);
    }
    free(old);
    return rc;
}

/* The step in the name of a checkpoint's directory, -1 for anything else. */
static int64_t step_of(const char *name)
{
    int64_t step;
    char *end;

    if (strncmp(name, "step-", 5) != 0 || !name[5] ||
        strspn(name + 5, "0123456789") != strlen(name + 5))
        return -1;
    errno = 0;
    step = strtoll(name + 5, &end, 10);
    return errno == ERANGE ? -1 : step;
}

/* Checkpoints, newest first. */
struct list {
    int n;
    struct found {
        int64_t step;
        char name[256];
    } * found;
};

static int newest_first(const void *a, const void *b)
{
    int64_t x = ((const struct found *)a)->step;
    int64_t y = ((const struct found *)b)->step;

    return (x < y) - (x > y);
}

static int list_checkpoints(const char *path, struct list *list)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    struct found *bigger;
    int64_t step;

    if (!dir)
        return -1;
    *list = (struct list){0};
    while ((entry = readdir(dir))) {
        step = step_of(entry->d_name);
        if (step < 0)
            continue;
        bigger = realloc(list->found, (list->n + 1) * sizeof(*bigger));
        if (!bigger) {
            closedir(dir);
            free(list->found);
            return -1;
        }
        list->found = bigger;
        bigger[list->n].step = step;
        snprintf(bigger[list->n++].name, sizeof(bigger->name), "%s",
                 entry->d_name);
    }
    closedir(dir);
    if (list->n > 0)
        qsort(list->found, list->n, sizeof(*list->found), newest_first);
    return 0;
}

/* The step of the checkpoint that was saved last: INT64_MAX if there is no
 * link, -1 if it leads elsewhere. */
static int64_t latest_step(const char *dir, struct plait_error *err)
{
    char *path = join_path(dir, "latest"), name[256];
    ssize_t n = path ? readlink(path, name, sizeof(name) - 1) : -1;
    int64_t step = INT64_MAX;

    if (n >= 0) {
        name[n] = '\0';
        step = step_of(name);
    } else if (errno != ENOENT) {
        step = -1;
    }
    if (step < 0)
        plait_errorf(err,
                     "%s/latest: not a link to a checkpoint in this "
                     "directory",
                     dir);
    free(path);
    return step;
}

int64_t plait_checkpoint_latest(const char *dir)
{
    return latest_step(dir, NULL);
}

char *plait_checkpoint_newest(const char *dir, int64_t below, int64_t *step,
                              int *passed, struct plait_error *err)
{
    int64_t latest;
    struct list list;
    char *path = NULL;
    int i = 0, later = 0;

    if (err)
        err->text[0] = '\0';
    *passed = 0;
    if (list_checkpoints(dir, &list) < 0) {
        if (errno != ENOENT)
            plait_errorf(err, "%s: %s", dir, strerror(errno));
        return NULL;
    }
    latest = latest_step(dir, err);
    for (; i < list.n && list.found[i].step > latest; i++)
        later++;
    while (i < list.n && list.found[i].step >= below)
        i++;
    if (latest >= 0 && i < list.n &&
        !(path = join_path(dir, list.found[i].name)))
        plait_errorf(err, "%s: out of memory", dir);
    if (path)
        *step = list.found[i].step;
    *passed = later;
    free(list.found);
    return path;
}

static char *manifest_of(const char *dir, const char *name)
{
    char *path;

    return asprintf(&path, "%s/%s/manifest.json", dir, name) < 0 ? NULL : path;
}

/* 1: it has a manifest; 0: not; -1 with errno. */
static int is_complete(const char *dir, const char *name)
{
    char *manifest = manifest_of(dir, name);
    int rc;

    if (!manifest)
        return -1;
    rc = access(manifest, F_OK) == 0;
    free(manifest);
    return rc;
}

/* The manifest is removed first, so that the rest of an interrupted removal
 * does not count as a checkpoint. */
static int remove_checkpoint(const char *dir, const char *name)
{
    char *path = join_path(dir, name), *manifest = manifest_of(dir, name);
    int rc = -1;

    if (path && manifest && (unlink(manifest) == 0 || errno == ENOENT))
        rc = plait_directory_remove(path);
    free(manifest);
    free(path);
    return rc < 0 && is_in_use() ? 0 : rc;
}

int plait_directory_prune(const char *dir, int keep, int64_t step,
                          struct plait_error *err)
{
    int kept = 0, rc = 0, complete;
    struct list list;

    if (keep <= 0)
        return 0;
    if (list_checkpoints(dir, &list) < 0)
        return plait_errorf(err, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < list.n; i++) {
        if (list.found[i].step > step)
            continue;
        complete = kept < keep ? is_complete(dir, list.found[i].name)
                               : remove_checkpoint(dir, list.found[i].name);
        if (complete < 0)
            rc =
                plait_errorf(err, "%s/%s: cannot remove the old checkpoint: %s",
                             dir, list.found[i].name, strerror(errno));
        kept += kept < keep && complete > 0;
    }
    free(list.found);
    return rc;
}
