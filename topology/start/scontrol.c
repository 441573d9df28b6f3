/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/start/scontrol.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "topology/base/capture.h"

enum { SECONDS_MOST = 60, CONF_MOST = 4 << 20 };

/* The command in the folder of the running srun, or else the one on PATH. */
static void find_command(const char *name, char *path, size_t size)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n > 0) {
        self[n] = '\0';
        snprintf(path, size, "%s/%s", dirname(self), name);
        if (access(path, X_OK) == 0)
            return;
    }
    snprintf(path, size, "%s", name);
}

static struct plait_fabric *parse_fabric(const char *text, size_t size,
                                         struct plait_error *err)
{
    static const char none[] = "No topology information";

    if (size >= sizeof(none) - 1 && strncmp(text, none, sizeof(none) - 1) == 0)
        return plait_fabric_create_flat();
    return plait_fabric_parse("scontrol show topology", text, size, err);
}

/* The output of a Slurm command, with `both` also what it logs. NULL where it
 * fails. */
static char *run_command(char *argv[], int both, size_t *size)
{
    char path[PATH_MAX + 16];
    int status = -1;
    char *text;

    find_command(argv[0], path, sizeof(path));
    argv[0] = path;
    text = plait_capture(argv, both, SECONDS_MOST, size, &status);
    if (text && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return text;
    free(text);
    return NULL;
}

struct plait_fabric *plait_scontrol_topology(const char *name,
                                             struct plait_error *err)
{
    char *argv[] = {"scontrol", "show", "topology", (char *)name, NULL};
    struct plait_fabric *fabric = NULL;
    size_t size = 0;
    char *text;

    if (!*name)
        argv[3] = NULL;
    text = run_command(argv, 0, &size);
    if (!text)
        plait_errorf(err, "scontrol show topology%s%.60s failed",
                     *name ? " " : "", name);
    else
        fabric = parse_fabric(text, size, err);
    free(text);
    return fabric;
}

/* The value of KEY in a line of KEY=VALUE pairs; NULL: there is none. */
static const char *find_pair(const char *line, size_t n, const char *key,
                             int *length)
{
    size_t size = strlen(key);

    for (const char *at = line; at < line + n; at++) {
        if ((at > line && at[-1] != ' ') || (size_t)(line + n - at) <= size ||
            strncmp(at, key, size) != 0 || at[size] != '=')
            continue;
        at += size + 1;
        *length = 0;
        while (at + *length < line + n && at[*length] != ' ')
            (*length)++;
        return at;
    }
    return NULL;
}

void plait_scontrol_parse_partition(const char *text, const char *partition,
                                    char *name, size_t size)
{
    *name = '\0';
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        size_t n = strcspn(text, "\n");
        int length = 0, own = 0;
        const char *is = find_pair(
            text, n, partition ? "PartitionName" : "Default", &length);
        const char *topology = find_pair(text, n, "Topology", &own);
        const char *want = partition ? partition : "YES";

        if (!is || (size_t)length != strlen(want) ||
            strncmp(is, want, strlen(want)) != 0)
            continue;
        if (topology && own > 0 && (size_t)own < size &&
            strncmp(topology, "(null)", 6) != 0)
            snprintf(name, size, "%.*s", own, topology);
        return;
    }
}

struct plait_fabric *plait_scontrol_fabric(const char *partition,
                                           struct plait_error *err)
{
    char *argv[] = {"scontrol",        "-o", "show", "partition",
                    (char *)partition, NULL};
    size_t size = 0;
    char name[256] = "", *text = run_command(argv, 0, &size);

    if (text)
        plait_scontrol_parse_partition(text, partition, name, sizeof(name));
    free(text);
    return plait_scontrol_topology(name, err);
}

static bool partition_has_blocks(const char *partition)
{
    struct plait_error ignored;
    struct plait_fabric *fabric = plait_scontrol_fabric(partition, &ignored);
    bool found = fabric && plait_fabric_has_blocks(fabric);

    plait_fabric_destroy(fabric);
    return found;
}

bool plait_scontrol_has_blocks(const char *partitions)
{
    char *copy, *rest = NULL;
    bool found = false;

    if (!partitions)
        return partition_has_blocks(NULL);
    copy = strdup(partitions);
    for (char *one = copy ? strtok_r(copy, ",", &rest) : NULL; one && !found;
         one = strtok_r(NULL, ",", &rest))
        found = partition_has_blocks(one);
    free(copy);
    return found;
}

void plait_step_layout_destroy(struct plait_step_layout *step)
{
    if (!step)
        return;
    for (int i = 0; i < step->nnodes; i++)
        free(step->names[i]);
    free(step->names);
    free(step->tasks);
    free(step->ids);
    free(step);
}

