/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin in srun, sbatch and salloc, against a fake Slurm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_step.h"
#include "spank_plugin/master.h"
#include "spank_plugin/policy.h"
#include "spank_plugin/scontrol.h"
#include "tap.h"
#include "topology/layout/launch.h"

static void test_local(void)
{
    fake_step_load(S_CTX_LOCAL);
    ok(slurm.noptions == PLAIT_NOPTIONS, "all flags are registered");
    ok(fake_slurm_flag("tp", "0") == -1 && strstr(slurm.said, "plait: --tp=0"),
       "a bad flag fails at once");
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "4");
    slurm.node_count = "4-4";
    slurm.ntasks_per_node = "2";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "too wide a tp ends srun before it submits");
    slurm.ntasks_per_node = "4";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 0,
       "one that fits does not");
    slurm.gpus_per_task = "1";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "--gpus-per-task is refused");
    fake_step_load(S_CTX_ALLOCATOR);
    ok(slurm_spank_init_post_opt(NULL, 0, NULL) == 0, "a component");
    fake_slurm_flag("tp", "1");
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "a second one is refused");
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "2");
    fake_slurm_flag("pp", "2");
    fake_slurm_flag("placement", "linear");
    ok(slurm_spank_local_user_init(NULL, 0, NULL) == 0, "srun plans");
    ok(strcmp(getenv(PLAIT_ENV_PLAN),
              "1/2.1.1.2.2/tp-cp-ep-dp-pp/linear/0-3/4*2") == 0,
       "the plan: %s", getenv(PLAIT_ENV_PLAN));
    ok(strncmp(getenv(PLAIT_ENV_MASTER), "10.0.0.1:", 9) == 0,
       "RANK 0 is at %s", getenv(PLAIT_ENV_MASTER));
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "3");
    fake_slurm_flag("placement", "linear");
    ok(slurm_spank_local_user_init(NULL, 0, NULL) == -1 &&
           strstr(slurm.said, "8 tasks are not divisible by --tp=3"),
       "what only srun's nodes tell is refused too");
}

static void test_ports(void)
{
    int step, jobs, clash = 0, port, bad = 0;
    char host[32];

    for (step = 1; step < 1000; step++)
        clash +=
            plait_master_port_alone(5, 0) == plait_master_port_alone(5, step) ||
            plait_master_port_shared(5, 0, "", 0) ==
                plait_master_port_shared(5, step, "", 0);
    ok(clash == 0, "a thousand steps of a job do not collide");
    for (jobs = 1; jobs < 500; jobs++)
        for (step = 0; step < 3; step++)
            clash += plait_master_port_alone(1000000, 0) ==
                     plait_master_port_alone(1000000 + (uint32_t)jobs,
                                             (uint32_t)step);
    ok(clash == 0, "nor do 500 jobs of three steps");
    for (step = 0; step < 100000; step++) {
        uint32_t job = (uint32_t)step * 40503u;
        int other = plait_master_port_shared(job, (uint32_t)step, "0-7", 8);

        port = plait_master_port_alone(job, (uint32_t)step);
        bad += port < 61003 || port > 63249 || other < 63250 || other > 65495;
    }
    ok(bad == 0, "all above what Linux hands out, in their halves");
    ok(plait_master_parse("fe80::1:61000", host, sizeof(host), &port) == 0 &&
           strcmp(host, "fe80::1") == 0 && port == 61000,
       "an IPv6 address");
    ok(plait_master_parse("host", host, sizeof(host), &port) < 0 &&
           plait_master_parse(":1", host, sizeof(host), &port) < 0 &&
           plait_master_parse("h:65536", host, sizeof(host), &port) < 0 &&
           plait_master_parse("h:1x", host, sizeof(host), &port) < 0,
       "what is no address");
}

/* Each of 256 processors belongs to one of the jobs. No two jobs may get the
 * same port, and a job must be able to use every port of its processors. */
