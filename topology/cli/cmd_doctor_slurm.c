/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/base/capture.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/start/scontrol.h"

/* plait doctor runs the Slurm commands that an administrator would run, so that
 * it works with every release. */

enum { SECONDS_MOST = 20, LINE_MOST = 4096, DEPTH_MOST = 4 };

/* Where configless Slurm has a node's slurmd write what it was sent. */
#define CONFIGLESS "/run/slurm/conf/slurm.conf"
#define CONFIGURED "/etc/slurm/slurm.conf"

/* The last line is the error: warnings come before it. */
static char *last_line(char *text)
{
    size_t n = strlen(text);
    char *line;

    while (n && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

char *doctor_run(char *const argv[], int seconds, char *why, size_t room)
{
    size_t size = 0;
    int status = 0;
    char *text = plait_capture(argv, 1, seconds, &size, &status);

    if (!text) {
        int saved = errno;

        snprintf(why, room, "%s",
                 saved == ETIMEDOUT ? "it does not end" : strerror(saved));
        errno = saved;
        return NULL;
    }
    errno = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return text;
    if (WIFSIGNALED(status))
        snprintf(why, room, "it was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (*last_line(text))
        snprintf(why, room, "%.200s", last_line(text));
    else
        snprintf(why, room, "exit status %d", WEXITSTATUS(status));
    free(text);
    errno = 0;
    return NULL;
}

/* The value of a line "NAME=VALUE" of slurm.conf or of what it includes, where
 * capitals do not matter; the last one counts. */
static void read_setting(const char *path, const char *name, char *value,
                         size_t size, int depth)
{
    FILE *file = depth < DEPTH_MOST ? fopen(path, "re") : NULL;
    char line[LINE_MOST], other[2 * DOCTOR_PATH];
    size_t length = strlen(name);

    while (file && fgets(line, sizeof(line), file)) {
        char *p = line + strspn(line, " \t");
        size_t n;

        p[strcspn(p, "#\n")] = '\0';
        if (strncasecmp(p, "include", 7) == 0 && isspace((unsigned char)p[7])) {
            const char *slash = strrchr(path, '/');

            p += 7 + strspn(p + 7, " \t");
            p[strcspn(p, " \t")] = '\0';
            snprintf(other, sizeof(other), "%.*s%s",
                     *p == '/' || !slash ? 0 : (int)(slash + 1 - path), path,
                     p);
            read_setting(other, name, value, size, depth + 1);
        } else if (strncasecmp(p, name, length) == 0) {
            p += length + strspn(p + length, " \t");
            if (*p != '=')
                continue;
            p += 1 + strspn(p + 1, " \t");
            for (n = strlen(p); n && isspace((unsigned char)p[n - 1]); n--)
                ;
            snprintf(value, size, "%.*s", (int)n, p);
        }
    }
    if (file)
        fclose(file);
}

void doctor_local_setting(const struct doctor *doctor, const char *name,
                          char *value, size_t size)
{
    value[0] = '\0';
    if (doctor->conf[0])
        read_setting(doctor->conf, name, value, size, 0);
}

/* All of the line: a path may have blanks. */
void doctor_setting(const struct doctor *doctor, const char *name, char *value,
                    size_t size)
{
    int to_blank;
    const char *found =
        doctor->config ? plait_scontrol_value(doctor->config, name, &to_blank)
                       : NULL;

    if (found)
        snprintf(value, size, "%.*s", (int)strcspn(found, "\n"), found);
    else
        doctor_local_setting(doctor, name, value, size);
}

/* In the order in which Slurm looks for it. */
static void find_conf(struct doctor *doctor)
{
    const char *named = getenv("SLURM_CONF");
    const char *path = named && *named                 ? named
                       : access(CONFIGURED, R_OK) == 0 ? CONFIGURED
                                                       : CONFIGLESS;

    if (access(path, R_OK) == 0)
        snprintf(doctor->conf, sizeof(doctor->conf), "%s", path);
}

static void read_release(struct doctor *doctor, const char *text)
{
    const char *digits = strpbrk(text, "0123456789");

    if (digits)
        sscanf(digits, "%d.%d", &doctor->major, &doctor->minor);
}

/* srun loads the plugin before it looks at its arguments. */
static void try_srun(struct doctor *doctor)
{
    static char srun[] = "srun", version[] = "--version";
    char *const argv[] = {srun, version, NULL};
    char *text;

    text = doctor_run(argv, SECONDS_MOST, doctor->srun_fails,
                      sizeof(doctor->srun_fails));
    doctor->slurm = text || errno != ENOENT;
    if (text) {
        doctor->srun_fails[0] = '\0';
        read_release(doctor, last_line(text));
    }
    free(text);
}

void doctor_check_slurm(struct doctor *doctor)
{
    static char scontrol[] = "scontrol", show[] = "show", config[] = "config";
    char *const argv[] = {scontrol, show, config, NULL};
    char cluster[128], release[128];

    try_srun(doctor);
    if (!doctor->slurm) {
        findings_add(doctor->findings, FINDING_NOTE, "slurm",
                     "no srun on PATH: this machine has no Slurm; start "
                     "plait-train by plait run or mpirun");
        return;
    }
    find_conf(doctor);
    doctor->config =
        doctor_run(argv, SECONDS_MOST, doctor->why, sizeof(doctor->why));
    if (!doctor->config) {
        findings_add(doctor->findings, FINDING_BAD, "slurm",
                     "the controller does not answer: %s (%s)", doctor->why,
                     doctor->conf[0] ? doctor->conf
                                     : "is there a slurm.conf in /etc/slurm, "
                                       "in /run/slurm/conf or at $SLURM_CONF?");
        return;
    }
    doctor_setting(doctor, "ClusterName", cluster, sizeof(cluster));
    doctor_setting(doctor, "SLURM_VERSION", release, sizeof(release));
    if (!doctor->major)
        read_release(doctor, release);
    findings_add(doctor->findings, FINDING_GOOD, "slurm",
                 "Slurm %s, cluster %s answers", release, cluster);
}

/* A word in srun's output with an option, and the finding with and without that
 * word. */
struct srun_check {
    char option[12];
    const char *word, *about, *with;
    enum finding_kind kind;
    const char *without;
};

static struct srun_check flags_check = {
    "--help",
    "--rendezvous=",
    "flags",
    "srun --help shows --tp, --pp and the other flags",
    FINDING_BAD,
    "srun --help does not show --tp, though the plugin is installed; "
    "'srun -vv true' says why it is not loaded"};
static struct srun_check pmix_check = {
    "--mpi=list",
    "pmix",
    "pmix",
    "srun --mpi=pmix is there for programs that use MPI",
    FINDING_NOTE,
    "this Slurm has no PMIx: MPI programs cannot start under srun, while "
    "plait-train and torch connect over TCP"};

static void check_output(struct srun_check *check, struct findings *f)
{
    static char srun[] = "srun";
    char *const argv[] = {srun, check->option, NULL};
    char why[256], *text = doctor_run(argv, SECONDS_MOST, why, sizeof(why));

    if (text && strstr(text, check->word))
        findings_add(f, FINDING_GOOD, check->about, "%s", check->with);
    else
        findings_add(f, check->kind, check->about, "%s", check->without);
    free(text);
}

/* Slurm reserves ports for steps only where MpiParams gives it a range. */
static void check_ports(struct doctor *doctor)
{
    char params[256];

    if (!doctor->config)
        return;
    doctor_setting(doctor, "MpiParams", params, sizeof(params));
    if (strstr(params, "ports="))
        findings_add(doctor->findings, FINDING_GOOD, "ports",
                     "Slurm reserves each step's MASTER_PORT (MpiParams=%s)",
                     params);
    else
        findings_add(doctor->findings, FINDING_NOTE, "ports",
                     "RANK 0's node takes a free MASTER_PORT; with "
                     "MpiParams=ports=25003-29399 in slurm.conf no two steps "
                     "get the same");
}

void doctor_check_srun(struct doctor *doctor)
{
    struct findings *f = doctor->findings;

    if (doctor->srun_fails[0]) {
        findings_add(f, FINDING_BAD, "srun", "srun does not start: %s%s",
                     doctor->srun_fails,
                     doctor->broken ? " (until the plugin is put right, a '#' "
                                      "before its line helps)"
                     : doctor->config ? ""
                                      : " (see slurm, above)");
        findings_add(f, FINDING_UNCHECKED, "flags",
                     "whether srun has --tp: srun does not start");
        return;
    }
    if (!doctor->broken)
        check_output(&flags_check, f);
    check_output(&pmix_check, f);
    check_ports(doctor);
}
