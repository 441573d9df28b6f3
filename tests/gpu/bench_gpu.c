/* SPDX-License-Identifier: Apache-2.0 */
/* Measures every kernel at the shapes of GPT-2 124M and of an 8B Llama block
 * against what this GPU reaches, in the same run, in a plain copy and in one
 * large matrix product. Prints Markdown; part of `make bench-gpu`. --small:
 * tiny shapes, run once, for compute-sanitizer and the emulated GPU, which are
 * slow per element. Other words: only the rows that have one in their name. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_gpu.h"
#include "kernels/products.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Returns seconds per run, the median of rounds of about 20 ms; *spread is the
 * interquartile range over the median. Negative: the op failed. */
static double measure(struct bench *b, bench_op *fn,
                      const struct bench_shape *s, double *spread)
{
    double t[ROUNDS], once;
    int n;

    for (int i = 0; i < 3; i++) {
        b->ops->event_record(b->from, b->q);
        if (fn(b, s) < 0)
            return -1;
        b->ops->event_record(b->to, b->q);
    }
    once = b->ops->event_elapsed(b->from, b->to);
    n = once > 0 && once < b->round_s ? (int)(b->round_s / once) : 1;
    for (int r = 0; r < b->rounds; r++) {
        b->ops->event_record(b->from, b->q);
        for (int i = 0; i < n; i++)
            if (fn(b, s) < 0)
                return -1;
        b->ops->event_record(b->to, b->q);
        t[r] = b->ops->event_elapsed(b->from, b->to) / n;
    }
    qsort(t, (size_t)b->rounds, sizeof(*t), by_value);
    n = b->rounds;
    *spread = (t[n * 3 / 4] - t[n / 4]) / t[n / 2];
    return t[n / 2];
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The same shape with at most two sequences of 32 tokens and 64 columns. */
static struct bench_shape shrink(const struct bench_shape *s)
{
    struct bench_shape t = *s;

    t.N = least(t.N, 64);
    t.C = least(t.C, 64);
    t.O = least(t.O, 64);
    t.batch = t.batch > 0 ? 2 : 0;
    t.T = t.T > 0 ? 32 : 0;
    t.kv_heads = t.kv_heads > 0;
    t.heads = t.heads > 0 ? 1 : 0;
    return t;
}

/* Lets products search for their fastest algorithms, as training does. */
static void search_products(struct bench *b)
{
    char *lines = b->ops->products->wanted(b->dev);

    for (char *line = lines; line != NULL && *line != '\0';) {
        char *end = line + strcspn(line, "\n"), *choice;

        if (*end != '\0')
            *end++ = '\0';
        choice = b->ops->products->search(b->q, line);
        if (choice != NULL)
            b->ops->products->choose(b->dev, choice);
        free(choice);
        line = end;
    }
    free(lines);
}

static double run_row(struct bench *b, const struct bench_row *row,
                      double *spread)
{
    struct bench_shape small = shrink(&row->s);
    const struct bench_shape *s = b->rounds > 1 ? &row->s : &small;
    double t;

    b->bytes = b->flops = 0;
    b->counted = NULL;
    if (s->O > 0)
        b->weight = b->ops->weight_create(
            b->dev,
            &(struct plait_weight_data){PLAIT_BF16_T, s->O, s->C, b->x[2]});
    if (row->fn(b, s) == 0)
        search_products(b);
    t = measure(b, row->fn, s, spread);
    b->ops->weight_destroy(b->weight);
    b->weight = NULL;
    return t;
}

static int print_row(struct bench *b, const struct bench_row *row,
                     double bandwidth, double speed)
{
    double spread = 0, t = run_row(b, row, &spread), rate, ceiling;
    int compute = b->flops > 0;

    if (!(t > 0)) {
        fprintf(stderr, "bench_gpu: %s: %s\n", row->name,
                plait_queue_error(b->q));
        return -1;
    }
    rate = (compute ? b->flops : b->bytes) / t;
    ceiling = compute ? speed : bandwidth;
    printf("| %s | %.1f | %.1f %% | %.1f %s | %.0f %% |\n", row->name, t * 1e6,
           spread * 100, rate * (compute ? 1e-12 : 1e-9),
           compute ? "TFLOP/s" : "GB/s", rate / ceiling * 100);
    fflush(stdout);
    return 0;
}

/* -- set-up --------------------------------------------------------------- */

/* Fills with random numbers: a GPU that multiplies zeros draws less power and
 * clocks higher. */
static int fill(struct bench *b, void *dst, size_t bytes, int fp32)
{
    static uint16_t half[1 << 20];
    static float single[1 << 19];
    const void *src = fp32 ? (const void *)single : half;
    uint32_t x = 12345;

    for (size_t i = 0; i < 1 << 20; i++) {
        float v;
        uint32_t bits;

        x = x * 1664525 + 1013904223;
        v = (float)(x >> 8) / (1 << 23) - 1;
        memcpy(&bits, &v, 4);
        half[i] = (uint16_t)(bits >> 16);
        if (i < 1 << 19)
            single[i] = v + 2; /* positive: also used as variances, sums */
    }
    for (size_t at = 0; at < bytes; at += sizeof(half))
        if (b->ops->to_device(b->q, (char *)dst + at, src,
                              bytes - at < sizeof(half) ? bytes - at
                                                        : sizeof(half)) < 0)
            return -1;
    return 0;
}

static int fill_tokens(struct bench *b)
{
    static int32_t t[1 << 17];
    uint32_t x = 1;

    for (size_t i = 0; i < 1 << 17; i++) {
        x = x * 1664525 + 1013904223;
        t[i] = (int32_t)((x >> 8) % b->tokens_below);
    }
    return b->ops->to_device(b->q, b->tokens, t, sizeof(t));
}

static int open_bench(struct bench *b)
{
    int rc = 0;

    b->dev = b->ops->device_create(0, 0);
    b->q = b->dev != NULL ? b->ops->queue_create(b->dev, 0) : NULL;
    if (b->q == NULL)
        return -1;
    b->from = b->ops->event_create(b->dev, 1);
    b->to = b->ops->event_create(b->dev, 1);
    b->tokens = b->ops->alloc(b->dev, sizeof(int32_t) << 17);
    b->counts = b->ops->alloc(b->dev, GROUPS * sizeof(int32_t));
    b->sum = b->ops->alloc(b->dev, sizeof(double));
    for (int i = 0; i < BUFFERS; i++) {
        b->x[i] = b->ops->alloc(b->dev, b->size);
        if (b->x[i] == NULL || fill(b, b->x[i], b->size, 0) < 0)
            return -1;
    }
    for (int i = 0; i < 4; i++) {
        b->f[i] = b->ops->alloc(b->dev, b->size / 2);
        if (b->f[i] == NULL || fill(b, b->f[i], b->size / 2, 1) < 0)
            return -1;
    }
    if (b->from == NULL || b->to == NULL || b->tokens == NULL ||
        b->counts == NULL || b->sum == NULL)
        return -1;
    rc |= fill_tokens(b);
    return rc | b->ops->queue_sync(b->q);
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < BUFFERS; i++)
        b->ops->free(b->dev, b->x[i]);
    for (int i = 0; i < 4; i++)
        b->ops->free(b->dev, b->f[i]);
    b->ops->free(b->dev, b->tokens);
    b->ops->free(b->dev, b->counts);
    b->ops->free(b->dev, b->sum);
    b->ops->event_destroy(b->from);
    b->ops->event_destroy(b->to);
    b->ops->queue_destroy(b->q);
    b->ops->device_destroy(b->dev);
}

