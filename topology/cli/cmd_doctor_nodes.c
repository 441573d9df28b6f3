/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/base/capture.h"
#include "topology/base/hostlist.h"
#include "topology/cli/cmd_doctor_meet.h"
#include "topology/cli/cmd_doctor_merge.h"
#include "topology/cli/commands.h"
#include "topology/start/port.h"
#include "topology/start/scontrol.h"

/* plait doctor --nodes: sinfo says which of the nodes can run something, one
 * srun has each of them report, and what they have in common is shown once. */

/* SECONDS: how long srun may take in all, of which START until all nodes are
 * free. ROUNDS: how often the nodes are asked again without those on which
 * Slurm cannot start a task. */
enum { SECONDS = 240, START = 60, ROUNDS = 4 };
/* Exit statuses of timeout(1), which has srun keep its output when it ends it.
 */
enum { ENDED_BY_TIMEOUT = 124, SIGNALED = 128 };

struct round {
    struct doctor_merge *merge;
    char **names, **addresses; /* [n]: of those that can run something */
    int n, asked;              /* asked: all that were named */
    char why[400];             /* what srun said last */
    int cause;                 /* it is why plait does not run on a node */
};

static void print_lines(const char *node, const struct findings *findings,
                        const char *to)
{
    for (int i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->list[i];
        json_t *line = json_pack("{s:s,s:s,s:s,s:s}", "node", node, "kind",
                                 finding_names[finding->kind], "about",
                                 finding->about, "text", finding->text);

        if (line && to[0])
            json_object_set_new(line, "to", json_string(to));
        json_dumpf(line, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(line);
    }
    fflush(stdout);
}

/* What the node found out alone comes first: srun may end the step while it
 * waits for the others. */
void doctor_report(const struct findings *findings)
{
    const char *node = getenv("SLURMD_NODENAME");
    struct findings *network = calloc(1, sizeof(*network));
    char host[256] = "", to[256] = "";

    gethostname(host, sizeof(host) - 1);
    node = node ? node : host;
    print_lines(node, findings, "");
    if (network) {
        doctor_meet_join(network, to, sizeof(to));
        print_lines(node, network, to);
    }
    printf("{\"node\":\"%s\",\"findings\":%d}\n", node,
           findings->n + (network ? network->n : 0));
    free(network);
}

/* Whether a node in this state can run a step now. For one in another state
 * Slurm would wait. */
static bool can_run(const char *state)
{
    static const char *const ready[] = {"idle", "mixed", "allocated",
                                        "completing", "planned"};

    for (size_t i = 0; i < sizeof(ready) / sizeof(ready[0]); i++)
        if (strcmp(state, ready[i]) == 0)
            return true;
    return false;
}

/* A line "NAME ADDRESS STATE" of sinfo. */
static int add_node(struct round *round, const char *line)
{
    char name[256], address[256], state[64], text[200];

    if (sscanf(line, "%255s %255s %63s", name, address, state) != 3)
        return 0;
    for (int i = 0; i < round->n; i++)
        if (strcmp(round->names[i], name) == 0)
            return 0; /* in another partition too */
    if (doctor_merge_expect(round->merge, name) < 0)
        return -1;
    round->asked++;
    if (!can_run(state)) {
        snprintf(text, sizeof(text),
                 "the node is %s; 'scontrol show node' says why", state);
        return doctor_merge_add(round->merge, name, FINDING_UNCHECKED, "report",
                                text);
    }
    round->names[round->n] = strdup(name);
    round->addresses[round->n] = strdup(address);
    round->n++;
    return round->names[round->n - 1] && round->addresses[round->n - 1] ? 0
                                                                        : -1;
}

static int count_lines(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Which of the nodes can run something. -1, with the reason printed. */
static int ask_sinfo(struct round *round, const char *list)
{
    char format[] = "%N %o %T", program[] = "sinfo", header[] = "-h",
         by_node[] = "-N", output[] = "-o", nodes[] = "-n";
    char *const argv[] = {program,      header,
                          by_node,      output,
                          format,       strcmp(list, "all") ? nodes : NULL,
                          (char *)list, NULL};
    char why[256], *text, *save;
    int rc = 0;

    text = doctor_run(argv, START, why, sizeof(why));
    if (!text)
        return plait_cmd_failed("sinfo fails: %s; try 'plait doctor' here",
                                why);
    round->names = calloc((size_t)count_lines(text) + 1, sizeof(char *));
    round->addresses = calloc((size_t)count_lines(text) + 1, sizeof(char *));
    if (!round->names || !round->addresses)
        rc = -1;
    for (char *line = rc ? NULL : strtok_r(text, "\n", &save); line && rc == 0;
         line = strtok_r(NULL, "\n", &save))
        rc = add_node(round, line);
    free(text);
    if (rc < 0)
        return plait_cmd_failed("out of memory");
    return round->asked ? 0
                        : plait_cmd_misused(
                              "doctor: Slurm knows no node of '%.200s'", list);
}

/* srun: error: Task launch for StepId=7.0 failed on node n3: Unspecified error
 */
static int read_launch(const char *line, char node[256], char why[200])
{
    const char *at = strstr(line, "Task launch for "),
               *on = at ? strstr(at, " failed on node ") : NULL;

    return on &&
           sscanf(on, " failed on node %255[^:]: %199[^\n]", node, why) == 2;
}

/* Where Slurm cannot start a task it ends the step on all nodes. The nodes that
 * it names are done with; returns how many, or -1. */
static int drop_unlaunched(struct round *round, const char *text)
{
    char node[256], why[200], finding[300];
    int dropped = 0;

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!read_launch(line, node, why))
            continue;
        for (int i = 0; i < round->n; i++) {
            if (strcmp(round->names[i], node) != 0)
                continue;
            snprintf(finding, sizeof(finding),
                     "Slurm cannot start a task there: %s; slurmd's log there "
                     "says why",
                     why);
            if (doctor_merge_add(round->merge, node, FINDING_BAD, "report",
                                 finding) < 0)
                return -1;
            free(round->names[i]);
            free(round->addresses[i]);
            round->n--;
            round->names[i] = round->names[round->n];
            round->addresses[i] = round->addresses[round->n];
            dropped++;
        }
    }
    return dropped;
}

