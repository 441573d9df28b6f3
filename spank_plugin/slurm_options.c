/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "spank_plugin/slurm_options.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A number that stands alone: "4", or a range of one such as "4-4". */
static int parse_number(const char *text)
{
    char *end;
    long value, most;

    if (!text || *text < '0' || *text > '9')
        return 0;
    value = strtol(text, &end, 10);
    if (*end == '-') {
        most = strtol(end + 1, &end, 10);
        if (most != value)
            return 0;
    }
    return *end || value > 1048576 ? 0 : (int)value;
}

/* From what `get` says of an option (NULL: not given). */
static void fill_options(struct plait_slurm_options *options,
                         const char *(*get)(void *arg, const char *name),
                         void *arg)
{
    static const char *const gpus[] = {"gpus-per-node", "gpus", "gres",
                                       "gpus-per-socket"};
    int nodes = parse_number(get(arg, "nodes"));
    const char *bind, *tres = get(arg, "tres-per-task");

    memset(options, 0, sizeof(*options));
    options->tasks = parse_number(get(arg, "ntasks"));
    options->per_node = parse_number(get(arg, "ntasks-per-node"));
    if (!options->tasks)
        options->tasks = nodes * options->per_node;
    /* With --ntasks, --ntasks-per-node is only an upper bound. */
    else if (options->per_node * nodes != options->tasks)
        options->per_node = 0;
    /* Slurm 26 makes a "cpu=8" of --cpus-per-task=8. */
    options->gpus_per_task =
        get(arg, "gpus-per-task") || (tres && strstr(tres, "gpu"));
    bind = get(arg, "gpu-bind");
    options->gpu_bind = bind != NULL;
    bind = get(arg, "cpu-bind");
    options->cpu_bind = bind && strcmp(bind, "none") != 0;
    bind = get(arg, "mem-bind");
    options->mem_bind = bind && strcmp(bind, "none") != 0;
    options->resv_ports = get(arg, "resv-ports") != NULL;
    options->nodelist = get(arg, "nodelist") != NULL;
    options->relative = get(arg, "relative") != NULL;
    options->interactive = get(arg, "interactive") != NULL;
    options->async = get(arg, "async") != NULL;
    options->exclude = get(arg, "exclude");
    options->cpus = get(arg, "cpus-per-task");
    options->partition = get(arg, "partition");
    options->account = get(arg, "account");
    options->qos = get(arg, "qos");
    for (size_t i = 0; !options->gpus && i < sizeof(gpus) / sizeof(gpus[0]);
         i++)
        options->gpus = get(arg, gpus[i]);
}

/* Slurm's commands keep their options in `opt`, and libslurmfull returns each
 * by name; its command-line filters rest on the same two functions. Where Slurm
 * lacks them, these checks are made once srun has its nodes. */
struct option_calls {
    void *opt;
    char *(*get)(void *opt, const char *name);
    bool (*isset)(void *opt, const char *name);
    int (*set)(void *opt, const char *name, const char *value, bool early);
};

static void *find_symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* -1 where this Slurm has no such functions. */
static int find_option_calls(struct option_calls *calls)
{
    void *get = find_symbol("slurm_option_get"),
         *isset = find_symbol("slurm_option_isset");
    void *set = find_symbol("slurm_option_set");

    calls->opt = find_symbol("opt");
    memcpy(&calls->get, &get, sizeof(get));
    memcpy(&calls->isset, &isset, sizeof(isset));
    memcpy(&calls->set, &set, sizeof(set));
    return calls->opt && get && isset && set ? 0 : -1;
}

static const char *get_option(void *arg, const char *name)
{
    struct option_calls *calls = arg;
    const char *value;

    if (!calls->isset(calls->opt, name))
        return NULL;
    /* A short text, never freed: it must live as long as srun or sbatch. */
    value = calls->get(calls->opt, name);
    return value ? value : "";
}

void plait_slurm_options_read(struct plait_slurm_options *options)
{
    struct option_calls calls;

    memset(options, 0, sizeof(*options));
    if (find_option_calls(&calls) == 0)
        fill_options(options, get_option, &calls);
}

void plait_slurm_options_set_default(const char *name, const char *value)
{
    struct option_calls calls;

    if (find_option_calls(&calls) == 0 && !calls.isset(calls.opt, name))
        calls.set(calls.opt, name, value, false);
}

int plait_slurm_options_set(const char *name, const char *value)
{
    struct option_calls calls;

    if (find_option_calls(&calls) < 0)
        return -1;
    return calls.set(calls.opt, name, value, false) == 0 ? 0 : -1;
}

static int read_number(const char *name)
{
    const char *text = getenv(name);

    return text ? atoi(text) : 0;
}

int plait_slurm_job_tasks(void)
{
    int tasks = read_number("SLURM_NTASKS");

    return tasks ? tasks
                 : read_number("SLURM_JOB_NUM_NODES") *
                       read_number("SLURM_NTASKS_PER_NODE");
}
