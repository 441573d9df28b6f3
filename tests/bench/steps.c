/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of whole training jobs next to peers, one job at a time. Each result is
 * kept as soon as the job is done, so that an interrupted run can be
 * continued. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

static const struct bench_case cases[] = {
    {"GPT-2 124M, 4 x 64", 12, 768, 12, 50304, 64, 4, 0, 0, 0, 0},
    {"GPT-2 124M, 4 x 256", 12, 768, 12, 50304, 256, 4, 0, 0, 0, 0},
    {"GPT 6 x 384, 12 x 256", 6, 384, 6, 65, 256, 12, 0, 0, 0, 0},
    {"Llama 160M, 2 x 512", 12, 768, 12, 32000, 512, 2, 4, 3072, 0, 0},
    {"8 experts, 6 x 384, 8 x 256", 6, 384, 6, 8192, 256, 8, 2, 768, 8, 2},
};
const int bench_ncases = sizeof(cases) / sizeof(*cases);

/* Contestants of one case. */
enum { TRAIN, TORCH, LLMC, REPLAY, LIBRARY, NPEERS };

struct result {
    struct bench_peer peer[NPEERS];
    struct bench_samples seconds[NPEERS];
    double mib[NPEERS];
};

static void start_worker(struct bench_peer *p, const char *label,
                         const char *mode, int index, const char *precision,
                         const struct bench_step_options *o)
{
    char number[16], threads[16];
    char *argv[] = {
        "/proc/self/exe", (char *)mode,         number, (char *)precision,
        threads,          (char *)o->recompute, NULL};

    snprintf(number, sizeof(number), "%d", index);
    snprintf(threads, sizeof(threads), "%d", o->threads);
    bench_peer_start(p, label, argv, NULL);
}

/* llm.c has GPT-2 in fp32 only, and its main() trains B4 x T64. */
static bool llmc_runs(const struct bench_case *c, const char *precision)
{
    return c->seq_len == 64 && strcmp(precision, "fp32") == 0;
}

static void start_llmc(struct bench_peer *p, const struct bench_case *c,
                       const struct bench_step_options *o)
{
    int number[] = {c->layers, c->hidden,  c->heads,
                    c->vocab,  c->seq_len, c->batch};
    char text[6][16], *argv[8] = {(char *)o->llmc};

    for (int i = 0; i < 6; i++) {
        snprintf(text[i], sizeof(text[i]), "%d", number[i]);
        argv[i + 1] = text[i];
    }
    bench_peer_start(p, "llm.c", argv, bench_tuned);
}

static void start_peers(int index, const char *precision,
                        const struct bench_step_options *o, struct result *r)
{
    const struct bench_case *c = &cases[index];

    if (o->torch != NULL)
        bench_choose_torch(&r->peer[TORCH], c, precision, o);
    if (bench_stopped())
        return;
    if (o->torch != NULL && llmc_runs(c, precision) && o->llmc != NULL)
        start_llmc(&r->peer[LLMC], c, o);
    else if (o->torch != NULL && llmc_runs(c, precision))
        bench_peer_miss(&r->peer[LLMC], "llm.c",
                        "make bench LLMC=DIR names its source");
    start_worker(&r->peer[TRAIN], "plait", "--train-worker", index, precision,
                 o);
    if (!o->products || c->kv_heads > 0) /* the replay lacks these shapes */
        return;
    start_worker(&r->peer[REPLAY], "its matrix products", "--replay-worker",
                 index, precision, o);
    start_worker(&r->peer[LIBRARY], "the library's matrix products",
                 "--library-worker", index, precision, o);
}

/* As many rounds as there is time for: a first round that is not counted, and
 * at least one more. */
static void run_rounds(const struct bench_step_options *o, struct result *r)
{
    double begin = bench_now(), last = begin, longest = 0;

    for (int round = -1; round < o->rounds && !bench_stopped(); round++) {
        if (round > 0 && last - begin + longest > o->seconds)
            break;
        for (int p = 0; p < NPEERS; p++) {
            double seconds = bench_peer_ask(&r->peer[p], "run");

            if (round >= 0 && isfinite(seconds))
                bench_add(&r->seconds[p], seconds);
        }
        longest = fmax(longest, bench_now() - last);
        last = bench_now();
    }
}

