/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the rows of one run with the project's targets. */
#include <math.h>
#include <string.h>

#include "bench.h"

/* The row whose `key` members begin with these texts; NULL: none. */
static json_t *row_of(const json_t *rows, const char *const key[],
                      const char *const text[], int n)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        int same = 0;

        for (int k = 0; k < n; k++) {
            const char *is = json_string_value(json_object_get(row, key[k]));

            same += is != NULL && strncmp(is, text[k], strlen(text[k])) == 0;
        }
        if (same == n)
            return row;
    }
    return NULL;
}

static double number_in(const json_t *row, const char *name)
{
    const json_t *x = json_object_get(row, name);

    return json_is_number(x) ? json_number_value(x) : NAN;
}

static double step_number(const json_t *all, const char *name,
                          const char *precision, const char *who,
                          const char *what)
{
    const char *const key[] = {"case", "precision", "who"};
    const char *const text[] = {name, precision, who};

    return number_in(row_of(json_object_get(all, "steps"), key, text, 3), what);
}

static double comm_number(const json_t *all, const char *name, const char *who,
                          const char *what)
{
    const char *const key[] = {"what", "who"};
    const char *const text[] = {name, who};

    return number_in(row_of(json_object_get(all, "comm"), key, text, 2), what);
}

/* sign '>': at least, '<': at most. A target that was not measured is not
 * met. */
static void hold(json_t *rows, const char *what, double measured, char sign,
                 double target)
{
    int met = sign == '>' ? measured >= target : measured <= target;

    printf("| %s | %s %g | ", what, sign == '>' ? "at least" : "at most",
           target);
    if (isfinite(measured))
        printf("%.3g | %s |\n", measured, met ? "met" : "**not met**");
    else
        printf("- | not measured |\n");
    json_array_append_new(
        rows,
        json_pack("{s:s,s:s,s:f,s:o,s:b}", "what", what, "limit",
                  sign == '>' ? "least" : "most", "target", target, "measured",
                  isfinite(measured) ? json_real(measured) : json_null(), "met",
                  isfinite(measured) && met));
}

static void hold_peer(const json_t *all, json_t *rows, const char *name,
                      const char *precision, const char *who, double speed)
{
    double mine = step_number(all, name, precision, "plait", "seconds");
    double mib = step_number(all, name, precision, "plait", "peak_mib");
    char what[160];

    snprintf(what, sizeof(what), "%s, %s: speed over %s", name, precision, who);
    hold(rows, what, step_number(all, name, precision, who, "seconds") / mine,
         '>', speed);
    if (strcmp(who, "llm.c") == 0)
        return;
    snprintf(what, sizeof(what), "%s, %s: memory over %s", name, precision,
             who);
    hold(rows, what, mib / step_number(all, name, precision, who, "peak_mib"),
         '<', BENCH_MEMORY_TARGET);
}

/* The limit of the machine is that of the best library's matrix products. */
static void hold_products(const json_t *all, json_t *rows, const char *name,
                          const char *precision, double target)
{
    double library = step_number(all, name, precision,
                                 "the library's matrix products", "seconds");
    char what[160];

    snprintf(what, sizeof(what),
             "%s, %s: time over the library's matrix products", name,
             precision);
    hold(rows, what,
         step_number(all, name, precision, "plait", "seconds") / library, '<',
         target);
}

/* Not every processor can multiply pairs of 16-bit numbers. */
double bench_speed_target(const char *isa, bool bf16)
{
    if (!bf16)
        return 1.25;
    return isa && (strstr(isa, "bf16") || strstr(isa, "amx")) ? 1.6 : 1.5;
}

static void hold_steps(const json_t *all, json_t *rows)
{
    static const char *const precision[] = {"fp32", "bf16"};
    static const struct {
        const char *name;
        double products; /* 0: not replayed */
    } jobs[] = {
        {"GPT-2 124M, 4 x 64", 1.2},        {"GPT-2 124M, 4 x 256", 1.2},
        {"GPT 6 x 384, 12 x 256", 1.3},     {"Llama 160M, 2 x 512", 0},
        {"8 experts, 6 x 384, 8 x 256", 0},
    };

    const char *isa = json_string_value(json_object_get(all, "cpu_isa"));

    for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
        for (int k = 0; k < 2; k++) {
            hold_peer(all, rows, jobs[i].name, precision[k], "PyTorch",
                      bench_speed_target(isa, k == 1));
            if (jobs[i].products > 0)
                hold_products(all, rows, jobs[i].name, precision[k],
                              k == 0 ? jobs[i].products : 1.8);
        }
    hold_peer(all, rows, jobs[0].name, "fp32", "llm.c", 6);
}

