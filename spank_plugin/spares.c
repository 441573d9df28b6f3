/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/spares.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "topology/base/capture.h"
#include "topology/base/secret.h"
#include "topology/base/text.h"
#include "topology/layout/launch.h"
#include "topology/start/preflight.h"

/* The preflight step takes some ten seconds where a link is slow; a step may
 * have to wait for its turn. */
enum { STEP_SECONDS = 600, ARGS_MOST = 24, ARG_MOST = 64 };

/* Room for the nodes to leave out, the user's and those of the preflight. */
enum { LIST_SIZE = 4096 };

static const char said_by[] = "plait: preflight: ";
static const char warning[] = "plait: " PLAIT_PREFLIGHT_WARNING;

void plait_spares_begin(struct plait_options *options)
{
    if (!getenv(PLAIT_ENV_PREFLIGHT_STEP))
        return;
    options->measure_only = 1;
    options->spares = 0;
    options->model[0] = '\0'; /* no model is loaded in that step */
}

int plait_spares_subtract(const struct plait_options *options,
                          struct plait_slurm_options *slurm,
                          struct plait_error *err)
{
    int nodes;

    if (!options->spares || !slurm->tasks)
        return 0;
    if (!slurm->per_node)
        return plait_errorf(
            err,
            "--node-spares=%d leaves out whole nodes: give --nodes "
            "and --ntasks-per-node",
            options->spares);
    nodes = slurm->tasks / slurm->per_node;
    if (options->spares >= nodes)
        return plait_errorf(
            err,
            "--node-spares=%d leaves none of %d node%s; ask for %d "
            "or more",
            options->spares, nodes, nodes == 1 ? "" : "s", options->spares + 1);
    slurm->tasks -= options->spares * slurm->per_node;
    return 0;
}

/* The path is one of the directory that srun was started in: where a task is
 * before its command starts depends on Slurm's release and plugins. */
static int export_report(const char *report)
{
    char path[PATH_MAX + sizeof(((struct plait_options *)0)->report)] = "";
    size_t used = 0;

    if (!*report)
        return unsetenv(PLAIT_ENV_REPORT);
    if (*report != '/') {
        if (!getcwd(path, PATH_MAX))
            return -1;
        used = strlen(path);
        path[used++] = '/';
    }
    strcpy(path + used, report);
    return setenv(PLAIT_ENV_REPORT, path, 1);
}

int plait_spares_export(const struct plait_options *options)
{
    char token[33];

    if (!options->preflight)
        return unsetenv(PLAIT_ENV_PREFLIGHT) | unsetenv(PLAIT_ENV_REPORT);
    return plait_secret_create(token, sizeof(token)) < 0 ||
                   setenv(PLAIT_ENV_PREFLIGHT, token, 1)
               ? -1
               : export_report(options->report);
}

/* ---- the preflight step ---- */

struct command {
    char text[ARGS_MOST][ARG_MOST], self[PATH_MAX], exclude[LIST_SIZE + 16];
    char report[sizeof(((struct plait_options *)0)->report) + 32];
    char *argv[ARGS_MOST + 3];
    int n;
};

static void add_argument(struct command *c, char *argument)
{
    c->argv[++c->n] = argument;
}

static void add_text(struct command *c, const char *text)
{
    snprintf(c->text[c->n], ARG_MOST, "%s", text);
    add_argument(c, c->text[c->n]);
}

static void add_number(struct command *c, const char *flag, int number)
{
    char text[ARG_MOST];

    snprintf(text, sizeof(text), "--%s=%d", flag, number);
    add_text(c, text);
}

/* A pipeline over the nodes: each task has a neighbour on two other nodes, so
 * that all of their links are timed. The user's own flags, if they come with
 * the job, are overridden. */
static int fill_command(struct command *c, int nodes,
                        const struct plait_slurm_options *slurm,
                        const struct plait_options *options)
{
    static const char *const fixed[] = {"--quiet",
                                        "--overlap",
                                        "--mpi=none",
                                        "--input=none",
                                        "--tp=1",
                                        "--cp=1",
                                        "--ep=1",
                                        "--node-preflight",
                                        "--node-spares=0",
                                        "--pin=closest",
                                        "--rendezvous=torch",
                                        "--rank-order=tp-cp-ep-dp-pp"};
    ssize_t size = readlink("/proc/self/exe", c->self, sizeof(c->self) - 1);

    if (size <= 0)
        return -1;
    c->self[size] = '\0';
    c->argv[0] = c->self;
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        add_text(c, fixed[i]);
    add_number(c, "nodes", nodes);
    add_number(c, "ntasks", nodes * slurm->per_node);
    add_number(c, "ntasks-per-node", slurm->per_node);
    add_number(c, "dp", slurm->per_node);
    add_number(c, "pp", nodes);
    if (slurm->cpus && atoi(slurm->cpus) > 0)
        add_number(c, "cpus-per-task", atoi(slurm->cpus));
    if (slurm->exclude) {
        snprintf(c->exclude, sizeof(c->exclude), "--exclude=%s",
                 slurm->exclude);
        add_argument(c, c->exclude);
    }
    if (options->report[0]) {
        snprintf(c->report, sizeof(c->report), "--node-preflight-report=%s",
                 options->report);
        add_argument(c, c->report);
    }
    add_text(c, "true");
    return 0;
}

/* Run the preflight step. What its tasks and srun print (malloc'ed); NULL, with
 * the reason in err. */
static char *run_preflight(const struct plait_slurm_options *slurm, int nodes,
                           const struct plait_options *options, int *status,
                           struct plait_error *err)
{
    struct command *c = calloc(1, sizeof(*c));
    size_t size = 0;
    char *text = NULL;

