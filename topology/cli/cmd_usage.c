/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "topology/cli/commands.h"
#include "topology/cli/usage.h"

/* plait usage: what planned steps a site has run, and for whom. */

static int print_help(void)
{
    printf("Usage: plait usage [--since WHEN] [--json] [FILE...]\n"
           "       plait usage --queued [--json]\n\n"
           "Show which steps Plait has planned, by user, account, layout and "
           "nodes: from\nslurmd's logs FILE, by default this host's, and from "
           "sacct where Slurm keeps\naccounts.\n\n"
           "  --since WHEN  from this date on (2026-11-01, "
           "2026-11-01T08:00:00), or the\n"
           "                last days or hours (7d, 12h)\n"
           "  --queued      batch jobs, waiting or running, that were "
           "submitted with flags:\n"
           "                as root or SlurmUser on slurmctld's host\n"
           "  --json        each step or job, as JSON\n"
           "  --help        print this\n");
    return PLAIT_EXIT_GOOD;
}

/* "-" is standard input. 0, or the exit status. */
static int read_log(struct usage *usage, const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    int rc, saved;

    if (!file && errno == EACCES)
        return plait_cmd_failed("usage: %s: %s; slurmd's log is for "
                                "administrators: run this as root",
                                path, strerror(errno));
    if (!file)
        return plait_cmd_failed("usage: %s: %s", path, strerror(errno));
    rc = usage_add_file(usage, file);
    saved = errno;
    if (file != stdin)
        fclose(file);
    return rc < 0 ? plait_cmd_failed("usage: %s: %s", path, strerror(saved))
                  : 0;
}

/* SlurmdLogFile has %n for the node, which a host of several nodes has several
 * of, and %h for the host. */
static void make_pattern(const char *setting, char *pattern, size_t size)
{
    size_t n = 0;

    for (; *setting && n + 1 < size; setting++) {
        pattern[n++] = *setting == '%' ? '*' : *setting;
        if (*setting == '%' && setting[1])
            setting++;
    }
    pattern[n] = '\0';
}

/* The logs of the slurmds of this host. 0, or the exit status. */
static int read_own_logs(struct usage *usage, const char *config)
{
    char setting[1024], pattern[1024];
    glob_t found = {0};
    int rc = 0;

    usage_setting(config, "SlurmdLogFile", setting, sizeof(setting));
    if (!*setting)
        return plait_cmd_failed("usage: slurmd logs to syslog here "
                                "(SlurmdLogFile is not set): journalctl -u "
                                "slurmd -o short-iso | plait usage -");
    make_pattern(setting, pattern, sizeof(pattern));
    if (glob(pattern, 0, NULL, &found) != 0)
        rc = plait_cmd_failed("usage: there is no %s here, or it cannot be "
                              "read; name slurmd's logs, or run this as root "
                              "on a node",
                              setting);
    for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
        rc = read_log(usage, found.gl_pathv[i]);
    globfree(&found);
    return rc;
}

/* Print what was read, once sacct has been asked where it has something to say.
 * Returns the exit status. */
static int report(struct usage *usage, const char *config, int json)
{
    char type[128] = "";
    struct plait_error err;
    int accounts, failed = 0, rc = PLAIT_EXIT_GOOD;

    if (config)
        usage_setting(config, "AccountingStorageType", type, sizeof(type));
    accounts = *type && strcmp(type, "accounting_storage/none") != 0;
    usage_merge(usage);
    if (accounts && usage_ask_sacct(usage, &err) < 0) {
        failed = 1;
        accounts = 0;
    }
    if (json)
        rc = usage_print_json(usage, accounts);
    else
        usage_print(usage, accounts);
    fflush(stdout);
    if (failed)
        rc = plait_cmd_failed("usage: %s; accounts and hours are left out",
                              err.text);
    if (usage->undated)
        rc = plait_cmd_failed("usage: %zu line%s left out, without a date "
                              "that --since could be held against; see "
                              "LogTimeFormat in slurm.conf(5)",
                              usage->undated,
                              usage->undated > 1 ? "s are" : " is");
    return rc;
}

static int show(struct usage *usage, char **files, int json)
{
    struct plait_error err;
    char *config = usage_config(&err);
    int rc = 0;

    if (!*files)
        rc = config
                 ? read_own_logs(usage, config)
                 : plait_cmd_failed("usage: %s; name slurmd's logs", err.text);
    for (; *files && rc == 0; files++)
        rc = read_log(usage, *files);
    if (rc == 0)
        rc = report(usage, config, json);
    usage_clear(usage);
    free(config);
    return rc;
}

int plait_cmd_usage(int argc, char **argv)
{
    enum { SINCE = 256, QUEUED, JSON };
    static const struct option options[] = {
        {"since", required_argument, NULL, SINCE},
        {"queued", no_argument, NULL, QUEUED},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {0}};
    struct usage usage = {.since = USAGE_UNDATED};
    struct plait_error err;
    int opt, json = 0, queued = 0;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (opt) {
        case SINCE:
            if (usage_parse_since(optarg, (int64_t)time(NULL), &usage.since,
                                  &err) < 0)
                return plait_cmd_misused("%s", err.text);
            break;
        case QUEUED:
            queued = 1;
            break;
        case JSON:
            json = 1;
            break;
        case 'h':
            return print_help();
        default:
            return plait_cmd_refuse_option(options, "h", argc,
                                           argv); /* getopt_long has said why */
        }
    }
    if (queued && (optind < argc || usage.since != USAGE_UNDATED))
        return plait_cmd_misused("usage: --queued takes neither --since nor "
                                 "files");
    return queued ? usage_queued(json) : show(&usage, argv + optind, json);
}
