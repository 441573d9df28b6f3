/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/base/capture.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/cli/credential.h"
#include "topology/start/plugstack.h"
#include "topology/start/scontrol.h"

/* plait doctor runs the Slurm commands that an administrator would run, so that
 * it works with every release. */

enum { SECONDS_MOST = 20, PATH_MOST = 1024, ARGUMENTS_MOST = 64 };

struct slurm {
    char *config; /* scontrol show config */
    int major, minor;
    char plugin[PATH_MOST]; /* spank_plait.so, as plugstack.conf names it */
    char listed_in[PATH_MOST];
    char mode[16]; /* "optional" */
};

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

/* The output of a command; NULL, with its last line in `why`, if it fails. */
static char *run_slurm(char *const argv[], char *why, size_t room)
{
    size_t size = 0;
    int status = 0;
    char *text = plait_capture(argv, 1, SECONDS_MOST, &size, &status);

    if (!text) {
        int saved = errno;

        snprintf(why, room, "%s", strerror(saved));
        errno = saved;
        return NULL;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return text;
    snprintf(why, room, "%.200s", last_line(text));
    free(text);
    errno = 0;
    return NULL;
}

/* All of the line: a path may have blanks. */
static void config_value(const char *config, const char *name, char *value,
                         size_t size)
{
    int to_blank;
    const char *found = plait_scontrol_value(config, name, &to_blank);

    if (!found)
        found = "";
    snprintf(value, size, "%.*s", (int)strcspn(found, "\n"), found);
}

static int check_commands(struct slurm *slurm, struct findings *f)
{
    static char srun[] = "srun", version[] = "--version";
    static char scontrol[] = "scontrol", show[] = "show", config[] = "config";
    char *const version_argv[] = {srun, version, NULL};
    char *const config_argv[] = {scontrol, show, config, NULL};
    char why[256], cluster[128], *text, *version_line = NULL;
    const char *digits = NULL;

    errno = 0;
    text = run_slurm(version_argv, why, sizeof(why));
    if (!text && errno == ENOENT) {
        findings_add(f, FINDING_NOTE, "slurm",
                     "no srun on PATH: this machine has no Slurm, and "
                     "start plait-train with mpirun");
        return -1;
    }
    if (text) {
        version_line = last_line(text);
        digits = strpbrk(version_line, "0123456789");
    }
    if (!digits || sscanf(digits, "%d.%d", &slurm->major, &slurm->minor) != 2) {
        findings_add(f, FINDING_BAD, "slurm",
                     "srun is installed, but does not work: %s (is there a "
                     "slurm.conf, in /etc/slurm or where $SLURM_CONF says?)",
                     text ? version_line : why);
        free(text);
        return -1;
    }
    slurm->config = run_slurm(config_argv, why, sizeof(why));
    if (!slurm->config) {
        findings_add(f, FINDING_BAD, "slurm",
                     "%s, but its controller does not answer: %s", version_line,
                     why);
        free(text);
        return -1;
    }
    config_value(slurm->config, "ClusterName", cluster, sizeof(cluster));
    findings_add(f, FINDING_GOOD, "slurm", "%s, cluster %s answers",
                 version_line, cluster);
    free(text);
    return 0;
}

struct plugstack_file {
    const char *path;
    struct findings *findings;
};

static void add_complaint(void *arg, const char *text)
{
    const struct plugstack_file *file = arg;

    findings_add(file->findings, FINDING_BAD, "arguments",
                 "%.200s: %s; the plugin goes on without it", file->path, text);
}

/* One line, such as "optional spank_plait.so cache=none"; lines of other
 * plugins are skipped. */
static void read_line(struct slurm *slurm, struct plugin_setup *setup,
                      struct plugstack_file *file, char *line)
{
    char *save, *mode, *path, *word, *argument[ARGUMENTS_MOST];
    struct plait_plugstack plugstack;
    int n = 0;

    line[strcspn(line, "#\n")] = '\0';
    mode = strtok_r(line, " \t", &save);
    path = mode ? strtok_r(NULL, " \t", &save) : NULL;
    if (!path || !strstr(path, "spank_plait"))
        return;
    snprintf(slurm->plugin, sizeof(slurm->plugin), "%s", path);
    snprintf(slurm->listed_in, sizeof(slurm->listed_in), "%s", file->path);
    snprintf(slurm->mode, sizeof(slurm->mode), "%s", mode);
    while (n < ARGUMENTS_MOST && (word = strtok_r(NULL, " \t", &save)))
        argument[n++] = word;
    plait_plugstack_parse(&plugstack, n, argument, add_complaint, file);
    snprintf(setup->cache, sizeof(setup->cache), "%s",
             plugstack.cache ? plugstack.cache : "");
    snprintf(setup->site, sizeof(setup->site), "%s",
             plugstack.site ? plugstack.site : "");
}

/* As Slurm reads it: `include` takes a pattern, relative to this file. */
static void read_plugstack(struct slurm *slurm, struct plugin_setup *setup,
                           struct findings *f, const char *path, int depth)
{
    struct plugstack_file here = {path, f};
    FILE *file = depth < 8 ? fopen(path, "re") : NULL;
    char line[PATH_MOST], pattern[3 * PATH_MOST];
    glob_t found;

    while (file && fgets(line, sizeof(line), file)) {
        const char *p = line + strspn(line, " \t"), *slash;
        int n;

        if (strncmp(p, "include", 7) != 0 || !isspace((unsigned char)p[7])) {
            read_line(slurm, setup, &here, line);
            continue;
        }
        p += 7 + strspn(p + 7, " \t");
        slash = *p == '/' ? NULL : strrchr(path, '/');
        n = slash ? (int)(slash + 1 - path) : 0;
        snprintf(pattern, sizeof(pattern), "%.*s%.*s", n, path,
                 (int)strcspn(p, " \t\n"), p);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t i = 0; i < found.gl_pathc; i++)
            read_plugstack(slurm, setup, f, found.gl_pathv[i], depth + 1);
        globfree(&found);
    }
    if (file)
        fclose(file);
}