    if (c && fill_command(c, nodes, slurm, options) == 0 &&
        setenv(PLAIT_ENV_PREFLIGHT_STEP, "1", 1) == 0)
        text = plait_capture(c->argv, 1, STEP_SECONDS, &size, status);
    if (!text)
        plait_errorf(err, "--node-spares: cannot time the nodes: %m");
    unsetenv(PLAIT_ENV_PREFLIGHT_STEP);
    free(c);
    return text;
}

/* ---- what it found ---- */

/* The text behind the next "; " outside parentheses; NULL: there is none. */
static const char *next_part(const char *at)
{
    int depth = 0;

    for (; *at; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0 && at[0] == ';' && at[1] == ' ')
            return at + 2;
    }
    return NULL;
}

/* Append the names in "NODE: REASON; NODE: REASON" to `list`, separated by
 * commas. How many there are, or -1 where the text has another form. */
static int list_nodes(const char *text, char *list, size_t size)
{
    size_t used = strlen(list);
    int n = 0;

    for (const char *at = text; at; n++) {
        size_t name = strcspn(at, ": ;");

        if (!name || strncmp(at + name, ": ", 2) != 0 || used + name + 2 > size)
            return -1;
        used += (size_t)snprintf(list + used, size - used, "%s%.*s",
                                 used ? "," : "", (int)name, at);
        at = next_part(at);
    }
    return n;
}

/* The report of the step's RANK 0 without its prefix, and *said = 1; or else
 * the last line of the output. */
static char *find_line(char *text, int *said)
{
    char *at = strstr(text, said_by), *end;

    *said = at != NULL;
    if (at) {
        at += strlen(said_by);
        at[strcspn(at, "\n")] = '\0';
        return at;
    }
    end = text + strlen(text);
    while (end > text && end[-1] == '\n')
        *--end = '\0';
    at = strrchr(text, '\n');
    return at ? at + 1 : text;
}

/* The step's output is not shown, but a report that was not written is no
 * secret. */
static void pass_warning(const char *text)
{
    const char *at = strstr(text, warning);
    struct plait_error line;

    if (!at)
        return;
    plait_errorf(&line, "%.*s", (int)strcspn(at, "\n"), at);
    slurm_info("%s", line.text);
}

/* 0, with the nodes to leave out appended to `list`; or srun's exit status,
 * with the reason in err. */
static int judge(char *text, int status, int spares, char *list, size_t size,
                 struct plait_error *err)
{
    int said, bad;
    char *line;

    pass_warning(text);
    line = find_line(text, &said);
    plait_text_clean(line);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    bad = said ? list_nodes(line, list, size) : -1;
    if (bad < 0) {
        plait_errorf(err, "--node-spares: cannot time the nodes: %.400s",
                     *line ? line : "srun gave no reason");
        return said ? PLAIT_PREFLIGHT_EXIT : 1;
    }
    if (bad > spares) {
        plait_errorf(err, "preflight: %.400s; --node-spares=%d is not enough",
                     line, spares);
        return PLAIT_PREFLIGHT_EXIT;
    }
    slurm_info("plait: preflight: %s; left out", line);
    return 0;
}

/* The step that was asked for, without the spare nodes: Slurm takes its nodes
 * from those of the job that are not left out. */
static int shrink_step(const struct plait_slurm_options *slurm, int nodes,
                       const char *list, struct plait_error *err)
{
    char text[2][16];

    snprintf(text[0], sizeof(text[0]), "%d", nodes);
    snprintf(text[1], sizeof(text[1]), "%d", nodes * slurm->per_node);
    if (plait_slurm_options_set("nodes", text[0]) < 0 ||
        plait_slurm_options_set("ntasks", text[1]) < 0 ||
        (*list && plait_slurm_options_set("exclude", list) < 0)) {
        plait_errorf(err, "--node-spares: this version of Slurm does not let a "
                          "plugin change --nodes");
        return 1;
    }
    return 0;
}

static int check(const struct plait_slurm_options *slurm,
                 struct plait_error *err)
{
    if (!getenv("SLURM_JOB_ID"))
        return plait_errorf(
            err, "--node-spares needs nodes that are allocated: give it "
                 "to sbatch or salloc, or to srun inside their job");
    if (slurm->nodelist)
        return plait_errorf(
            err, "--node-spares does not work with --nodelist; leave "
                 "one of the two out");
    if (slurm->relative)
        return plait_errorf(
            err, "--node-spares does not work with --relative; leave "
                 "one of the two out");
    if (!slurm->tasks || !slurm->per_node)
        return plait_errorf(err, "--node-spares leaves out whole nodes: give "
                                 "--nodes and --ntasks-per-node");
    if (slurm->exclude && strlen(slurm->exclude) >= LIST_SIZE)
        return plait_errorf(
            err,
            "--node-spares: --exclude is longer than %d characters: "
            "write it as node[1-9]",
            LIST_SIZE - 1);
    return 0;
}

int plait_spares_choose(struct plait_options *options, struct plait_error *err)
{
    struct plait_slurm_options slurm;
    char list[LIST_SIZE] = "", *text;
    int status = 0, nodes, rc;

    if (!options->spares)
        return 0;
    plait_slurm_options_read(&slurm);
    if (check(&slurm, err) < 0)
        return 1;
    nodes = slurm.tasks / slurm.per_node;
    if (slurm.exclude)
        snprintf(list, sizeof(list), "%s", slurm.exclude);
    text = run_preflight(&slurm, nodes, options, &status, err);
    if (!text)
        return 1;
    rc = judge(text, status, options->spares, list, sizeof(list), err);
    free(text);
    if (rc == 0)
        rc = shrink_step(&slurm, nodes - options->spares, list, err);
    options->preflight = 0;
    return rc;
}
