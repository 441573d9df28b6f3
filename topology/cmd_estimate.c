/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auto.h"
#include "commands.h"
#include "estimate.h"
#include "traffic.h"

/* plait estimate: what training a model takes. */

enum { SETS_MOST = 32, ADVICE_MOST = 8 };

struct job {
    struct plait_layout layout;
    const char *model_file, *gpu_name, *site_file;
    struct plait_gpu_type gpu;
    int gpus;
    double tokens;
    int json;
    char set[SETS_MOST][96];
    const char *sets[SETS_MOST];
    int nsets;
    struct plait_config *config;
    struct plait_estimate estimate;
};

static int print_help(void)
{
    printf("Usage: plait estimate --model FILE [OPTION...]\n\n"
           "Parameters, FLOPs, memory and time of training a model.\n\n"
           "  --model FILE         the model and how it is trained, "
           "plait.yaml(5)\n"
           "  --gpus N             how many GPUs (the product of the sizes)\n"
           "  --gpu-type TYPE      %s\n"
           "  --site FILE          the site's own figures, as plait probe "
           "writes them\n"
           "  --tp=N --cp=N --ep=N --pp=N --dp=N|auto\n"
           "  --micro-batch N      sequences at once on a GPU\n"
           "  --global-batch N     sequences a step\n"
           "  --zero N             0 to 3\n"
           "  --recompute WHAT     none, selective, full\n"
           "  --schedule NAME      naive, gpipe, 1f1b, interleaved, zb-h1\n"
           "  --virtual N          chunks of layers per pipeline stage\n"
           "  --precision P        fp32, bf16, fp16\n"
           "  --sequence           sequence parallelism\n"
           "  --set KEY=VALUE      anything else of the model file\n"
           "  --tokens N           length of the run (20 per parameter)\n"
           "  --json               print one JSON document\n"
           "  --help               print this\n",
           plait_gpu_type_names());
    return PLAIT_EXIT_GOOD;
}

/* Options that are keys of the model file by another name. */
static const struct key {
    int opt;
    const char *key;
} keys[] = {
    {'b', "train.micro_batch"}, {'B', "train.global_batch"},
    {'z', "parallel.zero"},     {'r', "parallel.recompute"},
    {'S', "parallel.schedule"}, {'V', "parallel.virtual"},
    {'P', "train.precision"},
};

