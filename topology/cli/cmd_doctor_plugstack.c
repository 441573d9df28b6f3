/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/cli/cmd_doctor.h"
#include "topology/start/plugstack.h"

/* plugstack.conf as Slurm reads it on this host, with all that it includes. */

enum { LINE_MOST = 4096, DEPTH_MOST = 8, ARGUMENTS_MOST = 64 };

static const char separators[] = " \t\n";

struct reading {
    struct doctor *doctor;
    const char *path;
    int number; /* of the line */
    int depth;
};

static void add_complaint(void *arg, const char *text)
{
    const struct reading *at = arg;

    findings_add(at->doctor->findings, FINDING_BAD, "arguments",
                 "%.200s:%d: %s", at->path, at->number, text);
}

/* What follows "optional" or "required". Each line that names the plugin is
 * kept; the arguments of the last count here, as they would in the step. */
static void read_plugin(struct reading *at, const char *mode, char **save)
{
    struct doctor *doctor = at->doctor;
    char *name = strtok_r(NULL, separators, save), *word;
    struct plait_plugstack plugstack;
    char *argument[ARGUMENTS_MOST];
    struct plugin_line *line;
    int n = 0;

    if (!name || !strstr(name, "spank_plait") || doctor->nlines == DOCTOR_LINES)
        return;
    if (strcmp(mode, "optional") != 0 && strcmp(mode, "required") != 0) {
        findings_add(doctor->findings, FINDING_BAD, "plugstack",
                     "%.300s:%d begins with '%.40s': Slurm skips the line, "
                     "which must begin with optional or required",
                     at->path, at->number, mode);
        return;
    }
    line = &doctor->lines[doctor->nlines++];
    snprintf(line->mode, sizeof(line->mode), "%s", mode);
    snprintf(line->name, sizeof(line->name), "%s", name);
    snprintf(line->where, sizeof(line->where), "%.1000s:%d", at->path,
             at->number);
    while (n < ARGUMENTS_MOST && (word = strtok_r(NULL, separators, save)))
        argument[n++] = word;
    plait_plugstack_parse(&plugstack, n, argument, add_complaint, at);
    snprintf(doctor->cache, sizeof(doctor->cache), "%s",
             plugstack.cache ? plugstack.cache : "");
    snprintf(doctor->site, sizeof(doctor->site), "%s",
             plugstack.site ? plugstack.site : "");
}

static void read_file(struct doctor *doctor, const char *path, int depth);