static void run_case(int index, const char *precision,
                     const struct bench_step_options *o, struct result *r)
{
    start_peers(index, precision, o, r);
    run_rounds(o, r);
    for (int p = 0; p < NPEERS; p++) {
        r->mib[p] = bench_peer_ask(&r->peer[p], "memory") / 1024;
        bench_peer_stop(&r->peer[p]);
    }
}

/* JSON has no NAN. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* The day, which a figure on the page of performance needs. */
static const char *today(void)
{
    static char text[16];
    time_t now = time(NULL);
    struct tm day;

    strftime(text, sizeof(text), "%Y-%m-%d", gmtime_r(&now, &day));
    return text;
}

static json_t *row_of(const struct result *r, int p, const struct bench_case *c,
                      const char *precision)
{
    const struct bench_samples *s = &r->seconds[p];
    double median = bench_median(s), tokens = c->batch * c->seq_len;
    bool products = p == REPLAY || p == LIBRARY;
    const char *commit = getenv("PLAIT_BENCH_COMMIT");

    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:i}",
                     "date", today(), "commit", commit ? commit : "", "case",
                     c->name, "precision", precision, "who", r->peer[p].label,
                     "version", r->peer[p].name, "seconds", number(median),
                     "least", number(bench_least(s)), "most",
                     number(bench_most(s)), "tokens_per_s",
                     number(products ? NAN : tokens / median), "peak_mib",
                     number(products ? NAN : r->mib[p]), "rounds", s->count);
}

static json_t *measure(int index, const char *precision,
                       const struct bench_step_options *o)
{
    struct result r = {0};
    json_t *rows;

    run_case(index, precision, o, &r);
    if (bench_stopped())
        return NULL;
    rows = json_array();
    for (int p = 0; p < NPEERS; p++)
        if (r.peer[p].label != NULL)
            json_array_append_new(rows,
                                  row_of(&r, p, &cases[index], precision));
    return rows;
}

/* -- the table ------------------------------------------------------------- */

static const json_t *find_row(const json_t *rows, const char *who)
{
    const json_t *row;
    size_t i;

    json_array_foreach(
        rows, i,
        row) if (strncmp(json_string_value(json_object_get(row, "who")), who,
                         strlen(who)) == 0) return row;
    return NULL;
}

