/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/cache_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/directory.h"

char *plait_cache_path(const char *variable, const char *name)
{
    const char *given = getenv(variable), *home = getenv("HOME");
    const char *cache = getenv("XDG_CACHE_HOME");
    char *path;
    int rc;

    if (given)
        return *given ? strdup(given) : NULL;
    if (cache && *cache)
        rc = asprintf(&path, "%s/plait/%s", cache, name);
    else if (home && *home)
        rc = asprintf(&path, "%s/.cache/plait/%s", home, name);
    else
        return NULL;
    return rc < 0 ? NULL : path;
}

static void make_folder(const char *path)
{
    char *dir = strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
    struct plait_error err;

    if (slash && slash != dir) {
        *slash = '\0';
        plait_directory_make(dir, &err);
    }
    free(dir);
}

FILE *plait_cache_begin(const char *path, char **beside)
{
    FILE *out;

    if (asprintf(beside, "%s.%d", path, (int)getpid()) < 0)
        return NULL;
    make_folder(path);
    out = fopen(*beside, "we");
    if (!out)
        free(*beside);
    return out;
}

void plait_cache_end(const char *path, FILE *out, char *beside)
{
    int bad = ferror(out);

    if (fclose(out) != 0 || bad || rename(beside, path) < 0)
        unlink(beside);
    free(beside);
}
