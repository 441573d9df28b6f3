/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"
#include "temp_path.h"
#include "topology/start/request.h"

/* `plait plan` predicts what srun does: the same flags give the same sizes, the
 * same order and the same place of every task. */

static const char *const names[] = {"n1", "n2", "n3", "n4"};
static const int tasks[] = {4, 4, 4, 4};

/* What srun's plugin makes of the flags; NULL if it refuses them. */
static struct plait_plan *srun_plan(const char *flags)
{
    struct plait_plan_request plan_request = {
        .nnodes = 4, .nodes = names, .tasks = tasks};
    struct plait_plan *plan = NULL;
    struct plait_options options;
    struct plait_job_request request;
    char copy[128], *rest = copy;

    snprintf(copy, sizeof(copy), "%s", flags);
    plait_options_init(&options);
    for (char *flag; (flag = strsep(&rest, " "));) {
        char *value = strchr(flag, '=');
        int i = 0;

        *value++ = '\0';
        while (strcmp(plait_option_texts[i].name, flag + 2) != 0)
            i++;
        if (plait_options_set(&options, (enum plait_option)i, value, NULL) < 0)
            return NULL;
    }
    if (plait_job_request_open(&request, &options, NULL, NULL) == 0 &&
        plait_job_request_to_plan(&request, &plan_request, NULL) == 0)
        plan = plait_plan_create(&plan_request, NULL);
    plait_job_request_close(&request);
    return plan;
}

/* The document that `plait plan` prints; NULL if it refuses the flags. */
static json_t *command_plan(const char *flags)
{
    const char *build = getenv("top_builddir");
    char line[1024];
    json_t *document;
    FILE *pipe;

    snprintf(line, sizeof(line),
             "PLAIT_SITE= %s/plait plan %s --nodes='n[1-4]' "
             "--tasks-per-node=4 --json 2>/dev/null",
             build ? build : ".", flags);
    pipe = popen(line, "r");
    if (!pipe)
        return NULL;
    document = json_loadf(pipe, 0, NULL);
    pclose(pipe);
    return document;
}

