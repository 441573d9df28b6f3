/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/stuck/recorder.h"

/* A generous limit: torch keeps some thousand operations of some hundred
 * bytes. */
enum { SIZE_MOST = 256 << 20, RANK_DIGITS = 6 };

static int read_file(struct plait_recorder *r, const char *path, int rank,
                     struct plait_error *err)
{
    FILE *f = fopen(path, "rbe");
    unsigned char *bytes = NULL;
    struct stat st;
    size_t n = 0;
    int rc;

    errno = f ? errno : ENOENT;
    if (f && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size <= SIZE_MOST && (bytes = malloc((size_t)st.st_size + 1)))
        n = fread(bytes, 1, (size_t)st.st_size, f);
    if (f)
        fclose(f);
    if (!bytes)
        return plait_errorf(err, "%.300s cannot be read, or is no dump", path);
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
            rc = read_file(r, path, rank, err);
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