static struct plait_step_layout *allocate_step(size_t most)
{
    struct plait_step_layout *step = calloc(1, sizeof(*step));

    if (!step)
        return NULL;
    step->names = calloc(most, sizeof(*step->names));
    step->tasks = calloc(most, sizeof(*step->tasks));
    step->ids = calloc(most, sizeof(*step->ids));
    if (step->names && step->tasks && step->ids)
        return step;
    plait_step_layout_destroy(step);
    return NULL;
}

/* Insert a node in the order of the nodes' first tasks. */
static int insert_node(struct plait_step_layout *step, int *first, int id,
                       const char *name, int tasks, int task)
{
    char *copy = strdup(name);
    int at = step->nnodes;

    if (!copy)
        return -1;
    for (; at > 0 && first[at - 1] > task; at--) {
        first[at] = first[at - 1];
        step->names[at] = step->names[at - 1];
        step->tasks[at] = step->tasks[at - 1];
        step->ids[at] = step->ids[at - 1];
    }
    first[at] = task;
    step->names[at] = copy;
    step->tasks[at] = tasks;
    step->ids[at] = id;
    step->nnodes++;
    return 0;
}

/* "    8 tasks, 4 nodes (...)", then "Node 0 (n1), 2 task(s): 0 1". */
static struct plait_step_layout *parse_step(const char *text,
                                            struct plait_error *err)
{
    struct plait_step_layout *step = NULL;
    int world, most = 0, *first = NULL, bad = 0;
    const char *line = strstr(text, "tasks, ");

    if (line && sscanf(line, "tasks, %7d nodes", &most) == 1 && most > 0) {
        step = allocate_step((size_t)most);
        first = calloc((size_t)most, sizeof(*first));
    }
    for (line = text; step && first && line && !bad;
         line = strchr(line, '\n'), line += line != NULL) {
        char name[256];
        int id, tasks;

        line += strspn(line, " \t");
        if (sscanf(line, "Node %7d (%255[^)]), %7d task(s): %7d", &id, name,
                   &tasks, &world) != 4)
            continue;
        bad = step->nnodes == most || id < 0 || id >= most || tasks < 1 ||
              insert_node(step, first, id, name, tasks, world) < 0;
    }
    free(first);
    if (step && !bad && step->nnodes == most)
        return step;
    plait_errorf(err, "sattach --layout does not say which tasks are where");
    plait_step_layout_destroy(step);
    return NULL;
}

struct plait_step_layout *plait_scontrol_step(const char *job_step,
                                              struct plait_error *err)
{
    char *argv[] = {"sattach", "--layout", (char *)job_step, NULL};
    struct plait_step_layout *step = NULL;
    size_t size = 0;
    char *text = run_command(argv, 1, &size);

    if (text)
        step = parse_step(text, err);
    else
        plait_errorf(err, "sattach --layout %s failed", job_step);
    free(text);
    return step;
}

/* "sbatch: Job 7 to start at 2026-11-22T20:51:33 using ...", or why not, in a
 * line of its own. */
/* Reads the output of `sbatch --test-only`. */
static int parse_start(const char *text, int64_t *start,
                       struct plait_error *err)
{
    static const char mark[] = " to start at ",
                      name[] = "sbatch: ", failed[] = "allocation failure: ";
    const char *at = strstr(text, mark), *line = text, *why = NULL;
    struct tm tm = {.tm_isdst = -1};

    if (at && sscanf(at + sizeof(mark) - 1, "%4d-%2d-%2dT%2d:%2d:%2d",
                     &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                     &tm.tm_min, &tm.tm_sec) == 6) {
        tm.tm_year -= 1900;
        tm.tm_mon--;
        *start = (int64_t)mktime(&tm);
        return 0;
    }
    for (; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strstr(line, ": error: ") == line + 6 ||
            strstr(line, ": fatal: ") == line + 6 || strstr(line, failed))
            why = line; /* the last one: earlier ones only lead to it */
    if (!why)
        return plait_errorf(err, "sbatch --test-only names no start");
    if (strncmp(why, name, sizeof(name) - 1) == 0)
        why += sizeof(name) - 1;
    if (strncmp(why, "error: ", 7) == 0 || strncmp(why, "fatal: ", 7) == 0)
        why += 7;
    if (strncmp(why, failed, sizeof(failed) - 1) == 0)
        why += sizeof(failed) - 1;
    return plait_errorf(err, "%.*s", (int)strcspn(why, "\n"), why);
}