/* Whether cuDNN computes attention here unless PLAIT_ATTENTION forbids it. */
static int has_cudnn(const struct plait_ops *ops)
{
    struct plait_gpu_facts facts;

    unsetenv("PLAIT_ATTENTION");
    return ops->gpu_facts(0, &facts) == 0 &&
           strncmp(facts.attention, "cuDNN", 5) == 0;
}

static int is_wanted(const char *name, char *const *words)
{
    if (*words == NULL)
        return 1;
    for (; *words != NULL; words++)
        if (strstr(name, *words) != NULL)
            return 1;
    return 0;
}

static int print_rows(struct bench *b, double bandwidth, double speed,
                      char *const *words)
{
    int cudnn = has_cudnn(b->ops), rc = 0;

    setenv("PLAIT_ATTENTION", "own", 1);
    printf("| kernel, bf16 | median us | spread | rate | of ceiling |\n"
           "|---|---|---|---|---|\n");
    for (const struct bench_row *r = bench_rows; r->fn != NULL && rc == 0; r++)
        if (is_wanted(r->name, words) &&
            (cudnn || strstr(r->name, "cuDNN") == NULL))
            rc = print_row(b, r, bandwidth, speed);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct bench_row copy = {"copy", bench_run_copy, {0}};
    static const struct bench_row large = {
        "product", bench_run_linear, {8192, 8192, 8192, 0, 0, 0, 0, 0}};
    struct bench b = {.size = (size_t)2 << 30,
                      .tokens_below = 50304,
                      .rounds = ROUNDS,
                      .round_s = 0.02};
    const char *why = NULL;
    double spread, bandwidth, speed;
    char **words = argv + (argc > 1);
    int rc;

    if (argc > 1 && strcmp(argv[1], "--small") == 0) {
        b.size = (size_t)8 << 20;
        b.tokens_below = 64;
        b.rounds = 1;
        b.round_s = 0;
        words++;
    }
    b.ops = plait_ops_cuda(&why);
    if (b.ops == NULL) {
        fprintf(stderr, "bench_gpu: %s\n", why);
        return 1;
    }
    if (open_bench(&b) != 0) {
        fprintf(stderr, "bench_gpu: no GPU with 16 GiB of free memory\n");
        return 1;
    }
    bandwidth = run_row(&b, &copy, &spread);
    bandwidth = b.bytes / bandwidth;
    speed = run_row(&b, &large, &spread);
    speed = b.flops / speed;
    printf("Ceilings measured here: copy %.0f GB/s, bf16 product of 8192 "
           "cubed %.0f TFLOP/s%s.\n\n",
           bandwidth * 1e-9, speed * 1e-12,
           b.rounds > 1 ? "" : " (all shapes are tiny: --small)");
    rc = print_rows(&b, bandwidth, speed, words);
    close_bench(&b);
    return rc != 0;
}
