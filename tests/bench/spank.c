/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/fake_slurm.h"
#include "topology/node/cache.h"

/* The cost of the plugin for each job: the installed file is loaded into a
 * process that plays Slurm, one callback at a time. Prints a Markdown row for
 * each. */

enum { RUNS = 301 };

typedef int callback(spank_t, int, char **);

static struct {
    callback *init, *post_opt, *local_user_init, *user_init, *task_init, *exit;
} plugin;

static char argument[80];
static char *arguments[] = {argument};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double call(callback *function)
{
    double start = now();

    function(NULL, 1, arguments);
    return now() - start;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void row(const char *what, double *ms, int n, double target)
{
    qsort(ms, (size_t)n, sizeof(*ms), compare);
    printf("| %-52s | %8.4f | %8.4f | %5.1f |\n", what, ms[n / 2],
           ms[n * 99 / 100], target);
}

static int load(const char *path)
{
    static const char *const names[] = {"slurm_spank_init",
                                        "slurm_spank_init_post_opt",
                                        "slurm_spank_local_user_init",
                                        "slurm_spank_user_init",
                                        "slurm_spank_task_init",
                                        "slurm_spank_exit"};
    void *file = dlopen(path, RTLD_LAZY | RTLD_LOCAL);

    if (!file) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *symbol = dlsym(file, names[i]);

        if (!symbol)
            return -1;
        memcpy((char *)&plugin + i * sizeof(symbol), &symbol, sizeof(symbol));
    }
    puts("| What, in ms | median | 99 % | target |\n|---|---|---|---|");
    return 0;
}

static void without_flags(spank_context_t context, const char *where)
{
    static double ms[5][RUNS];
    static const char *const names[] = {"init", "init_post_opt",
                                        "user_init, or local_user_init",
                                        "task_init", "exit"};
    int remote = context == S_CTX_REMOTE;

    for (int i = 0; i < RUNS; i++) {
        fake_slurm_reset(context);
        ms[0][i] = call(plugin.init);
        ms[1][i] = call(plugin.post_opt);
        ms[2][i] = call(remote ? plugin.user_init : plugin.local_user_init);
        ms[3][i] = remote ? call(plugin.task_init) : 0;
        ms[4][i] = call(plugin.exit);
    }
    for (int k = 0; k < 5; k++) {
        char what[80];

        if (k == 3 && !remote)
            continue;
        snprintf(what, sizeof(what), "no flags, %s: %s", where, names[k]);
        row(what, ms[k], RUNS, 0.1);
    }
}

static void with_flags(void)
{
    static double node[RUNS], task[RUNS];
    double start;

    for (int i = 0; i < RUNS; i++) {
        fake_slurm_reset(S_CTX_REMOTE);
        spank_setenv(NULL, PLAIT_ENV_PLAN,
                     "1/2.1.1.2.2/tp-cp-ep-dp-pp/topology/0,2,1,3/4*2", 1);
        spank_setenv(NULL, PLAIT_ENV_MASTER, "10.0.0.1:61234", 1);
        spank_setenv(NULL, PLAIT_ENV_KEEP, "", 1);
        start = now();
        plugin.init(NULL, 1, arguments);
        fake_slurm_flag("tp", "2");
        fake_slurm_flag("pp", "2");
        plugin.post_opt(NULL, 1, arguments);
        plugin.user_init(NULL, 1, arguments);
        node[i] = now() - start;
        task[i] = call(plugin.task_init);
        plugin.exit(NULL, 1, arguments);
    }
    row("flags: everything before the tasks of a node", node, RUNS, 5);
    row("flags: task_init of one task", task, RUNS, 1);
    if (slurm.said[0])
        printf("\n%s\n", slurm.said);
}

static void discovery(const char *dir)
{
    static double live[RUNS], cached[RUNS];

    for (int i = 0; i < RUNS; i++) {
        double start = now();

        plait_node_destroy(plait_node_create(0, NULL));
        live[i] = now() - start;
        start = now();
        plait_node_destroy(plait_node_load_cache(dir, NULL));
        cached[i] = now() - start;
    }
    row("this machine, looked at", live, RUNS, 2000);
    row("this machine, from the cache", cached, RUNS, 2);
}

/* Reads the cache of a machine larger than this one. */
static void recorded(const char *path)
{
    struct plait_node *node = plait_node_create_xml(path, NULL);
    static double ms[RUNS];
    char what[120], *xml;
    size_t size;

    xml = node ? plait_node_export_xml(node, &size) : NULL;
    for (int i = 0; xml && i < RUNS; i++) {
        double start = now();

        plait_node_destroy(plait_node_create_cached(xml, size, NULL));
        ms[i] = now() - start;
    }
    if (xml) {
        snprintf(what, sizeof(what), "%.30s, %d PUs, %d GPUs, from XML",
                 strrchr(path, '/') ? strrchr(path, '/') + 1 : path, node->pus,
                 node->ngpus);
        row(what, ms, RUNS, 2);
    }
    free(xml);
    plait_node_destroy(node);
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/plait-bench.XXXXXX", file[64];

    if (argc < 2 || !mkdtemp(dir)) {
        fprintf(stderr, "usage: plait-bench-spank spank_plait.so "
                        "[HWLOC.xml]...\n");
        return 2;
    }
    chmod(dir, 0755);
    snprintf(argument, sizeof(argument), "cache=%s", dir);
    if (load(argv[1]) < 0 || plait_node_refresh_cache(dir, 60, NULL) < 0)
        return 1;
    without_flags(S_CTX_LOCAL, "srun");
    without_flags(S_CTX_REMOTE, "slurmstepd");
    with_flags();
    discovery(dir);
    for (int i = 2; i < argc; i++)
        recorded(argv[i]);
    snprintf(file, sizeof(file), "%s/node.xml", dir);
    unlink(file);
    rmdir(dir);
    return 0;
}
