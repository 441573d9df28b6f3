/* SPDX-License-Identifier: Apache-2.0 */
/* plait-bench: training steps and single operations against peers and
 * against what this machine can do, in one run. */
#include "config.h"

#include <getopt.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

static const struct bench_case cases[] = {
    {"GPT-2 124M, 4 x 64", 12, 768, 12, 50304, 64, 4},
    {"GPT-2 124M, 4 x 256", 12, 768, 12, 50304, 256, 4},
    {"GPT 6 x 384, 12 x 256", 6, 384, 6, 65, 256, 12},
};
enum { NCASES = sizeof(cases) / sizeof(*cases) };

/* Contestants of one case. */
enum { TRAIN, REPLAY, LIBRARY, TORCH, TORCH_NEW, LLMC, NPEERS };

struct options {
    int rounds, threads, only; /* only: index of the case, -1: all */
    const char *json, *python, *torch_peer, *resnet, *gloo, *prep;
    const char *python_new, *llmc; /* NULL: not given */
    const char *part;              /* NULL: all */
};

struct result {
    struct bench_peer peer[NPEERS];
    struct bench_samples seconds[NPEERS];
    double mib[NPEERS];
};

static void start_worker(struct bench_peer *p, const char *label,
                         const char *mode, int index, const char *precision,
                         const struct options *o)
{
    char number[16], threads[16];
    char *argv[] = {"/proc/self/exe",  (char *)mode, number,
                    (char *)precision, threads,      NULL};

    snprintf(number, sizeof(number), "%d", index);
    snprintf(threads, sizeof(threads), "%d", o->threads);
    bench_peer_start(p, label, argv, NULL);
}

/* A peer that was not asked for is named, never guessed. */
static void miss(struct bench_peer *p, const char *label, const char *why)
{
    memset(p, 0, sizeof(*p));
    p->label = label;
    snprintf(p->name, sizeof(p->name), "missing: %s", why);
}

/* The case in words, as the peers' programs take it; the number of words. */
enum { CASE_WORDS = 6 };

static int case_words(const struct bench_case *c, char text[][16], char *argv[])
{
    int number[CASE_WORDS] = {c->layers, c->hidden,  c->heads,
                              c->vocab,  c->seq_len, c->batch};

    for (int i = 0; i < CASE_WORDS; i++) {
        snprintf(text[i], sizeof(text[i]), "%d", number[i]);
        argv[i] = text[i];
    }
    return CASE_WORDS;
}

/* Huge pages, and memory that is kept, gave PyTorch 20 to 28 %. */
const char *const bench_tuned[] = {"GLIBC_TUNABLES=glibc.malloc.hugetlb=1:"
                                   "glibc.malloc.mmap_threshold=1073741824:"
                                   "glibc.malloc.trim_threshold=1099511627776",
                                   NULL};

static void start_torch(struct bench_peer *p, const char *label,
                        const char *python, const struct bench_case *c,
                        const char *precision, const struct options *o)
{
    char text[CASE_WORDS][16], threads[16];
    char *argv[CASE_WORDS + 5] = {(char *)python, (char *)o->torch_peer};
    int n = 2 + case_words(c, text, argv + 2);

    snprintf(threads, sizeof(threads), "%d", o->threads);
    argv[n++] = (char *)precision;
    argv[n++] = threads;
    bench_peer_start(p, label, argv, bench_tuned);
}

/* It has fp32 alone, and B4 x T64 is what its main() trains. */
static int llmc_runs(const struct bench_case *c, const char *precision)
{
    return c->seq_len == 64 && strcmp(precision, "fp32") == 0;
}

static void start_llmc(struct bench_peer *p, const struct bench_case *c,
                       const struct options *o)
{
    char text[CASE_WORDS][16];
    char *argv[CASE_WORDS + 2] = {(char *)o->llmc};

    case_words(c, text, argv + 1);
    bench_peer_start(p, "llm.c", argv, bench_tuned);
}