/* What keeps plait from running on a node, as ld.so and slurmstepd say it, is
 * kept before what srun makes of that, "Exited with exit code 127". */
static void read_reason(struct round *round, const char *line)
{
    static const char *const causes[] = {"error while loading shared libraries",
                                         "execve(): "};

    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        const char *at = strstr(line, causes[i]);

        if (!at)
            continue;
        snprintf(round->why, sizeof(round->why), "%.240s%s", at,
                 strstr(at, "No such file or directory")
                     ? " (the package plait-tools, or a library that it "
                       "needs, is not there)"
                     : "");
        round->cause = 1;
        return;
    }
    if (!round->cause && strncmp(line, "srun: error: ", 13) == 0)
        snprintf(round->why, sizeof(round->why), "srun: %.300s", line + 13);
}

/* The lines of the reports, and what srun says itself. */
static int read_output(struct round *round, char *text)
{
    char *save;
    int rc = 0;

    for (char *line = strtok_r(text, "\n", &save); line && rc >= 0;
         line = strtok_r(NULL, "\n", &save)) {
        rc = doctor_merge_line(round->merge, line);
        if (rc == 0)
            read_reason(round, line);
    }
    return rc < 0 ? -1 : 0;
}

/* "60001-63000" in `text`, after `key`. */
static void read_range(const char *text, const char *key, uint16_t range[2])
{
    const char *at = strstr(text, key);
    unsigned first, last;

    if (at && sscanf(at + strlen(key), "%u-%u", &first, &last) == 2 && first &&
        first <= last && last <= 65535) {
        range[0] = (uint16_t)first;
        range[1] = (uint16_t)last;
    }
}

static struct doctor_meet *open_meeting(const struct round *round)
{
    uint16_t listen[2] = {0, 0},
             ports[2] = {PLAIT_PORT_FIRST, PLAIT_PORT_FIRST + PLAIT_PORTS - 1};
    static char scontrol[] = "scontrol", show[] = "show", config[] = "config";
    char *const argv[] = {scontrol, show, config, NULL};
    struct doctor_meet *meet;
    struct plait_error err;
    char why[256], *text = doctor_run(argv, START, why, sizeof(why));
    const char *value;
    int n;

    value = text ? plait_scontrol_value(text, "SrunPortRange", &n) : NULL;
    if (value)
        read_range(value, "", listen);
    value = text ? plait_scontrol_value(text, "MpiParams", &n) : NULL;
    if (value)
        read_range(value, "ports=", ports);
    free(text);
    meet = doctor_meet_create(round->names, round->addresses, round->n, listen,
                              ports, &err);
    if (!meet)
        fprintf(stderr, "plait: the network cannot be checked: %s\n", err.text);
    return meet;
}