static int number(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static int same_ranks(const struct plait_plan *plan, const json_t *ranks)
{
    size_t at = 0;

    for (int i = 0; i < plan->nnodes; i++)
        for (int k = 0; k < plan->tasks[i]; k++, at++) {
            const json_t *task = json_array_get(ranks, at);
            struct plait_coord c;

            plait_layout_coord(&plan->layout, plan->first_rank[i] + k, &c);
            if (number(task, "rank") != plan->first_rank[i] + k ||
                number(task, "node_rank") != plan->node_rank[i])
                return 0;
            for (int a = 0; a < PLAIT_NAXES; a++)
                if (number(task, plait_axis_names[a]) != c.at[a])
                    return 0;
        }
    return json_array_size(ranks) == at;
}

static int same(const struct plait_plan *plan, const json_t *document)
{
    char order[16];

    plait_layout_format_order(&plan->layout, order);
    for (int a = 0; a < PLAIT_NAXES; a++)
        if (number(document, plait_axis_names[a]) != plan->layout.size[a])
            return 0;
    return strcmp(order,
                  json_string_value(json_object_get(document, "order"))) == 0 &&
           same_ranks(plan, json_object_get(document, "ranks"));
}

static void test_flags(const char *flags, int works)
{
    struct plait_plan *plan = srun_plan(flags);
    json_t *document = command_plan(flags);

    ok(works ? plan && document && same(plan, document) : !plan && !document,
       "%s: %s", flags, works ? "planned alike" : "refused alike");
    plait_plan_destroy(plan);
    json_decref(document);
}

/* Writes the file of a model of eight layers, with more text added. */
static void write_file(const char *name, const char *more)
{
    FILE *file = fopen(name, "w");

    if (!file)
        return;
    fprintf(file,
            "model: {family: llama, layers: 8, hidden: 4096, heads: 32, "
            "kv_heads: 8, ffn: 14336, vocab: 32000, seq_len: 4096}\n"
            "train: {global_batch: 64, micro_batch: 1, precision: "
            "bf16}\n%s",
            more);
    fclose(file);
}

/* Eight layers of 4096 are 2 billion weights, 34 GB with their state: too much
 * for one V100, and the site decides what happens then. */
static void test_fits(void)
{
    static const char text[] = "gpu_type: v100-32g\ntoo_large: warn\n";
    struct plait_site *site =
        plait_site_parse("site", text, sizeof(text) - 1, NULL);
    struct plait_options options;
    struct plait_job_request request;
    struct plait_layout layout;
    struct plait_error err = {""};

    ok(site && site->gpu_type_given && site->too_large == PLAIT_TOO_LARGE_WARN,
       "the site's GPUs and what to do");
    plait_options_init(&options);
    plait_options_set(&options, PLAIT_OPTION_MODEL, "model.yaml", NULL);
    plait_job_request_open(&request, &options, site, NULL);
    plait_layout_init(&layout);
    ok(plait_layout_resolve(&layout, 1, NULL) == 0 &&
           plait_job_request_fits(&request, &layout, 1, &err) < 0 &&
           strstr(err.text, "model.yaml in --dp=1 needs ") &&
           strstr(err.text, "; --dp=1 with zero 0, ") &&
           strstr(err.text, "offload optimizer") &&
           strstr(err.text, " would fit"),
       "%s", err.text);
    layout.size[PLAIT_DP] = 8;
    ok(plait_job_request_fits(&request, &layout, 8, &err) < 0 &&
           strstr(err.text, "model.yaml in --dp=8 needs ") &&
           strstr(err.text, " would fit"),
       "%s", err.text);
    layout.size[PLAIT_DP] = 1;
    layout.size[PLAIT_TP] = 8;
    ok(plait_job_request_fits(&request, &layout, 8, &err) == 0,
       "split by 8 it fits");
    plait_job_request_close(&request);
    plait_site_destroy(site);
    site = plait_site_parse("site", "{}", 2, NULL);
    ok(site && !site->gpu_type_given &&
           strcmp(site->gpu_types[site->gpu_type].name, "h100") == 0 &&
           site->too_large == PLAIT_TOO_LARGE_REFUSE,
       "without a word, h100, and no more than a guess");
    plait_site_destroy(site);
}

static void write_foreign(void)
{
    FILE *file = fopen("config.json", "w");

    if (!file)
        return;
    fputs("{\"model_type\": \"llama\", \"hidden_size\": 1024, "
          "\"num_hidden_layers\": 8, \"num_attention_heads\": 16, "
          "\"intermediate_size\": 4096, \"vocab_size\": 32000, "
          "\"max_position_embeddings\": 2048}\n",
          file);
    fclose(file);
}

int main(void)
{
    char dir[TEMP_PATH];
    static const struct {
        const char *flags;
        int works;
    } rows[] = {
        {"--tp=4", 1},
        {"--dp=16", 1},
        {"--dp=2", 1},
        {"--dp=2 --tp=4", 1},
        {"--dp=2 --pp=2", 1},
        {"--dp=2 --pp=2 --cp=2", 1},
        {"--dp=2 --pp=2 --cp=4", 1},
        {"--dp=2 --pp=2 --cp=2 --tp=2", 1},
        {"--tp=2 --pp=2 --dp=auto", 1},
        {"--tp=auto --dp=8", 1},
        {"--tp=2 --pp=2 --dp=2", 1},
        {"--pp=auto --tp=2", 1},
        {"--cp=auto --tp=2 --dp=2", 1},
        {"--tp=2 --ep=4", 1},
        {"--tp=2 --ep=auto", 1},
        {"--tp=2 --cp=2 --rank-order=tp-cp-ep-pp-dp --pp=2", 1},
        {"--tp=2 --rank-order=pp-tp-cp-ep-dp --pp=2", 1},
        {"--tp=4 --placement=linear", 1},
        {"--tp=2 --pp=2 --rank-order=auto", 1},
        {"--tp=auto --pp=auto --model=model.yaml", 1},
        {"--tp=auto --model=model.yaml", 1},
        {"--tp=2 --pp=auto --cp=auto --model=model.yaml", 1},
        {"--tp=auto --pp=auto --dp=2 --model=model.yaml", 1},
        {"--tp=2 --model=model.yaml", 1},
        {"--tp=2 --model=config.json", 1},
        {"--tp=auto --pp=auto --model=config.json", 1},
        {"--model=sizes.yaml", 1},
        {"--model=sizes.yaml --tp=4 --rank-order=auto", 1},
        {"--tp=auto --dp=3 --model=model.yaml", 0},
        {"--tp=2 --model=nowhere.yaml", 0},
        {"--tp=3", 0},
        {"--dp=3", 0},
        {"--tp=8", 0},
        {"--tp=auto", 1}, /* tp is the four tasks of a node, and dp 4 */
        {"--tp=auto --pp=2", 1},
        {"--tp=auto --pp=auto", 0},
        {"--tp=2 --ep=3", 0},
        {"--tp=2 --pp=2 --dp=2 --cp=1", 0},
    };

    /* The command and this program share a working directory. */
    if (!mkdtemp(temp_path(dir, "flags")) || chdir(dir) < 0)
        return 1;
    write_file("model.yaml", "");
    write_file("sizes.yaml", "parallel: {tp: 2, pp: 2}\n");
    write_foreign();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        test_flags(rows[i].flags, rows[i].works);
    test_fits();
    unlink("config.json");
    unlink("model.yaml");
    unlink("sizes.yaml");
    rmdir(dir);
    return done_testing();
}
