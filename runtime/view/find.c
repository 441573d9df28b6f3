/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the metrics files that a path means. */
#include "config.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/view/history.h"

/* Whether the first line has a step: a directory may have JSON lines of other
 * kinds, such as data. */
static bool has_steps(const char *path)
{
    FILE *f = fopen(path, "re");
    json_t *line =
        f ? json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, NULL)
          : NULL;
    bool found = json_is_integer(json_object_get(line, "step"));

    json_decref(line);
    if (f)
        fclose(f);
    return found;
}

static int add_file(char ***files, size_t *nfiles, const char *path)
{
    char **more = realloc(*files, (*nfiles + 1) * sizeof(**files));

    if (!more)
        return -1;
    *files = more;
    more[*nfiles] = strdup(path);
    if (!more[*nfiles])
        return -1;
    ++*nfiles;
    return 0;
}

char *plait_history_pattern(const char *dir, const char *below)
{
    char *pattern = malloc(2 * strlen(dir) + strlen(below) + 2), *to = pattern;

    if (!pattern)
        return NULL;
    for (; *dir; dir++) {
        if (strchr("*?[]\\", *dir))
            *to++ = '\\';
        *to++ = *dir;
    }
    *to++ = '/';
    strcpy(to, below);
    return pattern;
}

static int find_in(const char *dir, char ***files, size_t *nfiles,
                   struct plait_error *err)
{
    size_t before = *nfiles;
    char *pattern = plait_history_pattern(dir, "*.jsonl");
    glob_t found = {0};
    int rc = 0;

    if (!pattern)
        return plait_errorf(err, "out of memory");
    glob(pattern, 0, NULL, &found);
    free(pattern);
    for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
        if (has_steps(found.gl_pathv[i]))
            rc = add_file(files, nfiles, found.gl_pathv[i]);
    globfree(&found);
    if (rc < 0)
        return plait_errorf(err, "out of memory");
    if (*nfiles == before)
        return plait_errorf(err,
                            "%s: it contains no metrics: no NAME.jsonl that "
                            "plait-train wrote (log.metrics)",
                            dir);
    return 0;
}

int plait_history_find(const char *path, char ***files, size_t *nfiles,
                       struct plait_error *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return find_in(path, files, nfiles, err);
    if (add_file(files, nfiles, path) < 0)
        return plait_errorf(err, "out of memory");
    return 0;
}
