/* SPDX-License-Identifier: Apache-2.0 */
/* plait-bench: training steps and single operations against peers and against
 * the limits of this machine, in one run. */
#include "config.h"

#include <getopt.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

struct options {
    struct bench_step_options steps;
    int rounds, threads;
    const char *json, *python, *python_new, *resnet, *gloo, *prep;
    const char *part; /* NULL: all */
};

static void report_ops(const json_t *rows)
{
    size_t i;
    json_t *row;

    printf("\n| operation | type | ms | least | most | rate | | of the "
           "ceiling |\n|---|---|---|---|---|---|---|---|\n");
    json_array_foreach(rows, i, row)
    {
        const char *op, *type, *unit;
        double seconds, least, most, rate, share;

        if (json_unpack(row, "{s:s,s:s,s:s,s:F,s:F,s:F,s:F,s:F}", "op", &op,
                        "type", &type, "unit", &unit, "seconds", &seconds,
                        "least", &least, "most", &most, "rate", &rate,
                        "of_ceiling", &share) == 0)
            printf("| %s | %s | %.2f | %.2f | %.2f | %.1f | %s | %.0f %% |\n",
                   op, type, 1e3 * seconds, 1e3 * least, 1e3 * most, rate, unit,
                   100 * share);
    }
}

static int usage(FILE *to)
{
    fprintf(to,
            "usage: plait-bench [--rounds N] [--threads N] [--json FILE]\n"
            "         [--part steps|images|ops|optimizers|comm|planner]\n"
            "of the steps: [--case 1..%d[,N ...]] [--precision fp32|bf16] "
            "[--seconds N]\n"
            "         [--recompute none|selective|full] [--no-peers] "
            "[--no-products]\n"
            "         [--results FILE [--continue]]\n",
            bench_ncases);
    return to == stderr ? 2 : 0;
}

/* The set of cases in a list like "1,3". 0: invalid. */
static unsigned cases_of(const char *text)
{
    unsigned set = 0;

    for (char *end = NULL; end == NULL || *end == ','; text = end + 1) {
        long n = strtol(text, &end, 10);

        if (end == text || n < 1 || n > bench_ncases ||
            (*end != ',' && *end != '\0'))
            return 0;
        set |= 1u << (n - 1);
    }
    return set;
}

static int parse_step(int c, struct bench_step_options *o)
{
    if (c == 'c')
        o->cases = cases_of(optarg);
    else if (c == 'P')
        o->precision = optarg;
    else if (c == 'k')
        o->recompute = optarg;
    else if (c == 's')
        o->seconds = atoi(optarg);
    else if (c == 'R')
        o->results = optarg;
    else if (c == 'C')
        o->go_on = true;
    else if (c == 'a')
        o->torch = o->llmc = NULL;
    else if (c == 'm')
        o->products = false;
    else
        return -1;
    return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"rounds", required_argument, NULL, 'r'},
        {"threads", required_argument, NULL, 't'},
        {"part", required_argument, NULL, 'p'},
        {"json", required_argument, NULL, 'j'},
        {"case", required_argument, NULL, 'c'},
        {"precision", required_argument, NULL, 'P'},
        {"recompute", required_argument, NULL, 'k'},
        {"seconds", required_argument, NULL, 's'},
        {"results", required_argument, NULL, 'R'},
        {"continue", no_argument, NULL, 'C'},
        {"no-peers", no_argument, NULL, 'a'},
        {"no-products", no_argument, NULL, 'm'},
        {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'r')
            o->rounds = atoi(optarg);
        else if (c == 't')
            o->threads = atoi(optarg);
        else if (c == 'p')
            o->part = optarg;
        else if (c == 'j')
            o->json = optarg;
        else if (parse_step(c, &o->steps) < 0)
            return -1;
    }
    if (optind < argc || o->rounds < 1 || o->threads < 1 ||
        o->steps.cases == 0 || o->steps.seconds < 1)
        return -1;
    return 0;
}

/* Parts that start this program again need its path, `self`. */
static json_t *comm_part(const struct options *o, char *self)
{
    static const char *const env[] = {"OMP_NUM_THREADS=1", NULL};
    struct bench_comm_options c = {o->rounds, self, o->python, o->gloo, env};

    return bench_comm(&c);
}

