/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spank_plugin/master.h"
#include "spank_plugin/plugin.h"
#include "tap.h"

/* The plugin in one process with the Slurm it talks to: the functions below
 * stand for slurmstepd's and srun's, and keep to what was seen of those. */
static struct {
    spank_context_t context;
    struct spank_option options[32];
    int noptions;
    uint32_t job, step, nnodes, nodeid, local_tasks, tasks;
    int local;
    char *env[128];
    char said[4096];
} slurm;

spank_context_t spank_context(void)
{
    return slurm.context;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank;
    slurm.options[slurm.noptions++] = *option;
    return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    uint32_t value = 0;
    va_list ap;

    (void)spank;
    va_start(ap, item);
    switch (item) {
    case S_JOB_ID: value = slurm.job; break;
    case S_JOB_STEPID: value = slurm.step; break;
    case S_JOB_NNODES: value = slurm.nnodes; break;
    case S_JOB_NODEID: value = slurm.nodeid; break;
    case S_JOB_LOCAL_TASK_COUNT: value = slurm.local_tasks; break;
    case S_JOB_TOTAL_TASK_COUNT: value = slurm.tasks; break;
    case S_TASK_ID: value = (uint32_t)slurm.local; break;
    default: va_end(ap); return ESPANK_BAD_ARG;
    }
    *va_arg(ap, uint32_t *) = value;
    va_end(ap);
    return ESPANK_SUCCESS;
}

static char **find_env(const char *name)
{
    size_t n = strlen(name);
    int i;

    for (i = 0; slurm.env[i]; i++)
        if (strncmp(slurm.env[i], name, n) == 0 && slurm.env[i][n] == '=')
            break;
    return &slurm.env[i];
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buf, int size)
{
    const char *found = *find_env(name);

    (void)spank;
    if (!found)
        return ESPANK_ENV_NOEXIST;
    found += strlen(name) + 1;
    snprintf(buf, (size_t)size, "%s", found);
    return strlen(found) < (size_t)size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value,
                         int overwrite)
{
    char **at = find_env(name), *text;
    size_t size = strlen(name) + strlen(value) + 2;

    (void)spank;
    (void)overwrite;
    text = malloc(size);
    if (!text)
        abort();
    snprintf(text, size, "%s=%s", name, value);
    free(*at);
    *at = text;
    return ESPANK_SUCCESS;
}

void slurm_error(const char *format, ...)
{
    size_t used = strlen(slurm.said);
    va_list ap;

    va_start(ap, format);
    vsnprintf(slurm.said + used, sizeof(slurm.said) - used, format, ap);
    va_end(ap);
}

char *slurm_strerror(int error)
{
    return strerror(error);
}

static char *four_nodes = (char *)"n[1-4]";
static uint16_t four_tasks[] = {2, 2, 2, 2};

slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *id)
{
    static slurm_step_layout_t layout;

    if (id->job_id != slurm.job || id->step_id != slurm.step)
        return NULL;
    layout.node_cnt = 4;
    layout.node_list = four_nodes;
    layout.tasks = four_tasks;
    layout.task_cnt = 8;
    return &layout;
}

void slurm_job_step_layout_free(slurm_step_layout_t *layout)
{
    (void)layout;
}

int slurm_load_node_single(node_info_msg_t **info, char *name, uint16_t flags)
{
    static node_info_t node;
    static node_info_msg_t message;

    (void)flags;
    node.node_addr = strcmp(name, "n1") == 0 ? (char *)"10.0.0.1" : name;
    message.record_count = 1;
    message.node_array = &node;
    *info = &message;
    return SLURM_SUCCESS;
}

void slurm_free_node_info_msg(node_info_msg_t *info)
{
    (void)info;
}

/* What libslurmfull tells of srun's own options. */
int opt;
static const char *asked_ntasks, *asked_per_node, *asked_nodes, *asked_gpus;
char *slurm_option_get(void *options, const char *name);
bool slurm_option_isset(void *options, const char *name);

char *slurm_option_get(void *options, const char *name)
{
    const char *text = strcmp(name, "ntasks") == 0          ? asked_ntasks
                       : strcmp(name, "ntasks-per-node") == 0 ? asked_per_node
                       : strcmp(name, "nodes") == 0           ? asked_nodes
                       : strcmp(name, "gpus-per-task") == 0   ? asked_gpus
                                                              : NULL;

    return options == &opt ? (char *)text : NULL;
}

