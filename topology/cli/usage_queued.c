/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* strtok_r */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/text.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/cli/commands.h"
#include "topology/cli/usage.h"
#include "topology/layout/launch.h"

/* plait usage --queued: squeue does not show a job's environment, in which
 * sbatch has left the flags. slurmctld keeps it as a file, for root and itself.
 */

/* ENVIRONMENT: of a job's environment, so much is read. */
enum { ENVIRONMENT = 8 << 20, SECONDS_MOST = 120, FLAGS = 600 };

struct queued_job {
    unsigned base; /* the number in the name of the job's folder */
    char flags[FLAGS];
};

struct queued {
    struct queued_job *jobs;
    size_t n;
    int others; /* jobs that no sbatch made */
};

/* The value of NAME in an environment of `size` bytes; NULL: it has none. */
static const char *find_variable(const char *text, size_t size,
                                 const char *name)
{
    size_t n = strlen(name);

    for (const char *at = text; at < text + size; at += strlen(at) + 1)
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

/* "--tp=2 --rank-order=tp-dp" of "tp,rank-order" and the environment. */
static void list_flags(const char *environment, size_t size, const char *names,
                       char *flags)
{
    struct plait_text text = {flags, FLAGS, 0};
    char copy[FLAGS], variable[FLAGS + 64], *save = NULL;

    *flags = '\0';
    snprintf(copy, sizeof(copy), "%s", names);
    for (char *name = strtok_r(copy, ",", &save); name;
         name = strtok_r(NULL, ",", &save)) {
        const char *value;
        int n = snprintf(variable, sizeof(variable),
                         "SLURM_SPANK__SLURM_SPANK_OPTION_plait_%s", name);

        for (int k = 0; k < n; k++)
            if (!isalnum((unsigned char)variable[k]))
                variable[k] = '_';
        value = find_variable(environment, size, variable);
        plait_text_add(&text, "%s--%s", text.used ? " " : "", name);
        if (value && *value && strcmp(value, "(null)") != 0)
            plait_text_add(&text, "=%s", value);
    }
    plait_text_clean(flags);
}

/* Whether the file is the environment of a job with flags. It is whatever its
 * user made it, and is only printed. */
static int read_environment(const char *path, char *text, char *flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t size, n = 0;
    const char *names;

    if (fd < 0)
        return errno == ENOENT ? 0 : -1; /* the job has just ended */
    for (size = 0; size < ENVIRONMENT; size += n) {
        n = read(fd, text + size, (size_t)(ENVIRONMENT - size));
        if (n <= 0)
            break;
    }
    close(fd);
    if (n < 0)
        return -1;
    text[size] = '\0';
    if (size < 4)
        return 0;
    /* A number of four bytes comes first. */
    names = find_variable(text + 4, (size_t)size - 4, PLAIT_ENV_FLAGS);
    if (names && *names)
        list_flags(text + 4, (size_t)size - 4, names, flags);
    return names && *names;
}

static int add_job(struct queued *queued, const char *path, char *text)
{
    struct queued_job *job = &queued->jobs[queued->n];
    const char *at = strstr(path, "/job.");
    const char *last = at;
    int rc = read_environment(path, text, job->flags);

    for (; at; at = strstr(at + 1, "/job."))
        last = at;
    if (rc <= 0 || !last)
        return rc;
    job->base = (unsigned)strtoul(last + 5, NULL, 10);
    queued->n++;
    return 0;
}

/* A folder that glob() cannot open ends it, unless the job has just ended. */
static int is_unreadable(const char *path, int error)
{
    if (error == ENOENT)
        return 0;
    plait_cmd_failed("usage: %s: %s; --queued reads what slurmctld keeps of "
                     "jobs, as root or SlurmUser",
                     path, strerror(error));
    return 1;
}

static int read_jobs(struct queued *queued, const char *state)
{
    char pattern[1200], *text = malloc(ENVIRONMENT + 1);
    const char *failed = NULL;
    glob_t found = {0};
    int rc;

    snprintf(pattern, sizeof(pattern), "%s/hash.*/job.*/environment", state);
    rc = text ? glob(pattern, 0, is_unreadable, &found) : GLOB_NOSPACE;
    if (rc == 0)
        queued->jobs = calloc(found.gl_pathc, sizeof(*queued->jobs));
    if (rc == GLOB_NOSPACE || (rc == 0 && !queued->jobs))
        plait_cmd_failed("out of memory");
    for (size_t i = 0; i < found.gl_pathc && queued->jobs && !failed; i++)
        if (add_job(queued, found.gl_pathv[i], text) < 0)
            failed = found.gl_pathv[i];
    if (failed)
        is_unreadable(failed, errno);
    free(text);
    globfree(&found);
    return failed || (rc && rc != GLOB_NOMATCH) || (rc == 0 && !queued->jobs)
               ? -1
               : 0;
}

/* The folder of slurmctld's state. -1, with the reason printed. */
static int find_state(char *state, size_t size)
{
    char host[256];
    struct plait_error err;
    char *config = usage_config(&err);
    DIR *dir;

    if (!config)
        return -plait_cmd_failed("usage: %s", err.text);
    usage_setting(config, "StateSaveLocation", state, size);
    usage_setting(config, "SlurmctldHost[0]", host, sizeof(host));
    free(config);
    dir = opendir(state);
    if (dir)
        return closedir(dir);
    if (errno == EACCES)
        return -plait_cmd_failed("usage: %s: %s; --queued reads what slurmctld "
                                 "keeps of jobs, as root or SlurmUser",
                                 state, strerror(errno));
    return -plait_cmd_failed("usage: %s: %s; --queued reads what slurmctld "
                             "keeps of jobs, on its host (%s)",
                             state, strerror(errno), host);
}

static const char *find_flags(const struct queued *queued, unsigned base,
                              unsigned job)
{
    for (size_t i = 0; i < queued->n; i++)
        if (queued->jobs[i].base == base || queued->jobs[i].base == job)
            return queued->jobs[i].flags;
    return NULL;
}

/* Those of squeue's jobs that have flags, as JSON. */
static json_t *match(struct queued *queued, char *text)
{
    json_t *list = json_array();
    char *save = NULL;

    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char name[128], user[128], state[64];
        const char *flags;
        unsigned base, job;
        int batch;

        if (sscanf(line, "%127s %10u %10u %127s %63s %1d", name, &base, &job,
                   user, state, &batch) != 6)
            continue;
        flags = find_flags(queued, base, job);
        queued->others += !batch;
        if (flags && batch)
            json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s}", "job",
                                                  name, "user", user, "state",
                                                  state, "flags", flags));
    }
    return list;
}