static double get(const json_t *row, const char *key)
{
    const json_t *x = json_object_get(row, key);

    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* A rate, and the spread of its rounds. */
static void rate_cell(const json_t *row)
{
    double median = get(row, "seconds");

    if (!isfinite(median)) {
        printf(" %s |",
               row ? json_string_value(json_object_get(row, "version")) : "-");
        return;
    }
    printf(" %.0f (%.0f %%) |", get(row, "tokens_per_s"),
           100 * (get(row, "most") - get(row, "least")) / median);
}

static void ratio_cell(double x)
{
    if (isfinite(x))
        printf(" %.2f |", x);
    else
        printf(" - |");
}

/* A target that was not measured is not met. */
static void target_cell(double speed, double memory, double target)
{
    bool fast = speed >= target, small = memory <= BENCH_MEMORY_TARGET;

    if (isnan(speed))
        printf(" not measured |");
    else if (fast && small)
        printf(" %.3g: met |", target);
    else
        printf(" %.3g: **%s%s%s missed** |", target, fast ? "" : "speed",
               fast || small ? "" : ", ", small ? "" : "memory");
}

static void print_job(const json_t *rows, const char *isa)
{
    const json_t *mine = find_row(rows, "plait");
    const json_t *torch = find_row(rows, "PyTorch");
    double s = get(mine, "seconds");
    const char *who = json_string_value(json_object_get(torch, "who"));
    const char *precision =
        json_string_value(json_object_get(mine, "precision"));

    if (precision == NULL)
        precision = "-";
    printf("| %s | %s | %s | %d |",
           json_string_value(json_object_get(mine, "case")), precision, isa,
           (int)get(mine, "rounds"));
    rate_cell(mine);
    rate_cell(torch);
    printf(" %s |", who ? who + strlen("PyTorch, ") : "-");
    ratio_cell(get(torch, "seconds") / s);
    ratio_cell(get(mine, "peak_mib") / get(torch, "peak_mib"));
    target_cell(get(torch, "seconds") / s,
                get(mine, "peak_mib") / get(torch, "peak_mib"),
                bench_speed_target(isa, strcmp(precision, "bf16") == 0));
    ratio_cell(get(find_row(rows, "llm.c"), "seconds") / s);
    printf(" %.0f |", get(mine, "peak_mib"));
    ratio_cell(s / get(find_row(rows, "the library"), "seconds"));
    ratio_cell(s / get(find_row(rows, "its matrix"), "seconds"));
    printf("\n");
    fflush(stdout);
}

static void print_head(void)
{
    printf("\nTokens/s with the spread of the rounds, (most - least) / median; "
           "PyTorch with huge\npages and its fused attention, the faster of "
           "eager and torch.compile, AdamW fused\nand foreach, held to the "
           "same instructions.\n\n"
           "| job | precision | instructions | rounds | plait, tokens/s | "
           "PyTorch's best | which | speed over it | memory over it | target: "
           "that speed, memory 0.7 | over llm.c | MiB | step over its "
           "products, the library's | by plait "
           "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    fflush(stdout);
}

/* -- all ------------------------------------------------------------------- */

/* What torch.compile has compiled for other instructions does not compile for
 * these, and its cache does not tell them apart. */
static void set_cache(const char *class)
{
    const char *dir = getenv("TORCHINDUCTOR_CACHE_DIR");
    char own[4096];

    if (!dir)
        return;
    snprintf(own, sizeof(own), "%s-%s", dir, class);
    setenv("TORCHINDUCTOR_CACHE_DIR", own, 1);
}

/* Restricts PyTorch and its libraries to the instructions of PLAIT_CPU_ISA.
 * MKL heeds MKL_ENABLE_INSTRUCTIONS on Intel's processors alone; MKL_CBWR
 * COMPATIBLE is SSE2 on all. */
static void follow_class(void)
{
    enum { VARIABLES = 4 };
    static const char *const variable[VARIABLES] = {
        "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS",
        "MKL_CBWR"};
    static const struct {
        const char *class, *value[VARIABLES];
    } all[] = {
        {"avx512bf16", {NULL, "AVX512_CORE_BF16", NULL, NULL}},
        {"avx512", {"avx512", "AVX512_CORE", "AVX512", NULL}},
        {"avx2", {"avx2", "AVX2", "AVX2", NULL}},
        {"base", {"default", "SSE41", "SSE4_2", "COMPATIBLE"}},
    };
    const char *class = getenv("PLAIT_CPU_ISA");

    if (!class)
        return;
    set_cache(class);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        for (int k = 0; strcmp(class, all[i].class) == 0 && k < VARIABLES; k++)
            if (all[i].value[k])
                setenv(variable[k], all[i].value[k], 1);
}

json_t *bench_steps(const struct bench_step_options *o)
{
    static const char *const precisions[] = {"fp32", "bf16"};
    json_t *all = json_array();

    follow_class();
    print_head();
    for (int i = 0; i < bench_ncases; i++)
        for (int k = 0; k < 2; k++) {
            json_t *rows;

            if (!(o->cases >> i & 1) ||
                (o->precision && strcmp(o->precision, precisions[k]) != 0))
                continue;
            rows = bench_find_result(o, cases[i].name, precisions[k]);
            if (rows == NULL && !bench_stopped()) {
                rows = measure(i, precisions[k], o);
                bench_keep_result(o, cases[i].name, precisions[k], rows);
            }
            if (rows != NULL)
                print_job(rows, o->isa);
            json_array_extend(all, rows);
            json_decref(rows);
        }
    return all;
}

int bench_step_worker(char **argv)
{
    const struct bench_case *c = &cases[atoi(argv[2]) % bench_ncases];
    bool bf16 = strcmp(argv[3], "bf16") == 0;

    if (strcmp(argv[1], "--train-worker") == 0)
        return bench_train_worker(c, argv[3], argv[5]);
    return bench_replay_worker(c, bf16 ? PLAIT_BF16_T : PLAIT_F32,
                               atoi(argv[4]),
                               strcmp(argv[1], "--library-worker") == 0);
}
