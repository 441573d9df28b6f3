/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin in srun, sbatch and salloc, against a fake Slurm. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_step.h"
#include "spank_plugin/master.h"
#include "spank_plugin/policy.h"
#include "spank_plugin/spares.h"
#include "tap.h"
#include "temp_path.h"
#include "topology/layout/launch.h"
#include "topology/start/scontrol.h"

/* ---- the nodes agree; each one is a process ---- */

/* Returns what node `index` hears: the verdict or, from 100 on, its port. */
static int join(uint32_t index, const char *why, const char *note)
{
    struct plait_error err;
    struct plait_agreement_call call;
    int port = 0;
    enum plait_agreement_answer verdict;

    slurm.context = S_CTX_REMOTE;
    slurm.nodeid = index;
    spank_setenv(NULL, PLAIT_ENV_AGREE, getenv(PLAIT_ENV_AGREE), 1);
    spank_setenv(NULL, "SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1", 1);
    plait_agreement_init(&call);
    plait_agreement_call(&call, NULL, why, note, index == 1 ? 111 : 0);
    verdict = plait_agreement_hear(&call, 0, 1, &port, &err);
    plait_agreement_close(&call);
    return verdict == PLAIT_GO ? port : (int)verdict;
}

/* Whether all four nodes hear `want`, if `first` and the next one join with
 * this text. */
static int all_hear(int want, int first, const char *why, const char *note)
{
    int good = 0, heard = 0, ends[2];
    pid_t pids[4];

    fflush(stdout);
    if (pipe(ends) < 0)
        return 0;
    for (int i = 0; i < 4; i++) {
        int says = i == first || i == first + 1;

        pids[i] = fork();
        if (pids[i] == 0) {
            heard = join((uint32_t)i, says ? why : NULL, says ? note : NULL);
            _exit(write(ends[1], &heard, sizeof(heard)) < 0);
        }
    }
    close(ends[1]);
    for (int i = 0; i < 4; i++) {
        waitpid(pids[i], NULL, 0);
        good += read(ends[0], &heard, sizeof(heard)) == sizeof(heard) &&
                heard == want;
    }
    close(ends[0]);
    return good == 4;
}

static struct plait_agreement *meet(void)
{
    static const char *const nodes[] = {"a", "b", "c", "d"};
    slurm_step_id_t id = {.job_id = 77};
    struct plait_error err;

    slurm.said[0] = '\0';
    return plait_agreement_start(&id, nodes, 4, NULL, &err);
}

static void test_nodes(void)
{
    int quiet = dup(STDERR_FILENO); /* srun closes its own on refusal */
    struct plait_agreement *a;
    struct plait_agreement_call call;

    ok(all_hear(111, 9, NULL, NULL) && !strstr(slurm.said, "too"),
       "all nodes go on, with RANK 0's port");
    a = meet();
    ok(all_hear(111, 2, NULL, "slow"), "a note stops nobody");
    plait_agreement_end(a);
    ok(strstr(slurm.said, "plait: c: slow (on 1 other node too)") != NULL,
       "and is said once: %s", slurm.said);
    a = meet();
    ok(all_hear(PLAIT_STOP, 1, "no GPU", NULL), "one that cannot stops all");
    plait_agreement_end(a);
    ok(strstr(slurm.said, "plait: b: no GPU (on 1 other node too)") != NULL,
       "in one line: %s", slurm.said);
    a = meet();
    plait_agreement_end(a);
    ok(join(0, NULL, NULL) == PLAIT_CUT, "an srun that is gone is not asked");
    dup2(quiet, STDERR_FILENO);
    close(quiet);
    unsetenv(PLAIT_ENV_AGREE);
    plait_agreement_init(&call);
    plait_agreement_call(&call, NULL, NULL, NULL, 0);
    ok(call.verdict == PLAIT_CUT, "nor what its environment says of it");
    spank_unsetenv(NULL, PLAIT_ENV_AGREE);
    plait_agreement_init(&call);
    plait_agreement_call(&call, NULL, NULL, NULL, 0);
    ok(call.verdict == PLAIT_ALONE, "but none is needed");
    slurm.context = S_CTX_LOCAL;
}