static const char *get(const json_t *job, const char *key)
{
    return json_string_value(json_object_get(job, key));
}

static void print_jobs(const json_t *list, int others)
{
    size_t i;
    json_t *job;

    if (json_array_size(list) == 0)
        printf("No batch job has flags.\n");
    else
        printf("%-14s %-12s %-12s %s\n", "JOB", "USER", "STATE", "FLAGS");
    json_array_foreach(list, i, job)
        printf("%-14s %-12s %-12s %s\n", get(job, "job"), get(job, "user"),
               get(job, "state"), get(job, "flags"));
    if (others)
        printf("%d job%s of srun or salloc, whose flags Slurm does not keep: "
               "ask the user%s.\n",
               others, others > 1 ? "s are" : " is", others > 1 ? "s" : "");
}

static int report(struct queued *queued, char *text, int json)
{
    json_t *list = match(queued, text);

    if (json)
        return plait_cmd_json(
            json_pack("{s:o,s:i}", "jobs", list, "others", queued->others));
    print_jobs(list, queued->others);
    json_decref(list);
    return PLAIT_EXIT_GOOD;
}

int usage_queued(int json)
{
    static char squeue[] = "squeue", header[] = "-h", all[] = "--all",
                format[] = "-O",
                fields[] = "JobArrayID:.100 ,ArrayJobID:.20 ,JobID:.20 ,"
                           "UserName:.100 ,State:.20 ,BatchFlag:.5";
    char *const argv[] = {squeue, header, all, format, fields, NULL};
    struct queued queued = {0};
    char state[1024], why[256], *text = NULL;
    int rc = PLAIT_EXIT_FAILED;

    if (find_state(state, sizeof(state)) < 0 || read_jobs(&queued, state) < 0)
        goto error;
    text = doctor_run(argv, SECONDS_MOST, why, sizeof(why));
    rc = text ? report(&queued, text, json)
              : plait_cmd_failed("usage: squeue: %s", why);
error:
    free(text);
    free(queued.jobs);
    return rc;
}