bool slurm_option_isset(void *options, const char *name)
{
    return slurm_option_get(options, name) != NULL;
}

/* ---- the tests ---- */

static void clear(spank_context_t context)
{
    for (int i = 0; slurm.env[i]; i++)
        free(slurm.env[i]);
    memset(&slurm, 0, sizeof(slurm));
    slurm.context = context;
    slurm.job = 77;
    slurm.nnodes = 4;
    slurm.nodeid = 2;
    slurm.local_tasks = 2;
    slurm.tasks = 8;
    asked_ntasks = asked_per_node = asked_nodes = asked_gpus = NULL;
    slurm_spank_init(NULL, 0, NULL);
}

static int flag(const char *name, const char *value)
{
    for (int i = 0; i < slurm.noptions; i++)
        if (strcmp(slurm.options[i].name, name) == 0)
            return slurm.options[i].cb(slurm.options[i].val, value,
                                       slurm.context == S_CTX_REMOTE);
    return -2;
}

static const char *value_of(const char *name)
{
    const char *found = *find_env(name);

    return found ? found + strlen(name) + 1 : "(unset)";
}

/* Exit status of a callback that may end its process, as a task does. */
static int in_child(int (*callback)(spank_t, int, char **))
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(callback(NULL, 0, NULL) == 0 ? 0 : 2);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define PLAN "1/2.1.1.2.2/tp-cp-ep-dp-pp/topology/0,2,1,3/4*2"

static void good_step(void)
{
    clear(S_CTX_REMOTE);
    spank_setenv(NULL, PLAIT_ENV_PLAN, PLAN, 1);
    spank_setenv(NULL, PLAIT_ENV_MASTER, "10.0.0.1:61234", 1);
    spank_setenv(NULL, PLAIT_ENV_KEEP, "", 1);
    flag("tp", "2");
    flag("pp", "2");
}

static void test_task(void)
{
    good_step();
    slurm.local = 1;
    ok(slurm_spank_user_init(NULL, 0, NULL) == 0, "user_init");
    ok(slurm_spank_task_init(NULL, 0, NULL) == 0, "task_init");
    ok(strcmp(value_of("RANK"), "3") == 0, "RANK %s", value_of("RANK"));
    ok(strcmp(value_of("PLAIT_DP_RANK"), "1") == 0, "its coordinate");
    ok(strcmp(value_of("NODE_RANK"), "1") == 0, "its node");
    ok(strcmp(value_of("MASTER_ADDR"), "10.0.0.1") == 0, "MASTER_ADDR");
    ok(strcmp(value_of("PLAIT_JOBID"), "77.0") == 0, "job and step");
    ok(slurm_spank_exit(NULL, 0, NULL) == 0, "exit");
}

static void test_untouched(void)
{
    clear(S_CTX_REMOTE);
    ok(slurm_spank_user_init(NULL, 0, NULL) == 0 &&
           slurm_spank_task_init(NULL, 0, NULL) == 0 && !slurm.env[0] &&
           !slurm.said[0],
       "without flags nothing happens");
    for (uint32_t step = 0xfffffffa; step <= 0xfffffffd; step++) {
        good_step();
        slurm.step = step;
        ok(slurm_spank_user_init(NULL, 0, NULL) == 0 &&
               slurm_spank_task_init(NULL, 0, NULL) == 0 &&
               !*find_env("RANK"),
           "step %x is no rank", step);
    }
}

/* Each lie is found before a task starts, and no earlier callback fails. */
static void refuses(const char *what)
{
    ok(slurm_spank_user_init(NULL, 0, NULL) == 0 &&
           in_child(slurm_spank_task_init) == 1,
       "%s stops the task", what);
    slurm_spank_exit(NULL, 0, NULL);
}