/* The tasks of a node, of which the first asks srun and tells the others. */
/* End a child. What only the parent's threads point to is no leak of its. */
static void leave(int failed)
{
    execl(failed ? "/bin/false" : "/bin/true", "leave", NULL);
    _exit(99);
}

static void test_tasks(void)
{
    int quiet = dup(STDERR_FILENO), port = 0, good = 0, status;
    struct plait_agreement *a = NULL;
    struct plait_agreement_call call[4];
    struct plait_error err;

    fake_step_load(S_CTX_LOCAL);
    a = meet();
    slurm.context = S_CTX_REMOTE;
    spank_setenv(NULL, PLAIT_ENV_AGREE, getenv(PLAIT_ENV_AGREE), 1);
    spank_setenv(NULL, "SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1", 1);
    for (int i = 0; i < 4; i++) {
        slurm.nodeid = (uint32_t)i;
        plait_agreement_init(&call[i]);
        plait_agreement_call(&call[i], NULL, NULL, NULL, i == 2 ? 123 : 0);
    }
    fflush(stdout);
    for (int local = 2; local >= 0; local--)
        if (fork() == 0)
            leave(plait_agreement_hear(&call[0], local, 3, &port, &err) !=
                      PLAIT_GO ||
                  port != 123);
    for (int i = 0; i < 4; i++)
        plait_agreement_close(&call[i]);
    for (int i = 0; i < 3; i++)
        good += wait(&status) > 0 && status == 0;
    ok(good == 3, "%d of 3 tasks hear what one of them is told", good);
    plait_agreement_end(a);
    slurm.context = S_CTX_LOCAL;
    dup2(quiet, STDERR_FILENO);
    close(quiet);
}

/* As srun does when all tasks have ended with a status. */
static void end_with(int status)
{
    /* srun does not free it either. */
    static struct plait_agreement *volatile kept;

    kept = meet();
    exit(kept ? status : 99);
}

static void test_silent(void)
{
    int quiet = dup(STDERR_FILENO), status = 0;
    struct plait_agreement *a = meet();
    pid_t pid;

    MPIR_debug_state = 1;
    ok(join(0, NULL, NULL) == PLAIT_STOP,
       "tasks that started elsewhere stop it");
    plait_agreement_end(a);
    slurm.context = S_CTX_LOCAL;
    ok(strstr(slurm.said, "plait: b, c, d: started tasks without a plan") &&
           slurm.killed == 1,
       "and are ended, and named: %s", slurm.said);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        end_with(0);
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 1,
       "srun does not end with 0 either: %d", WEXITSTATUS(status));
    pid = fork();
    if (pid == 0)
        end_with(7);
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 7,
       "its tasks' status stays: %d", WEXITSTATUS(status));
    MPIR_debug_state = 0;
    pid = fork();
    if (pid == 0) {
        meet();
        join(0, "no GPU", NULL);
        exit(128 + SIGTERM); /* Slurm has ended a task */
    }
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 1,
       "one that was refused before its tasks ran ends with 1: %d",
       WEXITSTATUS(status));
    dup2(quiet, STDERR_FILENO);
    close(quiet);
}

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
    slurm.gpus_per_task = NULL;
    slurm.tres_per_task = "cpu=8,gres/gpu:h100=1";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "and GPUs in --tres-per-task");
    slurm.tres_per_task = "cpu=8";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 0,
       "which Slurm makes of --cpus-per-task, too");
    slurm.ntasks_per_node = "2";
    slurm.interactive = "yes";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 0,
       "the shell of salloc has no ranks to be refused");
    slurm.interactive = NULL;
    slurm.async = "set";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "a step that starts when srun has ended is refused");
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
    test_nodes();
    slurm_spank_exit(NULL, 0, NULL);
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "3");
    fake_slurm_flag("placement", "linear");
    ok(slurm_spank_local_user_init(NULL, 0, NULL) == 0 &&
           strstr(slurm.said, "8 tasks are not divisible by --tp=3") &&
           strcmp(getenv(PLAIT_ENV_PLAN), PLAIT_REFUSED_PLAN) == 0,
       "what only srun's nodes tell is refused too");
}