static int check_plugstack(struct slurm *slurm, struct plugin_setup *setup,
                           struct findings *f)
{
    char path[PATH_MOST];

    config_value(slurm->config, "PlugStackConfig", path, sizeof(path));
    if (!path[0] || path[0] == '(')
        snprintf(path, sizeof(path), "/etc/slurm/plugstack.conf");
    if (access(path, R_OK) < 0) {
        findings_add(f, FINDING_BAD, "plugstack",
                     "%s: %s; write 'optional spank_plait.so' into it, on "
                     "every node",
                     path, strerror(errno));
        return -1;
    }
    read_plugstack(slurm, setup, f, path, 0);
    if (!slurm->plugin[0]) {
        findings_add(f, FINDING_BAD, "plugstack",
                     "no line of %s, nor of what it includes, names "
                     "spank_plait.so; add 'optional spank_plait.so'",
                     path);
        return -1;
    }
    findings_add(f,
                 strcmp(slurm->mode, "required") ? FINDING_GOOD : FINDING_NOTE,
                 "plugstack", "%s lists %s as %s%s", slurm->listed_in,
                 slurm->plugin, slurm->mode,
                 strcmp(slurm->mode, "required")
                     ? ""
                     : "; where it is missing, every job fails: optional is "
                       "safer");
    return 0;
}

/* Slurm looks a plain name up in the directories of PluginDir. */
static int find_plugin(struct slurm *slurm, char *dirs, size_t room)
{
    char path[2 * PATH_MOST], list[PATH_MOST], *save, *dir;

    config_value(slurm->config, "PluginDir", dirs, room);
    if (slurm->plugin[0] == '/')
        return access(slurm->plugin, R_OK);
    snprintf(list, sizeof(list), "%s", dirs);
    for (dir = strtok_r(list, ":", &save); dir;
         dir = strtok_r(NULL, ":", &save)) {
        snprintf(path, sizeof(path), "%s/%s", dir, slurm->plugin);
        if (access(path, R_OK) == 0 && strlen(path) < sizeof(slurm->plugin)) {
            memcpy(slurm->plugin, path, strlen(path) + 1);
            return 0;
        }
    }
    return -1;
}