static void test_lies(void)
{
    good_step();
    ok(flag("tp", "bad") == 0, "a bad flag does not drain the node");
    refuses("a bad flag");
    good_step();
    flag("tp", "4");
    refuses("a flag that contradicts the plan");
    good_step();
    slurm.tasks = 16;
    refuses("another number of tasks");
    good_step();
    slurm.nodeid = 9;
    refuses("another node");
    good_step();
    spank_setenv(NULL, PLAIT_ENV_PLAN, "", 1);
    refuses("an empty plan");
    good_step();
    spank_setenv(NULL, PLAIT_ENV_MASTER, "10.0.0.1:0", 1);
    refuses("a bad port");
    good_step();
    spank_setenv(NULL, "SLURM_HET_SIZE", "2", 1);
    refuses("a het job");
    good_step();
    spank_setenv(NULL, "SLURM_STEP_GPUS", "0", 1);
    spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", "0", 1);
    refuses("one GPU for two tasks");
}

static void test_local(void)
{
    clear(S_CTX_LOCAL);
    ok(slurm.noptions == PLAIT_NOPTIONS, "all flags are registered");
    ok(flag("tp", "0") == -1 && strstr(slurm.said, "plait: --tp=0"),
       "a bad flag fails at once");
    clear(S_CTX_LOCAL);
    flag("tp", "4");
    asked_nodes = "4-4";
    asked_per_node = "2";
    ok(in_child(slurm_spank_init_post_opt) == 1,
       "too wide a tp ends srun before it submits");
    asked_per_node = "4";
    ok(in_child(slurm_spank_init_post_opt) == 0, "one that fits does not");
    asked_gpus = "1";
    ok(in_child(slurm_spank_init_post_opt) == 1, "--gpus-per-task is refused");
    clear(S_CTX_LOCAL);
    flag("tp", "2");
    flag("pp", "2");
    flag("placement", "linear");
    ok(slurm_spank_local_user_init(NULL, 0, NULL) == 0, "srun plans");
    ok(strcmp(getenv(PLAIT_ENV_PLAN),
              "1/2.1.1.2.2/tp-cp-ep-dp-pp/linear/0-3/4*2") == 0,
       "the plan: %s", getenv(PLAIT_ENV_PLAN));
    ok(strncmp(getenv(PLAIT_ENV_MASTER), "10.0.0.1:", 9) == 0,
       "RANK 0 is at %s", getenv(PLAIT_ENV_MASTER));
    clear(S_CTX_LOCAL);
    flag("tp", "3");
    flag("placement", "linear");
    ok(slurm_spank_local_user_init(NULL, 0, NULL) == -1 &&
           strstr(slurm.said, "8 tasks do not divide by --tp=3"),
       "what only srun's nodes tell is refused too");
}

static void test_ports(void)
{
    int step, jobs, clash = 0, port, bad = 0;
    char host[32];

    for (step = 1; step < 1000; step++)
        clash += plait_master_port(5, 0) == plait_master_port(5, step);
    ok(clash == 0, "a thousand steps of a job do not collide");
    for (jobs = 1; jobs < 500; jobs++)
        for (step = 0; step < 3; step++)
            clash += plait_master_port(1000000, 0) ==
                     plait_master_port(1000000 + (uint32_t)jobs,
                                       (uint32_t)step);
    ok(clash == 0, "nor do 500 jobs of three steps");
    for (step = 0; step < 100000; step++) {
        port = plait_master_port((uint32_t)step * 40503u, (uint32_t)step);
        bad += port < 61000 || port > 65535;
    }
    ok(bad == 0, "all above what Linux hands out");
    ok(plait_master_parse("fe80::1:61000", host, sizeof(host), &port) == 0 &&
           strcmp(host, "fe80::1") == 0 && port == 61000,
       "an IPv6 address");
    ok(plait_master_parse("host", host, sizeof(host), &port) < 0 &&
           plait_master_parse(":1", host, sizeof(host), &port) < 0 &&
           plait_master_parse("h:65536", host, sizeof(host), &port) < 0 &&
           plait_master_parse("h:1x", host, sizeof(host), &port) < 0,
       "what is no address");
}

int main(void)
{
    unsetenv("MASTER_PORT");
    unsetenv("PLAIT_RANK");
    unsetenv("SLURM_HET_SIZE");
    unsetenv("SLURM_STEP_RESV_PORTS");
    test_task();
    test_untouched();
    test_lies();
    test_local();
    test_ports();
    clear(S_CTX_ERROR);
    return done_testing();
}
