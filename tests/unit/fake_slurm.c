/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_slurm.h"

struct fake_slurm slurm;

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
    case S_JOB_ID:
        value = slurm.job;
        break;
    case S_JOB_STEPID:
        value = slurm.step;
        break;
    case S_JOB_NNODES:
        value = slurm.nnodes;
        break;
    case S_JOB_NODEID:
        value = slurm.nodeid;
        break;
    case S_JOB_LOCAL_TASK_COUNT:
        value = slurm.local_tasks;
        break;
    case S_JOB_TOTAL_TASK_COUNT:
        value = slurm.tasks;
        break;
    case S_JOB_UID:
        value = 1234;
        break;
    case S_TASK_ID:
        value = (uint32_t)slurm.local;
        break;
    default:
        va_end(ap);
        return ESPANK_BAD_ARG;
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

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
    char **at = find_env(name);

    (void)spank;
    free(*at);
    for (; *at; at++)
        at[0] = at[1];
    return ESPANK_SUCCESS;
}

static void say(const char *format, va_list ap)
{
    size_t used = strlen(slurm.said);

    vsnprintf(slurm.said + used, sizeof(slurm.said) - used, format, ap);
}

void slurm_error(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(format, ap);
    va_end(ap);
}

void slurm_info(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(format, ap);
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

/* What srun says to debuggers: 1 once all tasks have started. */
int MPIR_debug_state;

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_kill_job_step(slurm_step_id_t *id, uint16_t signal, uint16_t flags)
{
    (void)flags;
    slurm.killed += id->job_id == slurm.job && signal == 9;
    return SLURM_SUCCESS;
}
#else
int slurm_kill_job_step(uint32_t job, uint32_t step, uint16_t signal)
{
    (void)step;
    slurm.killed += job == slurm.job && signal == 9;
    return SLURM_SUCCESS;
}
#endif

int slurm_load_node_single(node_info_msg_t **info, char *name, uint16_t flags)
{
    static node_info_t node;
    static node_info_msg_t message;

    (void)flags;
    node.name = name;
    node.gres = (char *)slurm.gres;
    node.cpus = 8;
    node.node_addr = strcmp(name, "n1") == 0 ? (char *)"10.0.0.1" : name;
    message.record_count = 1;
    message.node_array = &node;
    *info = &message;
    return SLURM_SUCCESS;
}

int slurm_load_node(time_t update, node_info_msg_t **info, uint16_t flags)
{
    static char *names[] = {(char *)"n1", (char *)"n2", (char *)"n3",
                            (char *)"n4"};
    static node_info_t nodes[4];
    static node_info_msg_t message;

    (void)update;
    (void)flags;
    errno = ETIMEDOUT;
    if (slurm.silent_nodes)
        return SLURM_ERROR;
    for (int i = 0; i < 4; i++) {
        nodes[i].name = names[i];
        nodes[i].gres = (char *)slurm.gres;
    }
    if (slurm.last_gres)
        nodes[3].gres = (char *)slurm.last_gres;
    message.record_count = 4;
    message.node_array = nodes;
    *info = &message;
    return SLURM_SUCCESS;
}

void slurm_free_node_info_msg(node_info_msg_t *info)
{
    (void)info;
}

/* Functions of libslurmfull that read and set srun's own options. */
int opt;
char *slurm_option_get(void *options, const char *name);
bool slurm_option_isset(void *options, const char *name);
int slurm_option_set(void *options, const char *name, const char *value,
                     bool early);

char *slurm_option_get(void *options, const char *name)
{
    const char *text =
        strcmp(name, "ntasks") == 0            ? slurm.ntasks
        : strcmp(name, "ntasks-per-node") == 0 ? slurm.ntasks_per_node
        : strcmp(name, "nodes") == 0           ? slurm.node_count
        : strcmp(name, "gpus-per-task") == 0   ? slurm.gpus_per_task
        : strcmp(name, "tres-per-task") == 0   ? slurm.tres_per_task
        : strcmp(name, "interactive") == 0     ? slurm.interactive
        : strcmp(name, "async") == 0           ? slurm.async
        : strcmp(name, "relative") == 0        ? slurm.relative
                                               : NULL;

    return options == &opt ? (char *)text : NULL;
}

bool slurm_option_isset(void *options, const char *name)
{
    return slurm_option_get(options, name) != NULL;
}

int slurm_option_set(void *options, const char *name, const char *value,
                     bool early)
{
    size_t used = strlen(slurm.set);

    (void)options;
    (void)early;
    snprintf(slurm.set + used, sizeof(slurm.set) - used, "%s=%s ", name, value);
    return 0;
}

int slurm_load_ctl_conf(time_t update, slurm_conf_t **conf)
{
    static slurm_conf_t answer;

    (void)update;
    answer.mpi_params = (char *)slurm.mpi_params;
    *conf = &answer;
    return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
void slurm_free_conf(slurm_conf_t *conf)
#else
void slurm_free_ctl_conf(slurm_conf_t *conf)
#endif
{
    (void)conf;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t **jobs, slurm_step_id_t step, uint16_t flags)
{
    uint32_t id = step.job_id;
#else
int slurm_load_job(job_info_msg_t **jobs, uint32_t id, uint16_t flags)
{
#endif
    static job_info_t job;
    static job_info_msg_t message;

    (void)flags;
    if (id != slurm.job)
        return SLURM_ERROR;
    job.partition = (char *)slurm.partition;
    job.account = (char *)slurm.account;
    job.user_id = 0;
    message.record_count = 1;
    message.job_array = &job;
    *jobs = &message;
    return SLURM_SUCCESS;
}

void slurm_free_job_info_msg(job_info_msg_t *jobs)
{
    (void)jobs;
}

void fake_slurm_reset(spank_context_t context)
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
}

int fake_slurm_flag(const char *name, const char *value)
{
    for (int i = 0; i < slurm.noptions; i++)
        if (strcmp(slurm.options[i].name, name) == 0)
            return slurm.options[i].cb(slurm.options[i].val, value,
                                       slurm.context == S_CTX_REMOTE);
    return -2;
}

const char *fake_slurm_env(const char *name)
{
    const char *found = *find_env(name);

    return found ? found + strlen(name) + 1 : "(unset)";
}