static void start_peers(int index, const char *precision,
                        const struct options *o, struct result *r)
{
    const struct bench_case *c = &cases[index];

    start_worker(&r->peer[TRAIN], "plait", "--train-worker", index, precision,
                 o);
    start_worker(&r->peer[REPLAY], "its matrix products", "--replay-worker",
                 index, precision, o);
    start_worker(&r->peer[LIBRARY], "the library's matrix products",
                 "--library-worker", index, precision, o);
    start_torch(&r->peer[TORCH], "PyTorch of this system, tuned", o->python, c,
                precision, o);
    if (o->python_new != NULL)
        start_torch(&r->peer[TORCH_NEW], "PyTorch of TORCH_PYTHON, tuned",
                    o->python_new, c, precision, o);
    else
        miss(&r->peer[TORCH_NEW], "PyTorch, newest",
             "make bench TORCH_PYTHON=PYTHON names one");
    if (!llmc_runs(c, precision))
        return;
    if (o->llmc != NULL)
        start_llmc(&r->peer[LLMC], c, o);
    else
        miss(&r->peer[LLMC], "llm.c", "make bench LLMC=DIR names its source");
}

static void run_case(int index, const char *precision, const struct options *o,
                     struct result *r)
{
    start_peers(index, precision, o, r);
    for (int round = -1; round < o->rounds; round++)
        for (int p = 0; p < NPEERS; p++) {
            double seconds = bench_peer_ask(&r->peer[p], "run");

            if (round >= 0 && isfinite(seconds))
                bench_add(&r->seconds[p], seconds);
        }
    for (int p = 0; p < NPEERS; p++) {
        r->mib[p] = bench_peer_ask(&r->peer[p], "memory") / 1024;
        bench_peer_stop(&r->peer[p]);
    }
}

/* NAN has no place in JSON. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static void cell(double x, int digits)
{
    printf(" ");
    if (isfinite(x))
        printf("%.*f", digits, x);
    else
        printf("-");
    printf(" |");
}

static void report_peer(const struct result *r, int p, double tokens,
                        const char *name, const char *precision, json_t *rows)
{
    double mine = bench_median(&r->seconds[TRAIN]);
    double s = bench_median(&r->seconds[p]), mib = r->mib[p];

    if (p == REPLAY || p == LIBRARY)
        tokens = mib = NAN;
    printf("| %s | %s | %s |", name, precision, r->peer[p].label);
    if (r->seconds[p].count == 0)
        printf(" %s |", r->peer[p].name);
    else
        cell(1e3 * s, 0);
    cell(1e3 * bench_least(&r->seconds[p]), 0);
    cell(1e3 * bench_most(&r->seconds[p]), 0);
    cell(tokens / s, 0);
    cell(mib, 0);
    cell(s / mine, 2);
    printf("\n");
    json_array_append_new(
        rows, json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:i}", "case",
                        name, "precision", precision, "who", r->peer[p].label,
                        "version", r->peer[p].name, "seconds", number(s),
                        "least", number(bench_least(&r->seconds[p])), "most",
                        number(bench_most(&r->seconds[p])), "tokens_per_s",
                        number(tokens / s), "peak_mib", number(mib), "rounds",
                        r->seconds[p].count));
}

static void bench_steps(const struct options *o, json_t *rows)
{
    static const char *const precisions[] = {"fp32", "bf16"};

    printf("| job | precision | who | ms a step | least | most | tokens/s | "
           "peak MiB | time over plait's |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < NCASES; i++) {
        double tokens = cases[i].batch * cases[i].seq_len;

        if (o->only >= 0 && o->only != i)
            continue;
        for (int k = 0; k < 2; k++) {
            struct result r = {0};

            run_case(i, precisions[k], o, &r);
            for (int p = 0; p < NPEERS; p++)
                if (r.peer[p].label != NULL)
                    report_peer(&r, p, tokens, cases[i].name, precisions[k],
                                rows);
            fflush(stdout);
        }
    }
}

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
            "usage: plait-bench [--rounds N] [--threads N] [--case 1..%d] "
            "[--part steps|images|ops|optimizers|comm|planner] [--json FILE]\n",
            NCASES);
    return to == stderr ? 2 : 0;
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"rounds", required_argument, NULL, 'r'},
        {"threads", required_argument, NULL, 't'},
        {"case", required_argument, NULL, 'c'},
        {"part", required_argument, NULL, 'p'},
        {"json", required_argument, NULL, 'j'},
        {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'r')
            o->rounds = atoi(optarg);
        else if (c == 't')
            o->threads = atoi(optarg);
        else if (c == 'c')
            o->only = atoi(optarg) - 1;
        else if (c == 'p')
            o->part = optarg;
        else if (c == 'j')
            o->json = optarg;
        else
            return -1;
    }
    if (optind < argc || o->rounds < 1 || o->threads < 1 || o->only >= NCASES)
        return -1;
    return 0;
}

/* The parts that start this program again get its path in `self`. */
static json_t *comm_part(const struct options *o, char *self)
{
    static const char *const env[] = {"OMP_NUM_THREADS=1", NULL};
    struct bench_comm_options c = {o->rounds, self, o->python, o->gloo, env};

    return bench_comm(&c);
}

