/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"
#include "topology/plan/plan.h"
#include "topology/predict/auto.h"

/* The planner: jobs of up to 131,072 ranks over a fabric whose leaves are
 * shuffled in Slurm's order, and the search for the best layout. */

enum { PER_NODE = 8, PER_LEAF = 32, AUTO_GPUS = 1024 };

struct cluster {
    int nnodes;
    char (*text)[16];
    const char **names;
    int *tasks;
    struct plait_fabric *fabric;
};

static void *room(size_t n, size_t size)
{
    void *p = calloc(n, size);

    if (p == NULL) {
        fprintf(stderr, "plait-bench: out of memory\n");
        exit(1);
    }
    return p;
}

/* Shuffles alike in every run. */
static void shuffle(int *order, int n)
{
    unsigned state = 7;

    for (int i = n - 1; i > 0; i--) {
        int k, swap = order[i];

        state = state * 1664525u + 1013904223u;
        k = (int)((state >> 8) % (unsigned)(i + 1));
        order[i] = order[k];
        order[k] = swap;
    }
}

/* Leaves of PER_LEAF nodes below one core switch, as topology.conf. */
static void make(struct cluster *c, int nnodes)
{
    int leaves = nnodes / PER_LEAF;
    int *order = room(nnodes, sizeof(*order));
    char *conf = room((size_t)nnodes + leaves + 1, 32), *p = conf;

    c->nnodes = nnodes;
    c->text = room(nnodes, sizeof(*c->text));
    c->names = room(nnodes, sizeof(*c->names));
    c->tasks = room(nnodes, sizeof(*c->tasks));
    for (int i = 0; i < nnodes; i++) {
        snprintf(c->text[i], sizeof(c->text[i]), "n%d", i);
        c->names[i] = c->text[i];
        c->tasks[i] = PER_NODE;
        order[i] = i;
    }
    shuffle(order, nnodes);
    for (int i = 0; i < nnodes; i++) {
        if (i % PER_LEAF == 0)
            p += sprintf(p, "%sSwitchName=l%d Nodes=", i ? "\n" : "",
                         i / PER_LEAF);
        p += sprintf(p, "%sn%d", i % PER_LEAF ? "," : "", order[i]);
    }
    p += sprintf(p, "\nSwitchName=core Switches=l[0-%d]\n", leaves - 1);
    c->fabric =
        plait_fabric_parse("topology.conf", conf, (size_t)(p - conf), NULL);
    free(conf);
    free(order);
}

static void clear(struct cluster *c)
{
    plait_fabric_destroy(c->fabric);
    free(c->text);
    free(c->names);
    free(c->tasks);
}

/* Plans from a parsed fabric to the text that srun passes on. */
static double plan(const struct cluster *c)
{
    struct plait_plan_request request = {.nnodes = c->nnodes,
                                         .nodes = c->names,
                                         .tasks = c->tasks,
                                         .fabric = c->fabric};
    double start = bench_now(), end;
    struct plait_plan *plan;
    char *text;

    plait_layout_init(&request.layout);
    request.layout.size[PLAIT_TP] = 8;
    request.layout.size[PLAIT_PP] = 16;
    request.layout.size[PLAIT_DP] = PLAIT_AUTO;
    plan = plait_plan_create(&request, NULL);
    text = plan ? plait_plan_encode(plan) : NULL;
    end = bench_now();
    if (text == NULL)
        end = NAN;
    free(text);
    plait_plan_destroy(plan);
    return end - start;
}

/* A 70-billion-parameter Llama on AUTO_GPUS H100s. */
static double find_layout(void)
{
    struct plait_job_config c = {.model = {.family = PLAIT_LLAMA,
                                           .layers = 80,
                                           .hidden = 8192,
                                           .heads = 64,
                                           .kv_heads = 8,
                                           .ffn = 28672,
                                           .vocab = 128256,
                                           .seq_len = 8192},
                                 .parallel = {.schedule = PLAIT_SCHEDULE_1F1B,
                                              .virtual_stages = 1,
                                              .bucket_mib = 25},
                                 .train = {.precision = PLAIT_BF16,
                                           .micro_batch = 1,
                                           .global_batch = 1024}};
    double start = bench_now();
    struct plait_gpu_type gpu;
    struct plait_choices *found;
    struct plait_layout any;

    plait_gpu_type_find("h100", &gpu, NULL);
    plait_layout_init(&any);
    for (int i = 0; i < PLAIT_NAXES; i++)
        any.size[i] = i == PLAIT_EP ? 1 : PLAIT_AUTO;
    found = plait_auto_create(&c, &any, AUTO_GPUS, &gpu, 10);
    if (found == NULL || found->n == 0)
        start = NAN;
    plait_choices_destroy(found);
    return bench_now() - start;
}

/* Runs in a process of its own, to measure its peak memory: prints seconds
 * (median, least, most) and MB. ranks 0: the search for a layout. */
int bench_plan_worker(const char *ranks, const char *rounds)
{
    struct bench_samples s = {0};
    struct cluster c = {0};
    struct rusage use;
    int n = atoi(ranks);

    if (n)
        make(&c, n / PER_NODE);
    for (int i = 0; i < atoi(rounds); i++)
        bench_add(&s, n ? plan(&c) : find_layout());
    clear(&c);
    getrusage(RUSAGE_SELF, &use);
    printf("%.9f %.9f %.9f %.3f\n", bench_median(&s), bench_least(&s),
           bench_most(&s), use.ru_maxrss / 1024.0);
    return 0;
}

static json_t *ask(const char *self, const char *name, int ranks, int rounds)
{
    double median = NAN, least = NAN, most = NAN, mib = NAN;
    char command[4200];
    FILE *worker;

    snprintf(command, sizeof(command), "'%s' --plan-worker %d %d", self, ranks,
             rounds);
    worker = popen(command, "re");
    if (worker == NULL)
        return NULL;
    if (fscanf(worker, "%lf %lf %lf %lf", &median, &least, &most, &mib) != 4)
        median = NAN;
    pclose(worker);
    if (!isfinite(median)) {
        printf("| %s | failed | | | | |\n", name);
        return NULL;
    }
    printf("| %s | %.1f | %.1f | %.1f | %.1f |", name, 1e3 * median,
           1e3 * least, 1e3 * most, mib);
    if (ranks)
        printf(" %.2f |\n", 1e9 * median / (ranks * log2(ranks)));
    else
        printf(" |\n");
    return json_pack("{s:s,s:i,s:f,s:f,s:f,s:f}", "what", name, "ranks",
                     ranks ? ranks : AUTO_GPUS, "seconds", median, "least",
                     least, "most", most, "peak_mib", mib);
}

json_t *bench_planner(const char *self, int rounds)
{
    json_t *rows = json_array(), *row;
    char name[64];

    printf("\n| planner | ms | least | most | peak MiB of the process | ns "
           "per n log2 n |\n|---|---|---|---|---|---|\n");
    for (int ranks = 1024; ranks <= 131072; ranks *= ranks == 65536 ? 2 : 4) {
        snprintf(name, sizeof(name), "plan %d ranks", ranks);
        if ((row = ask(self, name, ranks, rounds)) != NULL)
            json_array_append_new(rows, row);
    }
    snprintf(name, sizeof(name), "plan --auto, %d GPUs", AUTO_GPUS);
    if ((row = ask(self, name, 0, rounds)) != NULL)
        json_array_append_new(rows, row);
    fflush(stdout);
    return rows;
}