/* The release a plugin was built for is a constant in it. */
static int check_plugin(struct slurm *slurm, struct findings *f)
{
    char dirs[PATH_MOST];
    const uint32_t *version;
    void *plugin;

    if (find_plugin(slurm, dirs, sizeof(dirs)) < 0) {
        findings_add(f, FINDING_BAD, "plugin",
                     "%s does not exist%s%.300s; install the package that was "
                     "built for this Slurm",
                     slurm->plugin, slurm->plugin[0] == '/' ? "" : ", in ",
                     slurm->plugin[0] == '/' ? "" : dirs);
        return -1;
    }
    plugin = dlopen(slurm->plugin, RTLD_LAZY | RTLD_LOCAL);
    version = plugin ? dlsym(plugin, "plugin_version") : NULL;
    if (!version) {
        findings_add(f, FINDING_BAD, "plugin", "%s cannot be loaded: %.200s",
                     slurm->plugin, dlerror());
        return -1;
    }
    if ((int)(*version >> 16 & 0xff) != slurm->major ||
        (int)(*version >> 8 & 0xff) != slurm->minor) {
        findings_add(f, FINDING_BAD, "plugin",
                     "%s was built for Slurm %u.%02u, this is %d.%02d, which "
                     "refuses it%s; rebuild it against these headers",
                     slurm->plugin, *version >> 16 & 0xff, *version >> 8 & 0xff,
                     slurm->major, slurm->minor,
                     strcmp(slurm->mode, "required")
                         ? ""
                         : " and, since it is required, every job");
        dlclose(plugin);
        return -1;
    }
    findings_add(f, FINDING_GOOD, "plugin", "%s is for Slurm %d.%02d",
                 slurm->plugin, slurm->major, slurm->minor);
    dlclose(plugin);
    return 0;
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

static void check_srun(struct srun_check *check, struct findings *f)
{
    static char srun[] = "srun";
    char *const argv[] = {srun, check->option, NULL};
    char why[256], *text = run_slurm(argv, why, sizeof(why));

    if (text && strstr(text, check->word))
        findings_add(f, FINDING_GOOD, check->about, "%s", check->with);
    else
        findings_add(f, check->kind, check->about, "%s", check->without);
    free(text);
}

/* Slurm reserves ports for steps only where MpiParams gives it a range. */
static void check_ports(const struct slurm *slurm, struct findings *f)
{
    char params[256];

    config_value(slurm->config, "MpiParams", params, sizeof(params));
    if (strstr(params, "ports="))
        findings_add(f, FINDING_GOOD, "ports",
                     "Slurm reserves each step's MASTER_PORT (MpiParams=%s)",
                     params);
    else
        findings_add(f, FINDING_NOTE, "ports",
                     "RANK 0's node takes a free MASTER_PORT; with "
                     "MpiParams=ports=61000-65000 in slurm.conf Slurm would "
                     "reserve it against programs outside of planned steps");
}

/* Whether plait run has a secret for the steps that srun starts. */
static void check_munge(const struct slurm *slurm, struct findings *f)
{
    char socket[256], credential[CREDENTIAL_SIZE], text[CREDENTIAL_TEXT];
    struct credentials *credentials = NULL;
    struct plait_error err;
    int kind =
        plait_scontrol_parse_munge(slurm->config, socket, sizeof(socket), &err);

    if (kind == 0)
        plait_errorf(&err, "Slurm uses %.60s", socket);
    if (kind == 1 && (credentials = credentials_create(socket, &err)) &&
        credentials_seal(credentials, "plait doctor", credential,
                         sizeof(credential), &err) == 0 &&
        credentials_open(credentials, credential, 0, text, sizeof(text),
                         &err) == 0)
        findings_add(f, FINDING_GOOD, "munge",
                     "plait run under srun can hand tasks their secret over");
    else
        findings_add(f, FINDING_NOTE, "munge",
                     "%s: plait run under srun gives tasks no PLAIT_SECRET, "
                     "where the user sets none",
                     err.text);
    credentials_destroy(credentials);
}

void doctor_check_slurm(struct findings *findings, struct plugin_setup *setup)
{
    struct slurm slurm = {0};

    if (check_commands(&slurm, findings) == 0) {
        if (check_plugstack(&slurm, setup, findings) == 0 &&
            check_plugin(&slurm, findings) == 0)
            check_srun(&flags_check, findings);
        check_srun(&pmix_check, findings);
        check_ports(&slurm, findings);
        check_munge(&slurm, findings);
    }
    free(slurm.config);
}
