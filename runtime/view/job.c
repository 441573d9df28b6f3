/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/view/job.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/view/history.h"
#include "topology/base/capture.h"
#include "topology/base/files.h"

/* Seconds for an answer of Slurm's. */
enum { SECONDS_MOST = 20 };

bool plait_job_is_id(const char *path)
{
    const char *at = path;

    while (isdigit((unsigned char)*at))
        at++;
    if (at > path && *at == '_')
        do
            at++;
        while (isdigit((unsigned char)*at));
    return at > path && !*at && access(path, F_OK) < 0;
}

/* The rest of the line after "WorkDir=". */
static char *work_dir(const char *text)
{
    const char *at = text ? strstr(text, "WorkDir=") : NULL;

    if (!at)
        return NULL;
    at += strlen("WorkDir=");
    return strndup(at, strcspn(at, "\n"));
}

/* The working directory of a job that scontrol has forgotten. */
static char *past_work_dir(const char *id)
{
    char *argv[] = {(char *)"sacct", (char *)"-X", (char *)"-n",
                    (char *)"-P",    (char *)"-o", (char *)"WorkDir",
                    (char *)"-j",    (char *)id,   NULL};
    size_t size = 0;
    int status = 0;
    char *text = plait_capture(argv, 0, SECONDS_MOST, &size, &status);

    if (text)
        text[strcspn(text, "\n")] = '\0';
    if (text && text[0] == '/')
        return text;
    free(text);
    return NULL;
}

/* `number`: the job's own number, where `id` is an element of a job array. */
static char *find_work_dir(const char *id, char number[24],
                           struct plait_error *err)
{
    char *argv[] = {(char *)"scontrol", (char *)"show", (char *)"job",
                    (char *)id, NULL};
    size_t size = 0;
    int status = 0;
    char *text = plait_capture(argv, 0, SECONDS_MOST, &size, &status);
    int why = text ? 0 : errno;
    char *dir = work_dir(text);

    if (!text || sscanf(text, "JobId=%20[0-9]", number) != 1)
        snprintf(number, 24, "%.20s", id);
    free(text);
    if (!dir)
        dir = past_work_dir(id);
    if (dir)
        return dir;
    if (why)
        plait_errorf(err,
                     "job %.40s: cannot ask Slurm (scontrol: %s); give the "
                     "metrics file",
                     id, strerror(why));
    else
        plait_errorf(err,
                     "job %.40s: scontrol and sacct show no such job: give the "
                     "metrics file",
                     id);
    return NULL;
}

/* Whether the last start that is recorded beside the metrics is of the job:
 * names its number, perhaps with a step after it. */
static bool is_of_job(const char *starts, const char *id)
{
    FILE *f = plait_files_open(starts);
    bool found = false;
    const char *job;
    json_t *start;

    while (f && (start = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL))) {
        job = json_string_value(json_object_get(start, "job"));
        found = job && !strncmp(job, id, strlen(id)) &&
                (!job[strlen(id)] || job[strlen(id)] == '.');
        json_decref(start);
    }
    if (f)
        fclose(f);
    return found;
}

static int add_file(char ***files, size_t *nfiles, const char *starts)
{
    char **more = realloc(*files, (*nfiles + 1) * sizeof(**files));

    if (!more)
        return -1;
    *files = more;
    more[*nfiles] = strndup(starts, strlen(starts) - strlen(".starts"));
    if (!more[*nfiles])
        return -1;
    ++*nfiles;
    return 0;
}

static int find_below(const char *dir, const char *id, char ***files,
                      size_t *nfiles)
{
    static const char *const below[] = {"*.starts", "*/*.starts",
                                        "*/*/*.starts"};
    int rc = 0;

    for (size_t k = 0; k < 3 && rc == 0; k++) {
        char *pattern = plait_history_pattern(dir, below[k]);
        glob_t found = {0};

        if (!pattern)
            return -1;
        glob(pattern, 0, NULL, &found);
        free(pattern);
        for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
            if (is_of_job(found.gl_pathv[i], id))
                rc = add_file(files, nfiles, found.gl_pathv[i]);
        globfree(&found);
    }
    return rc;
}

int plait_job_find(const char *id, char ***files, size_t *nfiles,
                   struct plait_error *err)
{
    char number[24], *dir = find_work_dir(id, number, err);
    int rc;

    if (!dir)
        return -1;
    rc = find_below(dir, number, files, nfiles);
    if (rc < 0)
        plait_errorf(err, "out of memory");
    else if (*nfiles == 0)
        rc = plait_errorf(err,
                          "job %.40s: no metrics file (log.metrics) names it "
                          "in %s: give the file",
                          id, dir);
    free(dir);
    return rc;
}