static const struct option options[] = {
    {"tp", required_argument, NULL, 0x100 + PLAIT_TP},
    {"cp", required_argument, NULL, 0x100 + PLAIT_CP},
    {"ep", required_argument, NULL, 0x100 + PLAIT_EP},
    {"dp", required_argument, NULL, 0x100 + PLAIT_DP},
    {"pp", required_argument, NULL, 0x100 + PLAIT_PP},
    {"model", required_argument, NULL, 'm'},
    {"gpus", required_argument, NULL, 'n'},
    {"gpu-type", required_argument, NULL, 'g'},
    {"site", required_argument, NULL, 's'},
    {"micro-batch", required_argument, NULL, 'b'},
    {"global-batch", required_argument, NULL, 'B'},
    {"zero", required_argument, NULL, 'z'},
    {"recompute", required_argument, NULL, 'r'},
    {"schedule", required_argument, NULL, 'S'},
    {"virtual", required_argument, NULL, 'V'},
    {"precision", required_argument, NULL, 'P'},
    {"sequence", no_argument, NULL, 'q'},
    {"set", required_argument, NULL, 'x'},
    {"tokens", required_argument, NULL, 'T'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {0}};

static int add_set(struct job *job, const char *key, const char *value,
                   struct plait_error *err)
{
    int n;

    if (job->nsets == SETS_MOST)
        return plait_errorf(err, "more than %d settings", SETS_MOST);
    n = snprintf(job->set[job->nsets], sizeof(job->set[0]), "%s%s%s", key,
                 *key ? "=" : "", value);
    if (n >= (int)sizeof(job->set[0]))
        return plait_errorf(err, "%.40s...: too long", job->set[job->nsets]);
    job->sets[job->nsets] = job->set[job->nsets];
    job->nsets++;
    return 0;
}

static int parse_tokens(struct job *job, const char *text,
                        struct plait_error *err)
{
    char *end;

    job->tokens = strtod(text, &end);
    if (end == text || *end || !(job->tokens >= 1 && job->tokens <= 1e18))
        return plait_errorf(err, "--tokens=%.40s: want a number such as 1e12",
                            text);
    return 0;
}

static int parse_option(struct job *job, int opt, struct plait_error *err)
{
    char what[8];

    if (opt >= 0x100) {
        char key[16];
        int size;

        snprintf(what, sizeof(what), "--%s", plait_axis_names[opt - 0x100]);
        if (plait_layout_parse_size(what, optarg, &size, err) < 0)
            return -1;
        snprintf(key, sizeof(key), "parallel.%s",
                 plait_axis_names[opt - 0x100]);
        return add_set(job, key, optarg, err);
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i].opt == opt)
            return add_set(job, keys[i].key, optarg, err);
    switch (opt) {
    case 'm':
        job->model_file = optarg;
        return 0;
    case 'n':
        return plait_layout_parse_size("--gpus", optarg, &job->gpus, err);
    case 'g':
        job->gpu_name = optarg;
        return plait_gpu_type_find(optarg, &job->gpu, err);
    case 's':
        job->site_file = optarg;
        return 0;
    case 'q':
        return add_set(job, "parallel.sequence", "true", err);
    case 'x':
        return add_set(job, "", optarg, err);
    case 'T':
        return parse_tokens(job, optarg, err);
    default:
        job->json = 1;
        return 0;
    }
}

static int parse(struct job *job, int argc, char **argv)
{
    struct plait_error err;
    int opt;

    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h')
            return print_help();
        if (opt == '?')
            return PLAIT_EXIT_USAGE; /* getopt_long has said why */
        if (parse_option(job, opt, &err) < 0)
            return plait_cmd_misused("%s", err.text);
    }
    if (optind < argc)
        return plait_cmd_misused("estimate: unexpected argument '%s'",
                                 argv[optind]);
    if (!job->model_file)
        return plait_cmd_misused("estimate: --model is missing");
    return -1;
}

/* Without --gpus, the GPUs are the product of the sizes. */
static int find_layout(struct job *job, struct plait_error *err)
{
    const struct plait_parallel_config *p = &job->config->parallel;
    const int size[PLAIT_NAXES] = {[PLAIT_TP] = p->tp,
                                   [PLAIT_CP] = p->cp,
                                   [PLAIT_EP] = p->ep,
                                   [PLAIT_DP] = p->dp,
                                   [PLAIT_PP] = p->pp};
    int product = 1;

    for (int i = 0; i < PLAIT_NAXES; i++) {
        job->layout.size[i] = size[i];
        if (i != PLAIT_EP && size[i] != PLAIT_AUTO)
            product *= size[i];
    }
    if (!job->gpus)
        job->gpus = product;
    return plait_layout_resolve(&job->layout, job->gpus, err);
}

static json_t *notes_to_json(const struct job *job)
{
    struct plait_advice advice[ADVICE_MOST];
    int n = plait_estimate_advise(job->config, &job->layout, &job->gpu, advice,
                                  ADVICE_MOST);
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(advice[i].text));
    return list;
}

static json_t *memory_to_json(const struct plait_memory *m)
{
    return json_pack("{sf sf sf sf sf sf}", "weights", m->weights, "gradients",
                     m->gradients, "optimizer", m->optimizer, "activations",
                     m->activations, "buffers", m->buffers, "total", m->total);
}

