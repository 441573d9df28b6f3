/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "asked.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A number that stands alone: "4", or a range of one such as "4-4". */
static int number(const char *text)
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

void plait_asked_fill(struct plait_asked *asked,
                      const char *(*get)(void *arg, const char *name),
                      void *arg)
{
    static const char *const gpus[] = {"gpus-per-node", "gpus", "gres",
                                       "gpus-per-socket"};
    int nodes = number(get(arg, "nodes"));
    const char *bind;

    memset(asked, 0, sizeof(*asked));
    asked->tasks = number(get(arg, "ntasks"));
    asked->per_node = number(get(arg, "ntasks-per-node"));
    if (!asked->tasks)
        asked->tasks = nodes * asked->per_node;
    /* With --ntasks, --ntasks-per-node is only the most. */
    else if (asked->per_node * nodes != asked->tasks)
        asked->per_node = 0;
    asked->gpus_per_task =
        get(arg, "gpus-per-task") || get(arg, "tres-per-task");
    bind = get(arg, "gpu-bind");
    asked->gpu_bind = bind != NULL;
    bind = get(arg, "cpu-bind");
    asked->cpu_bind = bind && strcmp(bind, "none") != 0;
    bind = get(arg, "mem-bind");
    asked->mem_bind = bind && strcmp(bind, "none") != 0;
    asked->resv_ports = get(arg, "resv-ports") != NULL;
    asked->partition = get(arg, "partition");
    for (size_t i = 0; !asked->gpus && i < sizeof(gpus) / sizeof(gpus[0]); i++)
        asked->gpus = get(arg, gpus[i]);
}

/* Slurm's commands keep their options in `opt`, and libslurmfull answers for
 * each by name; its command-line filters rest on the same two functions. A
 * Slurm without them leaves these checks to the moment srun has its nodes. */
struct slurm_options {
    void *opt;
    char *(*get)(void *opt, const char *name);
    bool (*isset)(void *opt, const char *name);
    int (*set)(void *opt, const char *name, const char *value, bool early);
};

static void *find(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* -1 where this Slurm has no such functions. */
static int find_options(struct slurm_options *o)
{
    void *get = find("slurm_option_get"), *isset = find("slurm_option_isset");
    void *set = find("slurm_option_set");

    o->opt = find("opt");
    memcpy(&o->get, &get, sizeof(get));
    memcpy(&o->isset, &isset, sizeof(isset));
    memcpy(&o->set, &set, sizeof(set));
    return o->opt && get && isset && set ? 0 : -1;
}

static const char *ask_slurm(void *arg, const char *name)
{
    struct slurm_options *o = arg;
    const char *value;

    if (!o->isset(o->opt, name))
        return NULL;
    /* A short text that srun or sbatch keeps until it ends. */
    value = o->get(o->opt, name);
    return value ? value : "";
}

void plait_asked_read(struct plait_asked *asked)
{
    struct slurm_options o;

    memset(asked, 0, sizeof(*asked));
    if (find_options(&o) == 0)
        plait_asked_fill(asked, ask_slurm, &o);
}

void plait_asked_set(const char *name, const char *value)
{
    struct slurm_options o;

    if (find_options(&o) == 0 && !o.isset(o.opt, name))
        o.set(o.opt, name, value, false);
}