/* Tokens per second of the fastest trainer, over those of sampling. */
static double sampling_share(const json_t *all)
{
    double rate = comm_number(all, "sampling", "plait", "tokens/s"), most = NAN;
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(all, "steps"), i, row)
    {
        const char *who = json_string_value(json_object_get(row, "who"));

        if (who != NULL && strcmp(who, "plait") == 0)
            most = fmax(most, number_in(row, "tokens_per_s"));
    }
    return 100 * most / rate;
}

/* An image model's steps per second over PyTorch's. */
static void hold_images(const json_t *all, json_t *rows)
{
    static const char *const torch[] = {"PyTorch of this system",
                                        "PyTorch of TORCH_PYTHON"};
    static const char *const key[] = {"who"};
    const json_t *images = json_object_get(all, "images");
    const char *const mine[] = {"plait"};
    char what[160];

    for (int i = 0; i < 2; i++) {
        const char *const text[] = {torch[i]};

        snprintf(what, sizeof(what), "ResNet-20, fp32: speed over %s",
                 torch[i]);
        hold(rows, what,
             number_in(row_of(images, key, text, 1), "seconds") /
                 number_in(row_of(images, key, mine, 1), "seconds"),
             '>', 1);
    }
}

static void hold_comm(const json_t *all, json_t *rows)
{
    static const char *const pair[] = {"GPT 6 x 384, 6 + 6",
                                       "GPT-2 124M, 2 + 2"};
    static const double keep[] = {0.97, 0.85};
    char what[160];

    for (int i = 0; i < 2; i++) {
        double two =
            fmin(comm_number(all, pair[i], "two processes", "seconds"),
                 comm_number(all, pair[i], "two processes, ZeRO 1", "seconds"));

        snprintf(what, sizeof(what),
                 "%s: two processes, with or without ZeRO 1, over one",
                 pair[i]);
        hold(rows, what,
             comm_number(all, pair[i], "one process", "seconds") / two, '>',
             keep[i]);
    }
    hold(rows, "all-reduce 25 MB, GB/s",
         comm_number(all, "all-reduce 25 MB", "plait", "GB/s"), '>', 7);
    hold(rows, "all-reduce 100 MB, GB/s",
         comm_number(all, "all-reduce 100 MB", "plait", "GB/s"), '>', 5);
    hold(rows, "start to the first collective, s",
         comm_number(all, "start to the first", "plait under", "seconds"), '<',
         0.3);
    hold(rows, "start to the end of the first step, s",
         comm_number(all, "start to the end", "plait under", "seconds"), '<',
         0.5);
    hold(rows, "opening 100 GB of tokens, ms",
         1e3 * comm_number(all, "opening", "plait", "seconds"), '<', 10);
    hold(rows, "sampling, % of the fastest step", sampling_share(all), '<', 1);
}

/* make bench-prep has measured it before this program runs. */
static void hold_prep(const json_t *all, json_t *rows)
{
    static const char *const cores[] = {"1 core", "2 cores"};
    static const char *const what[] = {
        "text to tokens over tokenizers, 1 core",
        "text to tokens over tokenizers, 2 cores"};
    const char *const key[] = {"what", "who"};
    const json_t *measured = json_object_get(all, "prep");

    for (int i = 0; i < 2; i++) {
        const char *const mine[] = {cores[i], "plait-prep"};
        const char *const theirs[] = {cores[i], "tokenizers"};

        hold(rows, what[i],
             number_in(row_of(measured, key, mine, 2), "mb_per_s_core") /
                 number_in(row_of(measured, key, theirs, 2), "mb_per_s_core"),
             '>', 1);
    }
}

void bench_targets(json_t *all)
{
    json_t *rows = json_array();

    printf("\n| target | | measured | |\n|---|---|---|---|\n");
    hold_steps(all, rows);
    hold_images(all, rows);
    hold_comm(all, rows);
    hold_prep(all, rows);
    json_object_set_new(all, "targets", rows);
}