/* Where srun has not said why itself: what timeout(1) made of its end. */
static void explain_status(struct round *round, int status)
{
    if (status == ENDED_BY_TIMEOUT)
        snprintf(round->why, sizeof(round->why), "srun did not end in %d s",
                 SECONDS);
    else if (status > SIGNALED && !round->why[0])
        snprintf(round->why, sizeof(round->why),
                 "srun was killed by signal %d (see 'plait doctor' here)",
                 status - SIGNALED);
}

/* One srun, a task on each node: what all of them print, and its status as
 * timeout(1) has it. --wait: for the others, once a task has ended. */
static char *run_srun(const struct round *round, const char *nodes, int *status)
{
    char self[PATH_MAX] = "", count[32], tasks[32], immediate[32], seconds[16];
    char timeout[] = "timeout", after[] = "--kill-after=10", wait[32];
    char list[] = "--nodelist", srun[] = "srun", each[] = "--ntasks-per-node=1",
         mpi[] = "--mpi=none", export[] = "--export=ALL",
         overlap[] = "--overlap", bad[] = "--kill-on-bad-exit=0",
         doctor[] = "doctor", report[] = "--report";
    char *const argv[] = {
        timeout, after,     seconds,
        srun,    list,      (char *)nodes,
        count,   tasks,     each,
        mpi,     export,    bad,
        wait,    immediate, getenv("SLURM_JOB_ID") ? overlap : mpi,
        self,    doctor,    report,
        NULL};
    size_t size;
    char *text;

    if (readlink("/proc/self/exe", self, sizeof(self) - 1) <= 0)
        snprintf(self, sizeof(self), "plait");
    snprintf(count, sizeof(count), "--nodes=%d", round->n);
    snprintf(tasks, sizeof(tasks), "--ntasks=%d", round->n);
    snprintf(immediate, sizeof(immediate), "--immediate=%d", START);
    snprintf(seconds, sizeof(seconds), "%d", SECONDS);
    snprintf(wait, sizeof(wait), "--wait=%d", DOCTOR_MEET_MOST);
    text = plait_capture(argv, 1, SECONDS + START, &size, status);
    *status = text ? WEXITSTATUS(*status) : ENDED_BY_TIMEOUT;
    return text;
}

/* 1: some could not be started, and the others are to be asked again. */
static int ask_once(struct round *round, int last)
{
    char *nodes =
        plait_hostlist_fold((const char *const *)round->names, round->n);
    struct doctor_meet *meet = nodes ? open_meeting(round) : NULL;
    int rc = nodes ? 0 : -1, status = 0;
    char *text = nodes ? run_srun(round, nodes, &status) : NULL;

    doctor_meet_destroy(meet);
    if (text)
        rc = drop_unlaunched(round, text);
    if (rc == 0 || (rc > 0 && last)) {
        rc = text ? read_output(round, text) : rc;
        explain_status(round, status);
    }
    free(text);
    free(nodes);
    return rc;
}

static int ask_nodes(struct round *round)
{
    int rc = 1;

    for (int i = 1; rc > 0 && round->n && i <= ROUNDS; i++)
        rc = ask_once(round, i == ROUNDS);
    return rc < 0 ? -1 : 0;
}

static void free_round(struct round *round)
{
    for (int i = 0; i < round->n; i++) {
        free(round->names[i]);
        free(round->addresses[i]);
    }
    free(round->names);
    free(round->addresses);
    doctor_merge_destroy(round->merge);
}

static int print_round(const struct round *round, int json, int strict)
{
    int rc = PLAIT_EXIT_GOOD;

    if (json)
        rc = plait_cmd_json(doctor_merge_json(round->merge));
    else
        doctor_merge_print(round->merge);
    return rc != PLAIT_EXIT_GOOD
               ? rc
               : doctor_exit(
                     doctor_merge_count(round->merge, FINDING_BAD),
                     doctor_merge_count(round->merge, FINDING_UNCHECKED),
                     strict);
}

int doctor_nodes(const char *list, const char *version, int json, int strict)
{
    struct round round = {.merge = doctor_merge_create()};
    int rc = round.merge ? ask_sinfo(&round, list) : -1;

    if (rc == 0)
        rc = ask_nodes(&round);
    if (rc == 0)
        rc = doctor_merge_finish(round.merge, version, round.why);
    if (rc == 0)
        rc = print_round(&round, json, strict);
    else if (rc < 0)
        rc = plait_cmd_failed("out of memory");
    free_round(&round);
    return rc;
}