static void test_shared_ports(void)
{
    enum { CPUS = 256, JOBS = 9, EACH = PLAIT_PORT_SHARED / CPUS };
    int owner[65536] = {0}, count[JOBS] = {0}, clash = 0, few = 0;
    char list[JOBS][2048] = {""};

    for (int cpu = 0; cpu < CPUS; cpu++) {
        int job = cpu * 7919 % 101 % JOBS;
        size_t used = strlen(list[job]);

        snprintf(list[job] + used, sizeof(list[job]) - used, "%s%d",
                 used ? "," : "", cpu);
        count[job]++;
    }
    for (int job = 0; job < JOBS; job++) {
        int found = 0;

        for (int step = 0; step < count[job] * EACH; step++) {
            int port = plait_master_port_shared(
                100 + (uint32_t)job, (uint32_t)step, list[job], CPUS);

            clash += owner[port] != 0;
            found += owner[port] == 0;
            owner[port] = job + 1;
        }
        few += found != count[job] * EACH;
    }
    ok(clash == 0, "jobs of different processors have different ports");
    ok(few == 0, "and all of their processors'");
    ok(plait_master_port_shared(7, 3, "0-9", 8) ==
               plait_master_port_shared(7, 3, "", 0) &&
           plait_master_port_shared(7, 3, "1-", 8) ==
               plait_master_port_shared(7, 3, "x", 8),
       "a list that cannot be is none");
}

static void test_cpus(void)
{
    static const char text[] =
        "JobId=5 JobName=j Nodes=n1 CPU_IDs=9\n   NumNodes=3 NodeList=n[1-3]\n"
        "     Nodes=n1 CPU_IDs=0-1,4 Mem=0 GRES=\n"
        "     Nodes=n[2-3] CPU_IDs=7 Mem=0 GRES=gpu:2(IDX:0-1)\n";
    char buf[8];

    plait_scontrol_parse_cpus(text, "n1", buf, sizeof(buf));
    ok(strcmp(buf, "0-1,4") == 0, "the job's processors on n1: %s", buf);
    plait_scontrol_parse_cpus(text, "n3", buf, sizeof(buf));
    ok(strcmp(buf, "7") == 0, "on n3: %s", buf);
    plait_scontrol_parse_cpus(text, "n4", buf, sizeof(buf));
    ok(buf[0] == '\0', "on n4: none");
    plait_scontrol_parse_cpus(text, "n1", buf, 5);
    ok(buf[0] == '\0', "more than fit: none");
    plait_scontrol_parse_cpus(" Nodes=n[1 CPU_IDs=0", "n1", buf, sizeof(buf));
    ok(buf[0] == '\0', "a list that is none: none");
}

/* ---- the arguments of plugstack.conf ---- */

static char complaints[1024];

static void add_complaint(const char *text)
{
    size_t used = strlen(complaints);

    snprintf(complaints + used, sizeof(complaints) - used, "%s; ", text);
}

static void test_arguments(void)
{
    static char tp[] = "tp=2", pin[] = "force-pin=none", bogus[] = "bogus=1",
                bad[] = "pp=0", site[] = "site=here", cache[] = "cache=/c",
                seconds[] = "discovery-seconds=7",
                never[] = "discovery-seconds=0", hang[] = "on-hang=unpinned",
                what[] = "on-hang=what";
    char *argv[] = {tp, pin, bogus, bad, site, cache, seconds, never, hang};
    char *wrong[] = {what};
    struct plait_plugstack plugstack;
    struct plait_options options;
    struct plait_error err;

    plait_plugstack_parse(&plugstack, 9, argv, add_complaint);
    ok(strcmp(
           complaints,
           "'bogus=1' is no argument of this plugin; see "
           "plait-plugstack(5); "
           "--pp=0 must be a whole number from 1 to 1048576, or \"auto\"; "
           "'site=here': must be an absolute path; "
           "'discovery-seconds=0': must be a whole number from 1 to 3600; ") ==
           0,
       "what is not understood is told: %s", complaints);
    ok(strcmp(plugstack.cache, "/c") == 0 && !plugstack.site,
       "the rest counts");
    ok(plugstack.discovery_seconds == 7 && plugstack.unpinned,
       "discovery's time, and what is done when it is over");
    plait_options_init(&options);
    plait_options_set(&options, PLAIT_OPTION_SHOW_PLAN, NULL, &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) == 0 &&
           options.layout.size[PLAIT_TP] == 2 && !options.pin,
       "defaults");
    plait_options_init(&options);
    plait_options_set(&options, (enum plait_option)PLAIT_TP, "4", &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) == 0 &&
           options.layout.size[PLAIT_TP] == 4,
       "the user's flag wins over a default");
    plait_options_set(&options, PLAIT_OPTION_PIN, "none", &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) == 0,
       "what is forced may be given");
    plait_options_set(&options, PLAIT_OPTION_PIN, "closest", &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) < 0 &&
           strstr(err.text, "only --pin=none"),
       "and nothing else: %s", err.text);
    complaints[0] = '\0';
    plait_plugstack_parse(&plugstack, 1, wrong, add_complaint);
    ok(strcmp(complaints, "'on-hang=what': must be refuse or unpinned; ") == 0,
       "a choice that is none: %s", complaints);
    plait_plugstack_parse(&plugstack, 0, NULL, add_complaint);
    ok(plugstack.discovery_seconds == 10 && !plugstack.unpinned,
       "ten seconds, and then the step is refused");
}