/* A pattern, relative to the file that has it. */
static void read_include(struct reading *at, const char *pattern)
{
    const char *slash = pattern[0] == '/' ? NULL : strrchr(at->path, '/');
    char full[2 * LINE_MOST];
    glob_t found;

    snprintf(full, sizeof(full), "%.*s%s",
             slash ? (int)(slash + 1 - at->path) : 0, at->path, pattern);
    if (glob(full, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            read_file(at->doctor, found.gl_pathv[i], at->depth + 1);
        globfree(&found);
    } else {
        findings_add(at->doctor->findings, FINDING_NOTE, "plugstack",
                     "%.200s:%d includes %.200s, and there is no such file%s",
                     at->path, at->number, full,
                     strstr(at->path, "/conf-cache/") ||
                             strncmp(at->path, "/run/slurm/", 11) == 0
                         ? ": configless Slurm sends plugstack.conf alone"
                         : "");
    }
}

static void read_line(struct reading *at, char *line)
{
    char *save, *word;

    line[strcspn(line, "#")] = '\0';
    word = strtok_r(line, separators, &save);
    if (word && strcmp(word, "include") == 0) {
        char *pattern = strtok_r(NULL, separators, &save);

        if (pattern)
            read_include(at, pattern);
    } else if (word) {
        read_plugin(at, word, &save);
    }
}

static void read_file(struct doctor *doctor, const char *path, int depth)
{
    struct reading at = {doctor, path, 0, depth};
    int rc = depth < DEPTH_MOST ? doctor_user_reads(path) : -1;
    FILE *file = depth < DEPTH_MOST ? fopen(path, "re") : NULL;
    char line[LINE_MOST];

    if (rc > 0) {
        findings_add(doctor->findings, FINDING_BAD, "plugstack",
                     "%.300s cannot be read by users: %s; each srun of theirs "
                     "fails: chmod 644, and its folders 755",
                     path, strerror(rc));
        doctor->broken = 1;
    } else if (rc < 0) {
        findings_add(doctor->findings, FINDING_UNCHECKED, "plugstack",
                     "whether users can read %.300s", path);
    }
    while (file && fgets(line, sizeof(line), file)) {
        at.number++;
        read_line(&at, line);
    }
    if (file)
        fclose(file);
}

/* slurm.conf of this host decides; where it says nothing, the file lies beside
 * it. The controller's answer is the default of its own host, and what is in
 * a file that this host has not got. */
static int find_file(struct doctor *doctor, char *path, size_t size)
{
    char theirs[DOCTOR_PATH], conf[DOCTOR_PATH];
    const char *slash;

    doctor_local_setting(doctor, "PlugStackConfig", path, size);
    if (path[0])
        return 0;
    slash = strrchr(doctor->conf, '/');
    if (slash) {
        snprintf(path, size, "%.*s/plugstack.conf", (int)(slash - doctor->conf),
                 doctor->conf);
        return 0;
    }
    if (!doctor->config)
        return -1;
    doctor_setting(doctor, "PlugStackConfig", theirs, sizeof(theirs));
    doctor_setting(doctor, "SLURM_CONF", conf, sizeof(conf));
    if (!theirs[0] || theirs[0] == '(')
        snprintf(path, size, "/etc/slurm/plugstack.conf");
    else
        snprintf(path, size, "%s", theirs);
    return access(path, R_OK);
}

/* Slurm compares no names: it loads a plugin as often as lines name it. */
static void check_twice(struct doctor *doctor)
{
    const struct plugin_line *first = &doctor->lines[0],
                             *last = &doctor->lines[doctor->nlines - 1];

    if (doctor->nlines < 2)
        return;
    findings_add(doctor->findings, FINDING_BAD, "twice",
                 strcmp(first->name, last->name) == 0
                     ? "%.150s and %.150s both name %.120s; remove one of "
                       "these lines"
                     : "%.150s and %.150s name two copies, %.120s and "
                       "%.120s; keep the one that fits this Slurm",
                 first->where, last->where, first->name, last->name);
}

/* A line for a file that is not there makes every srun print an error: it is
 * advised only where the plugin is installed. */
static void add_no_line(struct doctor *doctor, const char *why)
{
    char dirs[DOCTOR_PATH], plugin[DOCTOR_PATH];

    if (doctor_search_plugins(doctor, "spank_plait.so", dirs, plugin) == 0)
        findings_add(doctor->findings, FINDING_BAD, "plugstack",
                     "%s; add 'optional spank_plait.so'", why);
    else
        findings_add(doctor->findings, FINDING_BAD, "plugstack",
                     "%s, and the plugin is not in %.200s, so that srun has no "
                     "flags here; install the package slurm-plait-plugin, "
                     "which adds the line, or, where the plugin is elsewhere, "
                     "add 'optional /PATH/spank_plait.so'",
                     why,
                     dirs[0] ? dirs
                             : "PluginDir (the controller does not say where)");
    doctor->broken = 1;
}

static void check_lines(struct doctor *doctor, const char *path)
{
    char why[DOCTOR_PATH];
    const struct plugin_line *line = &doctor->lines[0];
    int required = 0;

    if (!doctor->nlines) {
        snprintf(why, sizeof(why),
                 "no line of %.200s, nor of what it includes, names "
                 "spank_plait.so",
                 path);
        add_no_line(doctor, why);
        return;
    }
    for (int i = 0; i < doctor->nlines; i++)
        required |= strcmp(doctor->lines[i].mode, "required") == 0;
    findings_add(doctor->findings, required ? FINDING_NOTE : FINDING_GOOD,
                 "plugstack", "%.300s lists %.200s as %s%s", line->where,
                 line->name, required ? "required" : "optional",
                 required ? "; where it is missing, every job fails: optional "
                            "is safer"
                          : "");
    check_twice(doctor);
}

void doctor_check_plugstack(struct doctor *doctor)
{
    char path[DOCTOR_PATH], why[DOCTOR_PATH];

    if (find_file(doctor, path, sizeof(path)) < 0) {
        findings_add(doctor->findings, FINDING_UNCHECKED, "plugstack",
                     "this host keeps no slurm.conf (configless), so what "
                     "srun is sent cannot be read; run plait doctor on a "
                     "compute node");
        doctor->broken = 1;
    } else if (access(path, F_OK) < 0) {
        snprintf(why, sizeof(why), "%.200s: %s", path, strerror(errno));
        add_no_line(doctor, why);
    } else {
        read_file(doctor, path, 0);
        check_lines(doctor, path);
    }
}
