/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/cli/commands.h"
#include "topology/start/policy_match.h"

/* plait site --explain: which policies apply to a job, and why. */

static int print_help(void)
{
    printf("Usage: plait site --explain [OPTION...]\n\n"
           "Show which policies of the site file apply to such a job, and why "
           "the others\ndo not.\n\n"
           "  --explain          the policies one by one\n"
           "  -p, --partition NAME\n"
           "  -A, --account NAME\n"
           "  -q, --qos NAME\n"
           "  -u, --user NAME    the job's, as sbatch's\n"
           "  --gpus TYPE        Slurm's name of the type of GPU\n"
           "  --file FILE        the site file\n"
           "  --help             print this\n");
    return PLAIT_EXIT_GOOD;
}

/* The keys that say which jobs a policy is about. */
struct key {
    const char *name, *wanted, *given;
};

enum { KEYS = 5 };

static void list_keys(const struct plait_policy *policy,
                      const struct plait_policy_job *job, struct key keys[KEYS])
{
    const struct key list[KEYS] = {
        {"partition", policy->partition, job->partition},
        {"user", policy->user, job->user},
        {"account", policy->account, job->account},
        {"qos", policy->qos, job->qos},
        {"gpu", policy->gpu, job->gpus}};

    memcpy(keys, list, sizeof(list));
}

/* A policy with this key of `policy` alone tells whether that one matches. */
static bool key_matches(const struct plait_policy *policy, int key,
                        const struct plait_policy_job *job)
{
    struct plait_policy one = {0};

    one.partition = key == 0 ? policy->partition : NULL;
    one.user = key == 1 ? policy->user : NULL;
    one.account = key == 2 ? policy->account : NULL;
    one.qos = key == 3 ? policy->qos : NULL;
    one.gpu = key == 4 ? policy->gpu : NULL;
    return plait_policy_applies(&one, job);
}

static void print_limits(const struct plait_policy *policy)
{
    int any = 0;

    if (!policy->enabled) {
        printf("    no planned step may start (enabled: false)\n");
        return;
    }
    for (int a = 0; a < PLAIT_NAXES; a++) {
        if (policy->most[a]) {
            printf("    --%s=%d at most\n", plait_axis_names[a],
                   policy->most[a]);
            any = 1;
        }
    }
    if (policy->tp_within == PLAIT_WITHIN_NVLINK)
        printf("    tp groups stay within GPUs that NVLink joins\n");
    else if (!any)
        printf("    it sets no limit\n");
}

static void print_policy(int number, const struct plait_policy *policy,
                         const struct plait_policy_job *job)
{
    int holds = plait_policy_applies(policy, job), any = 0;
    struct key keys[KEYS];

    list_keys(policy, job, keys);
    printf("policy %d %s:", number, holds ? "applies" : "does not apply");
    for (int k = 0; k < KEYS; k++) {
        if (!keys[k].wanted || (!holds && key_matches(policy, k, job)))
            continue;
        printf("%s %s %s %s %s", any ? "," : "", keys[k].name,
               keys[k].given ? keys[k].given : "(not given)",
               holds ? "matches" : "is not", keys[k].wanted);
        any = 1;
    }
    printf("%s\n", any ? "" : " it is for all jobs");
    if (holds)
        print_limits(policy);
}

static int explain(const char *path, const struct plait_policy_job *job)
{
    struct plait_error err;
    struct plait_site *site = path ? plait_site_create(path, &err) : NULL;
    int holding = 0;

    if (!path) {
        printf("There is no site file (%s), so no policy applies.\n",
               PLAIT_SITE_FILE);
        return PLAIT_EXIT_GOOD;
    }
    if (!site)
        return plait_cmd_failed("%s; no planned step can start until the site "
                                "file is corrected",
                                err.text);
    printf("%s\n", path);
    for (int i = 0; i < site->npolicies; i++) {
        print_policy(i + 1, &site->policies[i], job);
        holding += plait_policy_applies(&site->policies[i], job) != 0;
    }
    printf("%d of %d policies %s%s\n", holding, site->npolicies,
           holding == 1 ? "applies" : "apply",
           holding > 1 ? "; a job must comply with all of them" : "");
    plait_site_destroy(site);
    return PLAIT_EXIT_GOOD;
}

int plait_cmd_site(int argc, char **argv)
{
    enum { EXPLAIN = 256, GPUS, SITE_FILE };
    static const struct option options[] = {
        {"explain", no_argument, NULL, EXPLAIN},
        {"partition", required_argument, NULL, 'p'},
        {"account", required_argument, NULL, 'A'},
        {"qos", required_argument, NULL, 'q'},
        {"user", required_argument, NULL, 'u'},
        {"gpus", required_argument, NULL, GPUS},
        {"file", required_argument, NULL, SITE_FILE},
        {"help", no_argument, NULL, 'h'},
        {0}};
    const char *path = plait_site_path();
    struct plait_policy_job job = {0};
    int opt, explains = 0;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "p:A:q:u:h", options, NULL)) != -1) {
        switch (opt) {
        case EXPLAIN:
            explains = 1;
            break;
        case 'p':
            job.partition = optarg;
            break;
        case 'A':
            job.account = optarg;
            break;
        case 'q':
            job.qos = optarg;
            break;
        case 'u':
            job.user = optarg;
            break;
        case GPUS:
            job.gpus = optarg;
            break;
        case SITE_FILE:
            path = optarg;
            break;
        case 'h':
            return print_help();
        default:
            return plait_cmd_refuse_option(options, "p:A:q:u:h", argc,
                                           argv); /* getopt_long has said why */
        }
    }
    if (optind < argc)
        return plait_cmd_misused("site: unexpected argument '%s'",
                                 argv[optind]);
    if (!explains)
        return plait_cmd_misused("site: --explain is missing");
    return explain(path, &job);
}