/* Workers of several processes; -1: none of them. */
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
    const struct bench_case *c;
    int bf16, threads;

    if (argc != 5)
        return comm_worker(argc, argv);
    c = &cases[atoi(argv[2]) % NCASES];
    bf16 = strcmp(argv[3], "bf16") == 0;
    threads = atoi(argv[4]);
    if (strcmp(argv[1], "--train-worker") == 0)
        return bench_train_worker(c, argv[3]);
    return bench_replay_worker(c, bf16 ? PLAIT_BF16_T : PLAIT_F32, threads,
                               strcmp(argv[1], "--library-worker") == 0);
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
        rows = json_array();
        bench_steps(o, rows);
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

/* make hands on what it was not given as an empty string. */
static const char *given(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && *value != '\0' ? value : NULL;
}

int main(int argc, char **argv)
{
    struct options o = {.rounds = 7,
                        .threads = omp_get_max_threads(),
                        .only = -1,
                        .python = getenv("PLAIT_BENCH_PYTHON"),
                        .torch_peer = getenv("PLAIT_BENCH_TORCH_PEER"),
                        .resnet = getenv("PLAIT_BENCH_TORCH_RESNET"),
                        .gloo = getenv("PLAIT_BENCH_TORCH_GLOO"),
                        .prep = given("PLAIT_BENCH_PREP"),
                        .python_new = given("TORCH_PYTHON"),
                        .llmc = given("PLAIT_BENCH_LLMC_PEER")};
    const char *isa, *why = "";
    json_t *all;
    char threads[16];

    if (argc > 1 && strstr(argv[1], "-worker") != NULL)
        return worker(argc, argv) != 0;
    if (parse(argc, argv, &o) < 0)
        return usage(stderr);
    isa = plait_cpu_isa(&why);
    if (isa == NULL) {
        fprintf(stderr, "plait-bench: %s\n", why);
        return 77;
    }
    if (o.python == NULL)
        o.python = "/usr/bin/python3";
    if (o.torch_peer == NULL)
        o.torch_peer = "torch_peer.py";
    if (o.resnet == NULL)
        o.resnet = "torch_resnet.py";
    if (o.gloo == NULL)
        o.gloo = "torch_gloo.py";
    snprintf(threads, sizeof(threads), "%d", o.threads);
    setenv("OMP_NUM_THREADS", threads, 1);
    printf("%d threads, plait with %s, medians of %d alternating rounds\n\n",
           o.threads, isa, o.rounds);
    all = json_pack("{s:i,s:i,s:s}", "threads", o.threads, "rounds", o.rounds,
                    "cpu_isa", isa);
    run_parts(&o, all);
    if (o.json != NULL && json_dump_file(all, o.json, JSON_INDENT(1)) < 0) {
        fprintf(stderr, "plait-bench: cannot write %s\n", o.json);
        return 1;
    }
    json_decref(all);
    return 0;
}