static void test_spares(void)
{
    struct plait_options options;
    struct plait_error err;

    fake_step_load(S_CTX_ALLOCATOR);
    fake_slurm_flag("tp", "2");
    fake_slurm_flag("pp", "3");
    fake_slurm_flag("node-spares", "1");
    slurm.node_count = "4-4";
    slurm.ntasks_per_node = "2";
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 0,
       "three of four nodes fit pp 3");
    fake_slurm_flag("node-spares", "0");
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1, "four do not");
    fake_slurm_flag("node-spares", "4");
    ok(slurm_spank_exit(NULL, 0, NULL) == 0 &&
           fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "no node would be left");
    slurm.ntasks_per_node = NULL;
    slurm.ntasks = "8";
    fake_slurm_flag("node-spares", "1");
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1,
       "nodes of unequally many tasks");
    fake_step_load(S_CTX_LOCAL);
    fake_slurm_flag("tp", "2");
    fake_slurm_flag("node-spares", "1");
    slurm.node_count = "4-4";
    slurm.ntasks_per_node = "2";
    unsetenv("SLURM_JOB_ID");
    ok(fake_step_in_child(slurm_spank_init_post_opt) == 1 && !*slurm.set,
       "an srun that is in no job has no spares");
    setenv("SLURM_JOB_ID", "77", 1);
    plait_options_init(&options);
    options.spares = 1;
    slurm.relative = "1";
    ok(plait_spares_choose(&options, &err) == 1 &&
           strstr(err.text, "--node-spares does not work with --relative"),
       "nor one that counts its nodes: %s", err.text);
    slurm.relative = NULL;
    unsetenv("SLURM_JOB_ID");
    setenv(PLAIT_ENV_PREFLIGHT_STEP, "1", 1);
    ok(slurm_spank_init_post_opt(NULL, 0, NULL) == 0 &&
           strcmp(slurm.set, "kill-on-bad-exit=1 ") == 0,
       "in a preflight step nothing is spared");
    unsetenv(PLAIT_ENV_PREFLIGHT_STEP);
}

static void test_ports(void)
{
    int step, jobs, clash = 0, port, bad = 0;
    char host[32];

    for (step = 1; step < 1000; step++)
        clash +=
            plait_master_port_start(5, 0) == plait_master_port_start(5, step);
    ok(clash == 0, "a thousand steps of a job do not collide");
    for (jobs = 1; jobs < 500; jobs++)
        for (step = 0; step < 3; step++)
            clash += plait_master_port_start(1000000, 0) ==
                     plait_master_port_start(1000000 + (uint32_t)jobs,
                                             (uint32_t)step);
    ok(clash == 0, "nor do 500 jobs of three steps");
    for (step = 0; step < 100000; step++) {
        uint32_t job = (uint32_t)step * 40503u;

        port = plait_master_port_start(job, (uint32_t)step);
        bad += port < 25003 || port > 29399;
    }
    ok(bad == 0, "all below what Linux hands out and torchrun takes (29400, "
                 "29500), above "
                 "Lightning's");
    ok(plait_master_parse("fe80::1:61000", host, sizeof(host), &port) == 0 &&
           strcmp(host, "fe80::1") == 0 && port == 61000,
       "an IPv6 address");
    ok(plait_master_parse("host", host, sizeof(host), &port) < 0 &&
           plait_master_parse(":1", host, sizeof(host), &port) < 0 &&
           plait_master_parse("h:65536", host, sizeof(host), &port) < 0 &&
           plait_master_parse("h:1x", host, sizeof(host), &port) < 0 &&
           plait_master_parse("$(id):1", host, sizeof(host), &port) < 0 &&
           plait_master_parse("a\nb:1", host, sizeof(host), &port) < 0,
       "what is no address");
}

