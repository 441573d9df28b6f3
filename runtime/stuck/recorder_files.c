/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and reads the files that torch's flight recorder leaves, one a rank. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/stuck/recorder.h"

/* A generous limit: torch keeps some thousand operations of some hundred
 * bytes. */
enum { SIZE_MOST = 256 << 20, RANK_DIGITS = 6 };

struct owner {
    bool known;
    unsigned uid;
};

/* Dumps often lie in /tmp, where others can plant links, pipes and files of the
 * same name. */
static int read_file(struct plait_recorder *r, const char *path, int rank,
                     struct owner *owner, struct plait_error *err)
{
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc;
    unsigned char *bytes = NULL;
    struct stat st;
    size_t n = 0;
    ssize_t got = 1;

    if (f >= 0 && fstat(f, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size <= SIZE_MOST)
        bytes = malloc((size_t)st.st_size + 1);
    while (bytes && got > 0 && n < (size_t)st.st_size) {
        got = read(f, bytes + n, (size_t)st.st_size - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (f >= 0)
        close(f);
    if (!bytes)
        return plait_errorf(err, "%.300s cannot be read, or is not a dump",
                            path);
    if (owner->known && owner->uid != st.st_uid) {
        free(bytes);
        return plait_errorf(err,
                            "%.300s belongs to user %u, other dumps to user "
                            "%u; those of a run have one owner",
                            path, (unsigned)st.st_uid, owner->uid);
    }
    owner->known = true;
    owner->uid = st.st_uid;
    rc = plait_recorder_add(r, path, bytes, n, rank, (double)st.st_mtime, err);
    free(bytes);
    return rc;
}

/* The rank at the end of the name; -1: another file. */
static int rank_of(const char *name, const char *base)
{
    size_t n = strlen(base), digits;

    if (strncmp(name, base, n) != 0)
        return -1;
    digits = strspn(name + n, "0123456789");
    return digits > 0 && digits <= RANK_DIGITS && !name[n + digits]
               ? atoi(name + n)
               : -1;
}

int plait_recorder_read(struct plait_recorder *r, const char *prefix,
                        struct plait_error *err)
{
    const char *slash = strrchr(prefix, '/');
    const char *base = slash ? slash + 1 : prefix;
    char dir[PATH_MAX], path[PATH_MAX + 300];
    struct owner owner = {0};
    struct dirent *e;
    int rc = 0;
    DIR *d;

    snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - prefix) + 1 : 2,
             slash ? prefix : "./");
    d = opendir(dir);
    while (d && rc == 0 && (e = readdir(d))) {
        int rank = rank_of(e->d_name, base);

        snprintf(path, sizeof(path), "%s%s", dir, e->d_name);
        if (rank >= 0)
            rc = read_file(r, path, rank, &owner, err);
    }
    if (d)
        closedir(d);
    errno = ENOENT;
    if (rc == 0 && r->n == 0)
        rc = plait_errorf(err, "there is no %.300s0, %.300s1, ...", prefix,
                          prefix);
    if (rc == 0 && plait_recorder_close(r) < 0)
        rc = plait_errorf(err, "out of memory");
    return rc;
}