static int policy(const char *partition, const char *gpus, int tp,
                  enum plait_within *within, struct plait_error *err)
{
    static const char text[] =
        "policies:\n"
        "  - {partition: \"gpu-*\", tp_within: nvlink, max: {tp: 8}}\n"
        "  - {gpu: v100, max: {tp: 4}}\n";
    struct plait_site *site = plait_site_parse("site", text, strlen(text), err);
    struct plait_job job = {partition, gpus};
    struct plait_layout layout;
    int rc;

    if (!site)
        return -2;
    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = tp;
    rc = plait_policy_check(site, &job, &layout, within, err);
    plait_site_destroy(site);
    return rc;
}

static void test_policies(void)
{
    enum plait_within within = PLAIT_WITHIN_NODE;
    struct plait_error err = {""};

    ok(policy("gpu-a", NULL, 8, &within, &err) == 0 &&
           within == PLAIT_WITHIN_NVLINK,
       "a partition's policy %s", err.text);
    ok(policy("cpu", "gpu:h100:8", 99, &within, &err) == 0 &&
           within == PLAIT_WITHIN_NODE,
       "is not another's");
    ok(policy("gpu-a", NULL, 9, &within, &err) == -1 &&
           strstr(err.text, "this partition allows --tp=8 at most"),
       "its limit: %s", err.text);
    ok(policy(NULL, "gpu:V100:4(S:0-1)", 8, &within, &err) == -1 &&
           strstr(err.text, "a GPU of type v100 allows --tp=4"),
       "a GPU's limit: %s", err.text);
    ok(policy(NULL, "gpu:v100s:4", 8, &within, &err) == 0,
       "a longer name is another GPU");
}

/* ---- steps inside a job ---- */

/* ---- what is started by a task of a planned step ---- */

/* As a callback of sbatch's, without a flag of ours. */
static void forget(void)
{
    fake_step_load(S_CTX_ALLOCATOR);
    slurm_spank_init_post_opt(NULL, 0, NULL);
}

static void set_stale(void)
{
    setenv("PLAIT_RANK", "1", 1);
    setenv("PLAIT_SECRET", "s", 1);
    setenv(PLAIT_ENV_STEP_SECRET, "s", 1);
    setenv(PLAIT_ENV_PLAN, "1/2.1.1.1.1/tp-cp-ep-dp-pp/topology/0/1*2", 1);
    setenv(PLAIT_ENV_MASTER, "10.0.0.1:61234", 1);
    setenv("MASTER_ADDR", "10.0.0.1", 1);
    setenv("MASTER_PORT", "61234", 1);
    setenv("RANK", "1", 1);
}

static void test_stale(void)
{
    set_stale();
    forget();
    ok(!getenv("PLAIT_RANK") && !getenv("PLAIT_SECRET") &&
           !getenv(PLAIT_ENV_STEP_SECRET) && !getenv(PLAIT_ENV_PLAN) &&
           !getenv(PLAIT_ENV_MASTER) && !getenv("MASTER_ADDR") &&
           !getenv("MASTER_PORT") && !getenv("RANK"),
       "nothing of the outer plan is left");
    set_stale();
    setenv("MASTER_PORT", "7000", 1);
    forget();
    ok(getenv("MASTER_PORT") && !strcmp(getenv("MASTER_PORT"), "7000") &&
           !getenv("MASTER_ADDR"),
       "but a port that the user chose since");
    set_stale();
    setenv(PLAIT_ENV_MASTER, "", 1);
    forget();
    ok(getenv("RANK") && getenv("MASTER_PORT") && !getenv("PLAIT_RANK"),
       "and what is somebody else's, with --rendezvous=none");
    forget();
    setenv(PLAIT_ENV_PLAN, PLAIT_NO_PLAN, 1);
    forget();
    ok(getenv("RANK") && getenv("MASTER_ADDR"),
       "outside of planned steps nothing is touched");
    unsetenv("RANK");
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    unsetenv(PLAIT_ENV_PLAN);
}

