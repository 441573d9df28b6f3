/* SPDX-License-Identifier: Apache-2.0 */
/* The fastest PyTorch for a job, and results of earlier runs. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Huge pages and memory that is not returned made PyTorch 20 to 28 % faster. */
const char *const bench_tuned[] = {"GLIBC_TUNABLES=glibc.malloc.hugetlb=1:"
                                   "glibc.malloc.mmap_threshold=1073741824:"
                                   "glibc.malloc.trim_threshold=1099511627776",
                                   NULL};

/* -- PyTorch --------------------------------------------------------------- */

static const struct way {
    const char *label, *mode, *adamw;
} ways[] = {
    {"PyTorch, eager, AdamW fused", "eager", "fused"},
    {"PyTorch, eager, AdamW foreach", "eager", "foreach"},
    {"PyTorch, compiled, AdamW fused", "compile", "fused"},
    {"PyTorch, compiled, AdamW foreach", "compile", "foreach"},
};
enum { NWAYS = sizeof(ways) / sizeof(*ways) };

static void start_torch(struct bench_peer *p, const struct way *way,
                        const struct bench_case *c, const char *precision,
                        const struct bench_step_options *o)
{
    const struct {
        const char *key;
        int value;
    } number[] = {
        {"layers", c->layers},     {"hidden", c->hidden},
        {"heads", c->heads},       {"vocab", c->vocab},
        {"seq_len", c->seq_len},   {"batch", c->batch},
        {"kv_heads", c->kv_heads}, {"ffn", c->ffn},
        {"experts", c->experts},   {"top_k", c->top_k},
        {"threads", o->threads},
    };
    const struct {
        const char *key, *value;
    } word[] = {
        {"family", c->kv_heads > 0 ? "llama" : "gpt2"},
        {"precision", precision},
        {"mode", way->mode},
        {"adamw", way->adamw},
    };
    char text[16][32], *argv[20] = {(char *)o->python, (char *)o->torch};
    int n = 0;

    for (size_t i = 0; i < sizeof(number) / sizeof(*number); i++, n++)
        snprintf(text[n], sizeof(text[n]), "%s=%d", number[i].key,
                 number[i].value);
    for (size_t i = 0; i < sizeof(word) / sizeof(*word); i++, n++)
        snprintf(text[n], sizeof(text[n]), "%s=%s", word[i].key, word[i].value);
    for (int i = 0; i < n; i++)
        argv[2 + i] = text[i];
    bench_peer_start(p, way->label, argv, bench_tuned);
}

/* The shorter of two steps after a first one that is not counted; INFINITY:
 * none. */
static double try_torch(const struct way *way, const struct bench_case *c,
                        const char *precision,
                        const struct bench_step_options *o)
{
    struct bench_peer p;
    double least = INFINITY;

    start_torch(&p, way, c, precision, o);
    for (int i = 0; i < 3 && !bench_stopped(); i++) {
        double s = bench_peer_ask(&p, "run");

        if (i > 0 && isfinite(s))
            least = fmin(least, s);
    }
    if (!isfinite(least))
        fprintf(stderr, "plait-bench: %s: %s\n", way->label, p.name);
    bench_peer_stop(&p);
    return least;
}

/* One after the other: together they would not fit into memory. */
void bench_choose_torch(struct bench_peer *p, const struct bench_case *c,
                        const char *precision,
                        const struct bench_step_options *o)
{
    double best = INFINITY;
    const struct way *way = NULL;

    for (int i = 0; i < NWAYS && !bench_stopped(); i++) {
        double s = try_torch(&ways[i], c, precision, o);

        if (s < best) {
            best = s;
            way = &ways[i];
        }
    }
    if (way != NULL && !bench_stopped())
        start_torch(p, way, c, precision, o);
    else
        bench_peer_miss(p, "PyTorch, -",
                        "make bench TORCH_PYTHON=PYTHON names one");
}

/* -- results --------------------------------------------------------------- */

static bool is_result(const json_t *line, const struct bench_step_options *o,
                      const char *name, const char *precision)
{
    const char *c, *p, *isa, *processor;
    int threads;

    return json_unpack((json_t *)line, "{s:s,s:s,s:s,s:s,s:i}", "case", &c,
                       "precision", &p, "cpu_isa", &isa, "processor",
                       &processor, "threads", &threads) == 0 &&
           strcmp(c, name) == 0 && strcmp(p, precision) == 0 &&
           strcmp(isa, o->isa) == 0 && threads == o->threads &&
           strcmp(processor, bench_processor()) == 0;
}

json_t *bench_find_result(const struct bench_step_options *o, const char *name,
                          const char *precision)
{
    FILE *f = o->results && o->go_on ? fopen(o->results, "re") : NULL;
    json_t *line, *rows = NULL;

    while (f && (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        if (is_result(line, o, name, precision)) {
            json_decref(rows);
            rows = json_incref(json_object_get(line, "rows"));
        }
        json_decref(line);
    }
    if (f)
        fclose(f);
    return rows;
}

void bench_keep_result(const struct bench_step_options *o, const char *name,
                       const char *precision, json_t *rows)
{
    FILE *f = o->results && rows ? fopen(o->results, "ae") : NULL;
    json_t *line;

    if (f == NULL) {
        if (o->results && rows)
            fprintf(stderr, "plait-bench: %s: %s\n", o->results,
                    strerror(errno));
        return;
    }
    line = json_pack("{s:s,s:s,s:s,s:s,s:i,s:O}", "case", name, "precision",
                     precision, "cpu_isa", o->isa, "processor",
                     bench_processor(), "threads", o->threads, "rows", rows);
    json_dumpf(line, f, JSON_COMPACT);
    fputc('\n', f);
    json_decref(line);
    if (fclose(f) != 0)
        fprintf(stderr, "plait-bench: %s: %s\n", o->results, strerror(errno));
}

const char *bench_processor(void)
{
    static char name[100];
    FILE *f = name[0] == '\0' ? fopen("/proc/cpuinfo", "re") : NULL;
    char line[200];

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            snprintf(name, sizeof(name), "%.99s", strchr(line, ':') + 2);
            name[strcspn(name, "\n")] = '\0';
            break;
        }
    if (f)
        fclose(f);
    return name[0] != '\0' ? name : "processor";
}