/* A GPU of each pipeline rank. */
static json_t *stages_to_json(const struct job *job)
{
    json_t *list = json_array();

    for (int i = 0; i < job->layout.size[PLAIT_PP]; i++) {
        struct plait_memory m;

        plait_estimate_memory(job->config, &job->layout, &job->gpu, i, &m,
                              NULL);
        json_array_append_new(list, memory_to_json(&m));
    }
    return list;
}

static json_t *to_json(const struct job *job, double days)
{
    const struct plait_estimate *e = &job->estimate;
    const struct plait_memory *m = &e->memory;
    json_t *time = json_pack(
        "{sf sf sf sf sf sf sf sf sf sf sf sf}", "matmul_s", e->matmul_s,
        "elementwise_s", e->elementwise_s, "launch_s", e->launch_s, "head_s",
        e->head_s, "bubble_s", e->bubble_s, "optimizer_s", e->optimizer_s,
        "tp_s", e->axis_s[PLAIT_TP], "cp_s", e->axis_s[PLAIT_CP], "ep_s",
        e->axis_s[PLAIT_EP], "dp_s", e->axis_s[PLAIT_DP], "pp_s",
        e->axis_s[PLAIT_PP], "dp_hidden_s", e->dp_hidden_s);

    return json_pack(
        "{sI sf sf so so si so si sf sf sf sf sf sf sf sb si si si so}",
        "parameters",
        (json_int_t)e->parameters, "flops_per_token", e->flops_per_token,
        "flops_per_step", e->flops_per_step, "memory_bytes",
        memory_to_json(m), "stages_memory_bytes", stages_to_json(job),
        "fullest_stage", e->fullest, "time", time, "slowest_stage",
        e->slowest, "step_s", e->step_s, "tokens_per_s", e->tokens_per_s,
        "tflops_per_gpu", e->tflops_per_gpu, "mfu", e->mfu, "mfu_causal",
        e->mfu_causal, "days", days, "gpu_hours", days * 24 * job->gpus, "fits",
        m->total <= job->gpu.memory, "gpus", job->gpus, "largest_layers",
        plait_estimate_largest(job->config, &job->layout, &job->gpu),
        "fewest_gpus", plait_auto_fewest(job->config, &job->gpu), "notes",
        notes_to_json(job));
}

/* The totals along the pipeline, eight a line. */
static void print_stages(const struct job *job)
{
    printf("%38s", "stage by stage");
    for (int i = 0; i < job->layout.size[PLAIT_PP]; i++) {
        struct plait_memory m;

        plait_estimate_memory(job->config, &job->layout, &job->gpu, i, &m,
                              NULL);
        printf("%s%7.2f", i && i % 6 == 0 ? "\n                                "
                                            "      " : " ",
               m.total / 1e9);
    }
    printf(" GB\n");
}

static void print_memory(const struct job *job)
{
    const struct plait_memory *m = &job->estimate.memory;

    printf("\nmemory of the fullest GPU      weights %8.2f GB\n"
           "                             gradients %8.2f GB\n"
           "                             optimizer %8.2f GB\n"
           "                           activations %8.2f GB\n"
           "                               buffers %8.2f GB\n"
           "                                 total %8.2f GB of %.0f%s\n",
           m->weights / 1e9, m->gradients / 1e9, m->optimizer / 1e9,
           m->activations / 1e9, m->buffers / 1e9, m->total / 1e9,
           job->gpu.memory / 1e9,
           m->total <= job->gpu.memory ? "" : ": does not fit");
    if (job->layout.size[PLAIT_PP] > 1)
        print_stages(job);
}