#define INHERITED_TP "SLURM_SPANK__SLURM_SPANK_OPTION_plait_tp"

static void test_inherited(void)
{
    setenv(INHERITED_TP, "4", 1);
    setenv("SLURM_NTASKS", "16", 1);
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "4"); /* as Slurm does for the variable */
    slurm.ntasks = "1";
    setenv("PLAIT_RANK", "3", 1);
    setenv("RANK", "3", 1);
    ok(slurm_spank_init_post_opt(NULL, 0, NULL) == 0 &&
           strstr(slurm.said, "does not fit this step of 1 task"),
       "a helper that named no flag starts: %s", slurm.said);
    ok(slurm_spank_local_user_init(NULL, 0, NULL) == 0 &&
           strcmp(getenv(PLAIT_ENV_PLAN), PLAIT_NO_PLAN) == 0 &&
           !getenv("RANK") && !getenv("PLAIT_RANK"),
       "without a rank");
    fake_step_load(S_CTX_REMOTE);
    spank_setenv(NULL, PLAIT_ENV_PLAN, PLAIT_NO_PLAN, 1);
    fake_slurm_flag("tp", "4");
    ok(slurm_spank_user_init(NULL, 0, NULL) == 0 &&
           slurm_spank_task_init(NULL, 0, NULL) == 0 &&
           strcmp(fake_slurm_env("PLAIT_RANK"), "(unset)") == 0,
       "its tasks get no variables");
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "4");
    fake_slurm_flag("tp", "4");
    slurm.ntasks = "1";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "one that named the flag is refused");
    setenv("SLURM_NTASKS", "6", 1);
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "4");
    slurm.ntasks = "6";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "and so is the job's own step");
    unsetenv(INHERITED_TP);
    unsetenv("SLURM_NTASKS");
}

static void test_settled(void)
{
    char secret[PLAIT_SECRET_SIZE];

    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "2");
    ok(slurm_spank_init_post_opt(NULL, 0, NULL) == 0 &&
           strcmp(slurm.set, "kill-on-bad-exit=1 ") == 0,
       "a rank that dies ends the step");
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "2");
    slurm.mpi_params = "ports=12000-12999";
    slurm_spank_init_post_opt(NULL, 0, NULL);
    ok(strstr(slurm.set, "resv-ports=1") != NULL,
       "Slurm reserves MASTER_PORT where it can");
    fake_slurm_flag("placement", "linear");
    slurm_spank_local_user_init(NULL, 0, NULL);
    snprintf(secret, sizeof(secret), "%s", getenv(PLAIT_ENV_STEP_SECRET));
    slurm_spank_local_user_init(NULL, 0, NULL);
    ok(strlen(secret) == 64 &&
           strcmp(secret, getenv(PLAIT_ENV_STEP_SECRET)) != 0,
       "each step has a secret of its own");
    fake_step_start();
    spank_setenv(NULL, PLAIT_ENV_STEP_SECRET, secret, 1);
    slurm_spank_user_init(NULL, 0, NULL);
    slurm_spank_task_init(NULL, 0, NULL);
    ok(strcmp(fake_slurm_env("PLAIT_SECRET"), secret) == 0,
       "which its tasks get");
    slurm_spank_exit(NULL, 0, NULL);
}

int main(void)
{
    unsetenv("MASTER_PORT");
    unsetenv("PLAIT_RANK");
    unsetenv("SLURM_HET_SIZE");
    unsetenv("SLURM_STEP_RESV_PORTS");
    test_local();
    test_ports();
    test_shared_ports();
    test_cpus();
    test_arguments();
    test_policies();
    test_stale();
    test_inherited();
    test_settled();
    fake_step_load(S_CTX_ERROR);
    return done_testing();
}