int plait_sbatch_start(char *const options[], int64_t *start,
                       struct plait_error *err)
{
    char path[PATH_MAX + 16], *text;
    size_t n = 0, size = 0;
    int status = -1, rc;
    char **argv;

    while (options[n])
        n++;
    argv = calloc(n + 4, sizeof(*argv));
    if (!argv)
        return plait_errorf(err, "out of memory");
    find_command("sbatch", path, sizeof(path));
    argv[0] = path;
    argv[1] = "--test-only";
    memcpy(argv + 2, options, n * sizeof(*argv));
    argv[n + 2] = "--wrap=true";
    text = plait_capture(argv, 1, SECONDS_MOST, &size, &status);
    free(argv);
    if (!text || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
        rc = plait_errorf(err, "sbatch cannot be run");
    else
        rc = parse_start(text, start, err);
    free(text);
    return rc;
}

const char *plait_scontrol_value(const char *text, const char *name,
                                 int *length)
{
    size_t n = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        line += strspn(line, " \t");
        if (strncasecmp(line, name, n) == 0 &&
            (line[n] == ' ' || line[n] == '=')) {
            line += n + strspn(line + n, " =");
            *length = (int)strcspn(line, " \n");
            return line;
        }
    }
    return NULL;
}

int plait_scontrol_parse_munge(const char *text, char *socket, size_t size,
                               struct plait_error *err)
{
    static const char munge[] = "auth/munge", key[] = "socket=";
    int n, m = 0;
    const char *type = plait_scontrol_value(text, "AuthType", &n),
               *info = plait_scontrol_value(text, "AuthInfo", &m), *at;

    if (!type || (size_t)n >= size)
        return plait_errorf(err, "scontrol show config names no AuthType");
    snprintf(socket, size, "%.*s", n, type);
    if (strcmp(socket, munge) != 0)
        return 0;
    *socket = '\0';
    at = info ? strstr(info, key) : NULL;
    if (!at || at >= info + m)
        return 1;
    at += sizeof(key) - 1;
    n = (int)strcspn(at, ", \n");
    if ((size_t)n >= size)
        return plait_errorf(err,
                            "the socket in AuthInfo is longer than %zu "
                            "characters",
                            size - 1);
    snprintf(socket, size, "%.*s", n, at);
    return 1;
}

/* The text of slurm.conf, if all of it is there; NULL: it is not. */
static char *read_conf(void)
{
    const char *path = getenv("SLURM_CONF");
    size_t size = 0;
    char *text = NULL;
    int none;
    FILE *file = fopen(path ? path : "/etc/slurm/slurm.conf", "re");

    if (!file)
        return NULL;
    text = malloc(CONF_MOST + 1);
    if (text)
        size = fread(text, 1, CONF_MOST, file);
    fclose(file);
    if (!text)
        return NULL;
    text[size] = '\0';
    /* Files that it includes are not read, so such a file is not used. */
    if (size < CONF_MOST && strlen(text) == size &&
        plait_scontrol_value(text, "ClusterName", &none) &&
        !plait_scontrol_value(text, "Include", &none))
        return text;
    free(text);
    return NULL;
}

static int read_munge(char *socket, size_t size, struct plait_error *err)
{
    char *text = read_conf();
    int n, rc = -1;

    if (!text)
        return plait_errorf(err, "there is no slurm.conf here");
    if (plait_scontrol_value(text, "AuthType", &n))
        rc = plait_scontrol_parse_munge(text, socket, size, err);
    else
        plait_errorf(err, "slurm.conf names no AuthType");
    free(text);
    return rc;
}

/* slurm.conf first: reading it costs the controller nothing. */
int plait_scontrol_munge(char *socket, size_t size, struct plait_error *err)
{
    char *argv[] = {"scontrol", "show", "config", NULL};
    int rc = read_munge(socket, size, err);
    size_t length = 0;
    char *text;

    if (rc >= 0)
        return rc;
    text = run_command(argv, 0, &length);
    if (text)
        rc = plait_scontrol_parse_munge(text, socket, size, err);
    else
        plait_errorf(err, "scontrol show config failed");
    free(text);
    return rc;
}

void plait_scontrol_address(const char *node, char *buf, size_t size)
{
    char *argv[] = {"scontrol", "-o", "show", "node", (char *)node, NULL};
    size_t length = 0;
    char *text = run_command(argv, 0, &length);
    const char *at = text ? strstr(text, " NodeAddr=") : NULL;
    int n = at ? (int)strcspn(at + 10, " \n") : 0;

    if (n > 0 && (size_t)n < size)
        snprintf(buf, size, "%.*s", n, at + 10);
    else
        snprintf(buf, size, "%s", node);
    free(text);
}