static void print_time(const struct job *job)
{
    const struct plait_estimate *e = &job->estimate;

    printf("\nstep                        %8.3f s\n", e->step_s);
    printf("  matrix products           %8.3f s\n", e->matmul_s);
    printf("  elementwise work          %8.3f s\n", e->elementwise_s);
    printf("  launches and gaps         %8.3f s\n", e->launch_s);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (e->axis_s[i] > 0)
            printf("  %s traffic                %8.3f s\n", plait_axis_names[i],
                   e->axis_s[i]);
    if (e->dp_hidden_s > 0)
        printf("    overlap can hide        %8.3f s of dp\n", e->dp_hidden_s);
    if (job->layout.size[PLAIT_PP] > 1)
        printf("  pipeline bubble           %8.3f s\n", e->bubble_s);
    printf("  head and loss             %8.3f s\n", e->head_s);
    printf("  optimizer                 %8.3f s\n", e->optimizer_s);
}

static void print_questions(const struct job *job)
{
    struct plait_advice advice[ADVICE_MOST];
    int n = plait_estimate_advise(job->config, &job->layout, &job->gpu, advice,
                                  ADVICE_MOST);
    int layers = plait_estimate_largest(job->config, &job->layout, &job->gpu);
    int fewest = plait_auto_fewest(job->config, &job->gpu);
    struct plait_model_config deeper = job->config->model;

    deeper.layers = layers;
    printf("\n");
    if (layers)
        printf("On these GPUs, in this layout, a model of this width fits up "
               "to %d layers\n(%.1f billion parameters).\n",
               layers, plait_model_parameters(&deeper) / 1e9);
    else
        printf("On these GPUs, in this layout, no depth of this model "
               "fits.\n");
    if (fewest)
        printf("The model needs at least %d %s GPU%s (plait plan --auto "
               "finds the layout).\n",
               fewest, job->gpu.name, fewest == 1 ? "" : "s");
    else
        printf("No number of %s GPUs up to 65536 holds it.\n", job->gpu.name);
    for (int i = 0; i < n; i++)
        printf("note: %s\n", advice[i].text);
}

static void print_text(const struct job *job, double days)
{
    const struct plait_estimate *e = &job->estimate;

    printf("%.3f billion parameters on %d %s GPUs:", e->parameters / 1e9,
           job->gpus, job->gpu.name);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (job->layout.size[i] > 1 || i == PLAIT_DP)
            printf(" %s=%d", plait_axis_names[i], job->layout.size[i]);
    printf("\n%.4g FLOPs a token = 3 (l (2 W + 4 s h) + 2 h V); %.4g a step "
           "with what is\nrecomputed\n",
           e->flops_per_token, e->flops_per_step);
    print_memory(job);
    print_time(job);
    printf("\n%.0f tokens/s, %.1f TFLOP/s per GPU\n"
           "MFU %.1f %% (attention in full), %.1f %% (causal half)\n"
           "%.3g tokens take %.2f days, %.0f GPU-hours\n",
           e->tokens_per_s, e->tflops_per_gpu, 100 * e->mfu,
           100 * e->mfu_causal, job->tokens, days, days * 24 * job->gpus);
    print_questions(job);
}

static int run(struct job *job, struct plait_error *err)
{
    double days;

    if (plait_cmd_gpu_type(job->site_file, job->gpu_name, &job->gpu, err) < 0)
        return -1;
    job->config =
        plait_config_create(job->model_file, job->sets, job->nsets, err);
    if (!job->config || find_layout(job, err) < 0 ||
        plait_estimate(job->config, &job->layout, &job->gpu, &job->estimate,
                       err) < 0)
        return -1;
    if (!job->tokens)
        job->tokens = 20 * job->estimate.parameters;
    days = job->tokens / job->estimate.tokens_per_s / 86400;
    if (job->json)
        return plait_cmd_json(to_json(job, days));
    print_text(job, days);
    return PLAIT_EXIT_GOOD;
}

int plait_cmd_estimate(int argc, char **argv)
{
    struct job job = {.json = 0};
    struct plait_error err;
    int rc;

    plait_layout_init(&job.layout);
    rc = parse(&job, argc, argv);
    if (rc >= 0)
        return rc;
    rc = run(&job, &err);
    plait_config_destroy(job.config);
    return rc < 0 ? plait_cmd_failed("%s", err.text) : rc;
}
