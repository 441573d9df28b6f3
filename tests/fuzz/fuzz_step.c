/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>

#include "fuzz.h"
#include "fuzz_lines.h"
#include "spank_plugin/plugin.h"
#include "topology/layout/launch.h"

/* The remote side of the plugin, in slurmstepd, with a step's environment as
 * input; lines like "S_JOB_NNODES=2" are answers of Slurm. What a task gets
 * must be a contract that the runtime can read. The functions below replace
 * slurmstepd's. */

struct step {
    struct fuzz_lines lines;
    int nset;
    struct {
        char name[32], value[1024];
    } set[64];
};

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    static const struct {
        spank_item_t item;
        const char *name;
    } items[] = {
        {S_JOB_ID, "S_JOB_ID"},
        {S_JOB_STEPID, "S_JOB_STEPID"},
        {S_JOB_NNODES, "S_JOB_NNODES"},
        {S_JOB_NODEID, "S_JOB_NODEID"},
        {S_JOB_LOCAL_TASK_COUNT, "S_JOB_LOCAL_TASK_COUNT"},
        {S_JOB_TOTAL_TASK_COUNT, "S_JOB_TOTAL_TASK_COUNT"},
        {S_TASK_ID, "S_TASK_ID"},
    };
    struct step *step = (struct step *)spank;
    spank_err_t rc = ESPANK_BAD_ARG;
    va_list ap;
    size_t i;

    va_start(ap, item);
    for (i = 0; i < sizeof(items) / sizeof(items[0]); i++)
        if (items[i].item == item) {
            *va_arg(ap, int *) = fuzz_lines_number(&step->lines, items[i].name);
            rc = ESPANK_SUCCESS;
            break;
        }
    va_end(ap);
    return rc;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buf, int size)
{
    struct step *step = (struct step *)spank;
    const char *value = fuzz_lines_get(&step->lines, name);

    if (!value)
        return ESPANK_ENV_NOEXIST;
    snprintf(buf, (size_t)size, "%s", value);
    return strlen(value) < (size_t)size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value,
                         int overwrite)
{
    struct step *step = (struct step *)spank;

    (void)overwrite;
    if (step->nset == 64)
        __builtin_trap();
    snprintf(step->set[step->nset].name, sizeof(step->set[0].name), "%s", name);
    snprintf(step->set[step->nset++].value, sizeof(step->set[0].value), "%s",
             value);
    return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
    (void)spank;
    (void)name;
    return ESPANK_SUCCESS;
}

/* master.c looks up a node's address in srun only. */
void slurm_info(const char *format, ...)
{
    (void)format;
}

void slurm_error(const char *format, ...)
{
    (void)format;
}

int slurm_load_node_single(node_info_msg_t **info, char *name, uint16_t flags)
{
    (void)info;
    (void)name;
    (void)flags;
    return SLURM_ERROR;
}

/* A site's policies, of which there are none here, ask these. */
int slurm_load_node(time_t update, node_info_msg_t **info, uint16_t flags)
{
    (void)update;
    (void)info;
    (void)flags;
    return SLURM_ERROR;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t **jobs, slurm_step_id_t step, uint16_t flags)
{
    (void)step;
#else
int slurm_load_job(job_info_msg_t **jobs, uint32_t id, uint16_t flags)
{
    (void)id;
#endif
    (void)jobs;
    (void)flags;
    return SLURM_ERROR;
}

void slurm_free_job_info_msg(job_info_msg_t *jobs)
{
    (void)jobs;
}

slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *step)
{
    (void)step;
    return NULL;
}

void slurm_job_step_layout_free(slurm_step_layout_t *layout)
{
    (void)layout;
}

char *slurm_strerror(int error)
{
    (void)error;
    return (char *)"";
}

void slurm_free_node_info_msg(node_info_msg_t *info)
{
    (void)info;
}

/* Real ports would be slow; here odd ones are taken. */
int plait_master_port_hold(int port)
{
    errno = port % 2 ? EADDRINUSE : 0;
    return -1;
}

int plait_master_port_take(int *port)
{
    *port = 61003;
    errno = 0;
    return -1;
}

static const char *get(void *arg, const char *name)
{
    const struct step *step = arg;
    int i;

    for (i = 0; i < step->nset; i++)
        if (strcmp(step->set[i].name, name) == 0)
            return step->set[i].value;
    return NULL;
}

static void set_flags(struct plait_options *options,
                      const struct fuzz_lines *lines)
{
    int i, k;

    plait_options_init(options);
    for (i = 0; i < lines->n; i++)
        for (k = 0; k < PLAIT_NOPTIONS; k++)
            if (strcmp(lines->line[i].name, plait_option_texts[k].name) == 0)
                plait_options_set(options, (enum plait_option)k,
                                  lines->line[i].value, NULL);
    /* Discovery takes too long for a fuzzer, and reads no environment. */
    options->pin = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct plait_plugstack plugstack;
    static const struct plait_discovery discovery = {.plugstack = &plugstack};
    static struct step step;
    spank_t spank = (spank_t)&step;
    struct plait_options options;
    struct plait_remote *remote;
    struct plait_launch launch;
    struct plait_error err;

    step.nset = 0;
    fuzz_lines_create(&step.lines, data, size);
    set_flags(&options, &step.lines);
    remote = plait_remote_create(spank, &options, &discovery, &err);
    if (remote && plait_remote_task(remote, spank, &err) == 0 &&
        plait_launch_decode(&launch, get, &step, &err) != 1)
        __builtin_trap();
    plait_remote_destroy(remote);
    fuzz_lines_destroy(&step.lines);
    return 0;
}