/* Runs the worker of a part with several processes; -1: argv names none. */
static int comm_worker(int argc, char **argv)
{
    const char *mode = argv[1];

#ifdef HAVE_MPI
    if (argc == 4 && strcmp(mode, "--reduce-worker") == 0)
        return bench_reduce_worker(argv[2], argv[3]);
    if (argc == 2 && strcmp(mode, "--bare-worker") == 0)
        return bench_bare_worker();
    if (argc == 3 && strcmp(mode, "--pair-worker") == 0)
        return bench_pair_worker(argv[2]);
#endif
    if (argc == 2 && strcmp(mode, "--image-worker") == 0)
        return bench_image_worker();
    if (argc == 4 && strcmp(mode, "--tcp-worker") == 0)
        return bench_tcp_worker(argv[2], argv[3]);
    if (argc == 3 && strcmp(mode, "--start-worker") == 0)
        return bench_start_worker(argv[2]);
    if (argc == 4 && strcmp(mode, "--plan-worker") == 0)
        return bench_plan_worker(argv[2], argv[3]);
    return -1;
}

static int worker(int argc, char **argv)
{
    if (argc == 6)
        return bench_step_worker(argv);
    return comm_worker(argc, argv);
}

static bool wants(const struct options *o, const char *part)
{
    return o->part == NULL || strcmp(o->part, part) == 0;
}

static void run_parts(const struct options *o, json_t *all)
{
    char self[4096] = "";
    json_t *rows;

    if (wants(o, "steps")) {
        rows = bench_steps(&o->steps);
        json_object_set_new(all, "steps", rows);
    }
    if (wants(o, "images"))
        json_object_set_new(
            all, "images",
            bench_images(&(struct bench_image_options){
                o->rounds, o->threads, o->python, o->python_new, o->resnet}));
    rows = json_array();
    if (wants(o, "ops"))
        bench_ops(rows, o->threads, o->rounds);
    if (wants(o, "ops") || wants(o, "optimizers")) {
        bench_optimizers(rows, o->threads, o->rounds);
        report_ops(rows);
    }
    json_object_set_new(all, "ops", rows);
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return;
    if (wants(o, "comm"))
        json_object_set_new(all, "comm", comm_part(o, self));
    if (wants(o, "planner"))
        json_object_set_new(all, "planner", bench_planner(self, o->rounds));
    if (o->prep != NULL && (rows = json_load_file(o->prep, 0, NULL)) != NULL)
        json_object_set_new(all, "prep", rows);
    if (o->part == NULL)
        bench_targets(all);
}

/* make passes unset variables as empty strings. */
static const char *given(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && *value != '\0' ? value : NULL;
}

/* Sets the options that neither make nor the command line gives. */
static void fill_in(struct options *o)
{
    if (o->python == NULL)
        o->python = "/usr/bin/python3";
    if (o->resnet == NULL)
        o->resnet = "torch_resnet.py";
    if (o->gloo == NULL)
        o->gloo = "torch_gloo.py";
    o->steps.torch = "torch_peer.py";
    if (getenv("PLAIT_BENCH_TORCH_PEER") != NULL)
        o->steps.torch = getenv("PLAIT_BENCH_TORCH_PEER");
    o->steps.python = o->python_new != NULL ? o->python_new : o->python;
    o->steps.llmc = given("PLAIT_BENCH_LLMC_PEER");
    o->steps.products = true;
    o->steps.seconds = 120;
    o->steps.cases = ~0u;
    o->steps.recompute = "none";
}

int main(int argc, char **argv)
{
    struct options o = {.rounds = 7,
                        .threads = omp_get_max_threads(),
                        .python = getenv("PLAIT_BENCH_PYTHON"),
                        .resnet = getenv("PLAIT_BENCH_TORCH_RESNET"),
                        .gloo = getenv("PLAIT_BENCH_TORCH_GLOO"),
                        .prep = given("PLAIT_BENCH_PREP"),
                        .python_new = given("TORCH_PYTHON")};
    const char *isa, *why = "";
    json_t *all;
    char threads[16];

    if (argc > 1 && strstr(argv[1], "-worker") != NULL)
        return worker(argc, argv) != 0;
    fill_in(&o);
    if (parse(argc, argv, &o) < 0)
        return usage(stderr);
    isa = plait_cpu_isa(&why);
    if (isa == NULL) {
        fprintf(stderr, "plait-bench: %s\n", why);
        return 77;
    }
    o.steps.rounds = o.rounds;
    o.steps.threads = o.threads;
    o.steps.isa = isa;
    snprintf(threads, sizeof(threads), "%d", o.threads);
    setenv("OMP_NUM_THREADS", threads, 1);
    bench_catch_signals();
    printf("%s, %d threads, plait with %s, medians of %d alternating rounds\n",
           bench_processor(), o.threads, isa, o.rounds);
    all = json_pack("{s:i,s:i,s:s,s:s}", "threads", o.threads, "rounds",
                    o.rounds, "cpu_isa", isa, "processor", bench_processor());
    run_parts(&o, all);
    if (o.json != NULL && json_dump_file(all, o.json, JSON_INDENT(1)) < 0) {
        fprintf(stderr, "plait-bench: cannot write %s\n", o.json);
        return 1;
    }
    json_decref(all);
    return bench_stopped() ? 130 : 0;
}