/* ---- policies ---- */

static int policy(const char *partition, const char *gpus, int tp,
                  enum plait_within *within, struct plait_error *err)
{
    static const char text[] =
        "policies:\n"
        "  - {partition: \"gpu-*\", tp_within: nvlink, max: {tp: 8}}\n"
        "  - {gpu: v100, max: {tp: 4}}\n"
        "  - {partition: gpu-off, enabled: false}\n"
        "  - {account: phys, user: \"a*\", qos: low, max: {tp: 2}}\n";
    struct plait_site *site = plait_site_parse("site", text, strlen(text), err);
    struct plait_policy_job job = {.partition = partition, .gpus = gpus};
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
    ok(policy("cpu,gpu-a", NULL, 9, &within, &err) == -1 &&
           policy("gpu-a,cpu", NULL, 9, &within, &err) == -1,
       "each partition of a list counts");
    ok(policy("gpu-off", NULL, 1, &within, &err) == -1 &&
           strstr(err.text, "this partition allows no planned steps"),
       "a switch: %s", err.text);
    ok(policy(NULL, "gpu:v100s:4", 8, &within, &err) == 0,
       "a longer name is another GPU");
}

/* Whether srun refuses a plan over n1-n4 in its last word, which contains
 * `text`. */
static int refuses_plan(const char *text)
{
    fake_slurm_flag("tp", "2");
    fake_slurm_flag("placement", "linear");
    slurm_spank_init_post_opt(NULL, 0, NULL);
    slurm_spank_local_user_init(NULL, 0, NULL);
    return strstr(slurm.said, text) &&
           strcmp(getenv(PLAIT_ENV_PLAN), PLAIT_REFUSED_PLAN) == 0;
}

static void test_node_policies(void)
{
    static const char site[] = "policies: [{gpu: v100, max: {tp: 1}}]\n";
    char path[TEMP_PATH];
    int quiet = dup(STDERR_FILENO),
        fd = mkstemp(temp_path(path, "site")); /* as above */

    if (fd < 0 || write(fd, site, strlen(site)) < 0)
        return;
    close(fd);
    snprintf(fake_step_site, sizeof(fake_step_site), "site=%s", path);
    fake_step_load(S_CTX_LOCAL);
    slurm.gres = "gpu:h100:8";
    slurm.last_gres = "gpu:v100:8";
    ok(refuses_plan("a GPU of type v100 allows --tp=1"),
       "the policy of the last node's GPUs: %s", slurm.said);
    fake_step_load(S_CTX_LOCAL);
    slurm.silent_nodes = 1;
    ok(refuses_plan("slurmctld does not report the GPUs"),
       "what cannot be checked is refused: %s", slurm.said);
    fake_step_load(S_CTX_LOCAL);
    slurm.gres = "gpu:h100:8";
    ok(!refuses_plan("plait:"), "other GPUs are not: %s", slurm.said);
    fake_step_site[0] = '\0';
    unlink(path);
    dup2(quiet, STDERR_FILENO);
    close(quiet);
    unsetenv(PLAIT_ENV_PLAN);
    unsetenv(PLAIT_ENV_AGREE);
    unsetenv(PLAIT_ENV_MASTER);
}

/* ---- steps inside a job ---- */

/* ---- commands started by a task of a planned step ---- */

/* As in sbatch, without a flag of the plugin. */
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
    setenv(PLAIT_ENV_MASTER, "10.0.0.1:26234", 1);
    setenv("MASTER_ADDR", "10.0.0.1", 1);
    setenv("MASTER_PORT", "26234", 1);
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
    fake_slurm_flag("tp", "4"); /* Slurm passes the variable as a flag */
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
    test_tasks();
    test_silent();
    test_spares();
    test_ports();
    test_policies();
    test_node_policies();
    test_stale();
    test_inherited();
    test_settled();
    fake_step_load(S_CTX_ERROR);
    return done_testing();
}
