/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/cmd_model.h"
#include "topology/cli/commands.h"
#include "topology/plan/traffic.h"
#include "topology/predict/auto.h"
#include "topology/predict/estimate.h"

/* plait estimate: memory and time of training a model. */

enum { ADVICE_MOST = 8 };

struct job {
    struct model_options options;
    struct model_job model;
    double tokens;
    const char *whence; /* of tokens; "": the command line */
    struct plait_estimate estimate;
    struct plait_change change; /* with flags "" where it fits or none does */
};

static void print_help(void)
{
    printf("Usage: plait estimate --model FILE [OPTION...]\n\n"
           "Parameters, FLOPs, memory and time of training a model.\n\n"
           "  --model FILE         the model and how it is trained, "
           "plait.yaml(5)\n"
           "  --gpus N             how many GPUs (the product of the sizes)\n"
           "  --gpu-type TYPE      one of these:\n      %s\n"
           "  --site FILE          the site's own figures, as plait probe "
           "writes them\n"
           "  --tp=N --cp=N --ep=N --pp=N --dp=N|auto\n",
           plait_gpu_type_names());
    model_options_print_help();
    printf(
        "  --tokens N           length of the run (that of train.steps, else "
        "20 per\n                       parameter)\n"
        "  --json               print one JSON document\n"
        "  --help               print this\n");
}

static const struct option options[] = {
    MODEL_OPTIONS, {"tokens", required_argument, NULL, 'T'}, {0}};

static int parse_tokens(struct job *job, const char *text,
                        struct plait_error *err)
{
    char *end;

    job->tokens = strtod(text, &end);
    if (end == text || *end || !(job->tokens >= 1 && job->tokens <= 1e18))
        return plait_errorf(
            err, "--tokens=%.40s: must be a number such as 1e12", text);
    return 0;
}

static int parse_option(void *job, int opt, struct plait_error *err)
{
    if (opt == 'T')
        return parse_tokens(job, optarg, err);
    print_help();
    return 0;
}

static json_t *notes_to_json(const struct job *job)
{
    struct plait_advice advice[ADVICE_MOST];
    int n = plait_estimate_advise(job->model.config, &job->model.layout,
                                  &job->model.gpu, advice, ADVICE_MOST);
    json_t *list = json_array();
    char warning[256];

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(advice[i].text));
    plait_gpu_type_warn(&job->model.gpu, warning, sizeof(warning));
    if (*warning)
        json_array_append_new(list, json_string(warning));
    return list;
}

static json_t *memory_to_json(const struct plait_memory *m)
{
    return json_pack(
        "{sf sf sf sf sf sf sf sf sf sf}", "weights", m->weights, "gradients",
        m->gradients, "optimizer", m->optimizer, "activations", m->activations,
        "buffers", m->buffers, "communicators", m->communicators, "total",
        m->total, "host", m->host, "expected", m->expected, "worst", m->worst);
}

/* The memory of a GPU of each pipeline rank. */
static json_t *stages_to_json(const struct job *job)
{
    json_t *list = json_array();

    for (int i = 0; i < job->model.layout.size[PLAIT_PP]; i++) {
        struct plait_memory m;

        plait_estimate_memory(job->model.config, &job->model.layout,
                              &job->model.gpu, i, &m, NULL);
        json_array_append_new(list, memory_to_json(&m));
    }
    return list;
}

/* Bytes that the fullest GPU lacks; 0: the training fits. */
static double missing(const struct job *job)
{
    double rest = job->estimate.memory.total - job->model.gpu.memory;

    return rest > 0 ? rest : 0;
}

static json_t *to_json(const struct job *job, double days)
{
    const struct plait_estimate *e = &job->estimate;
    const struct plait_memory *m = &e->memory;
    struct plait_goodput g;
    json_t *time =
        json_pack("{sf sf sf sf sf sf sf sf sf sf sf sf sf sf sf}", "matmul_s",
                  e->matmul_s, "attention_s", e->attention_s, "straggler_s",
                  e->straggler_s, "elementwise_s", e->elementwise_s, "launch_s",
                  e->launch_s, "head_s", e->head_s, "bubble_s", e->bubble_s,
                  "optimizer_s", e->optimizer_s, "tp_s", e->axis_s[PLAIT_TP],
                  "cp_s", e->axis_s[PLAIT_CP], "ep_s", e->axis_s[PLAIT_EP],
                  "dp_s", e->axis_s[PLAIT_DP], "pp_s", e->axis_s[PLAIT_PP],
                  "dp_hidden_s", e->dp_hidden_s, "cores_s", e->cores_s);

    plait_estimate_goodput(&job->model.gpu, job->model.gpus, &g);
    return json_pack(
        "{sI sI sf sf so so si so si sf sf sf sf sf sf sf sb si si si so sf "
        "sf sf sf ss ss ss}",
        "parameters", (json_int_t)e->parameters, "active_parameters",
        (json_int_t)e->active, "flops_per_token", e->flops_per_token,
        "flops_per_step", e->flops_per_step, "memory_bytes", memory_to_json(m),
        "stages_memory_bytes", stages_to_json(job), "fullest_stage", e->fullest,
        "time", time, "slowest_stage", e->slowest, "step_s", e->step_s,
        "tokens_per_s", e->tokens_per_s, "tflops_per_gpu", e->tflops_per_gpu,
        "mfu", e->mfu, "mfu_causal", e->mfu_causal, "days", days, "gpu_hours",
        days * 24 * job->model.gpus, "fits", m->total <= job->model.gpu.memory,
        "gpus", job->model.gpus, "largest_layers",
        plait_estimate_largest(job->model.config, &job->model.layout,
                               &job->model.gpu),
        "fewest_gpus", plait_auto_fewest(job->model.config, &job->model.gpu),
        "notes", notes_to_json(job), "goodput", g.share, "failure_s", g.between,
        "tokens", job->tokens, "missing_bytes", missing(job), "change",
        job->change.flags, "attention_by", e->attention_by, "attention_why",
        e->attention_why);
}

/* Image models are small: their memory is printed in megabytes. */
static bool is_image(const struct job *job)
{
    return plait_is_image_model(&job->model.config->model);
}

/* The total memory of each pipeline stage, five to a line. */
static void print_stages(const struct job *job)
{
    printf("%38s", "stage by stage");
    for (int i = 0; i < job->model.layout.size[PLAIT_PP]; i++) {
        struct plait_memory m;

        plait_estimate_memory(job->model.config, &job->model.layout,
                              &job->model.gpu, i, &m, NULL);
        printf("%s%7.2f",
               i && i % 5 == 0 ? "\n                                "
                                 "      "
                               : " ",
               m.total / (is_image(job) ? 1e6 : 1e9));
    }
    printf(is_image(job) ? " MB\n" : " GB\n");
}

/* With experts: memory by how tokens are routed. */
static void print_routing(const struct plait_memory *m)
{
    bool allocated = m->total >= m->worst;

    printf("       tokens spread over the experts %8.2f GB%s\n"
           "        all to the experts of one GPU %8.2f GB%s\n",
           m->expected / 1e9, allocated ? "" : ", which is counted",
           m->worst / 1e9, allocated ? ", which plait-train allocates" : "");
}

static void print_memory(const struct job *job)
{
    const struct plait_memory *m = &job->estimate.memory;
    const char *name = is_image(job) ? "MB" : "GB";
    double unit = is_image(job) ? 1e6 : 1e9;

    printf("\nmemory of the fullest GPU      weights %8.2f %s\n"
           "                             gradients %8.2f %s\n"
           "                             optimizer %8.2f %s\n"
           "                           activations %8.2f %s\n"
           "                               buffers %8.2f %s\n"
           "                                 total %8.2f %s of %.0f%s\n",
           m->weights / unit, name, m->gradients / unit, name,
           m->optimizer / unit, name, m->activations / unit, name,
           m->buffers / unit, name, m->total / unit, name,
           job->model.gpu.memory / unit,
           m->total <= job->model.gpu.memory ? "" : ": does not fit");
    if (m->communicators > 0)
        printf("      of the buffers communicators %8.2f GB\n",
               m->communicators / 1e9);
    if (m->worst > m->expected)
        print_routing(m);
    if (m->host > 0)
        printf(
            "        beside it in the host's memory %8.2f GB of %.0f for each "
            "GPU\n",
            m->host / 1e9, job->model.gpu.host_memory / 1e9);
    if (job->model.layout.size[PLAIT_PP] > 1)
        print_stages(job);
}

static void print_time(const struct job *job)
{
    const struct plait_estimate *e = &job->estimate;

    printf("\nstep                        %8.3f s\n", e->step_s);
    printf("  matrix products           %8.3f s\n", e->matmul_s);
    printf("  attention                 %8.3f s%s%s%s%s%s\n", e->attention_s,
           *e->attention_by ? ", " : "", e->attention_by,
           *e->attention_why ? " (" : "", e->attention_why,
           *e->attention_why ? ")" : "");
    printf("  elementwise work          %8.3f s\n", e->elementwise_s);
    printf("  launches and gaps         %8.3f s\n", e->launch_s);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (e->axis_s[i] > 0)
            printf("  %s traffic                %8.3f s\n", plait_axis_names[i],
                   e->axis_s[i]);
    if (e->dp_hidden_s > 0)
        printf("    hidden beside it        %8.3f s of dp\n", e->dp_hidden_s);
    if (job->model.layout.size[PLAIT_PP] > 1)
        printf("  pipeline bubble           %8.3f s\n", e->bubble_s);
    printf("  head and loss             %8.3f s\n", e->head_s);
    printf("  optimizer                 %8.3f s\n", e->optimizer_s);
    if (e->offload_s > 0)
        printf("  offloading                %8.3f s\n", e->offload_s);
    if (e->cores_s > 0)
        printf("  waiting for shared cores  %8.3f s\n", e->cores_s);
    if (e->straggler_s > 0)
        printf("  waiting for the slowest   %8.3f s\n", e->straggler_s);
}

/* Break the note into lines of 79 columns. */
static void print_note(const char *text)
{
    int column = printf("note:");

    while (*text) {
        int n = (int)strcspn(text, " ");

        if (column + 1 + n > 79)
            column = printf("\n     ") - 1;
        column += printf(" %.*s", n, text);
        text += n + (text[n] == ' ');
    }
    printf("\n");
}

static void print_fewest(const struct job *job)
{
    char text[96];

    if (model_fewest_gpus(job->model.config, &job->model.gpu, text,
                          sizeof(text)) > 0)
        printf("The model needs at least %s (plait plan --auto\n"
               "finds the layout).\n",
               text);
    else
        printf("No number of %s GPUs up to 65536 holds it.\n",
               job->model.gpu.name);
}

static void print_questions(const struct job *job)
{
    struct plait_advice advice[ADVICE_MOST];
    int n = plait_estimate_advise(job->model.config, &job->model.layout,
                                  &job->model.gpu, advice, ADVICE_MOST);
    int layers = plait_estimate_largest(job->model.config, &job->model.layout,
                                        &job->model.gpu);
    struct plait_model_config deeper = job->model.config->model;
    char warning[256];

    deeper.layers = layers;
    printf("\n");
    if (layers)
        printf("On these GPUs, in this layout, a model of this width fits up "
               "to %d layers\n(%.1f billion parameters).\n",
               layers, plait_model_parameters(&deeper) / 1e9);
    else
        printf("On these GPUs, in this layout, no depth of this model "
               "fits.\n");
    print_fewest(job);
    for (int i = 0; i < n; i++)
        print_note(advice[i].text);
    plait_gpu_type_warn(&job->model.gpu, warning, sizeof(warning));
    if (*warning)
        print_note(warning);
}

static void print_layout(const struct job *job)
{
    printf(" parameters on %d %s GPU%s:", job->model.gpus, job->model.gpu.name,
           job->model.gpus == 1 ? "" : "s");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (job->model.layout.size[i] > 1 || i == PLAIT_DP)
            printf(" %s=%d", plait_axis_names[i], job->model.layout.size[i]);
}

/* For an image model: a token is an image. */
static void print_image(const struct job *job)
{
    const struct plait_estimate *e = &job->estimate;

    printf("%.0f", e->parameters);
    print_layout(job);
    printf("\n%.4g FLOPs an image, 6 a multiplication; %.4g a step\n",
           e->flops_per_token, e->flops_per_step);
    print_memory(job);
    if (missing(job) > 0)
        return;
    print_time(job);
    printf("\n%.0f images/s, %.3f TFLOP/s per GPU, MFU %.1f %%\n",
           e->tokens_per_s, e->tflops_per_gpu, 100 * e->mfu);
}

/* For a run so long that failures count. */
static void print_goodput(const struct job *job, double days)
{
    struct plait_goodput g;

    plait_estimate_goodput(&job->model.gpu, job->model.gpus, &g);
    if (days * 86400 > g.between && g.share > 0)
        printf("with failures %.2f days: one every %.3g hours, a checkpoint "
               "every %.0f minutes,\n%.1f %% of the time gets on\n",
               days / g.share, g.between / 3600, g.checkpoint / 60,
               100 * g.share);
}

/* "2.98 days", "3.1 hours", "73 seconds" */
static void format_time(double days, char *buf, size_t size)
{
    double seconds = days * 86400;

    if (seconds >= 2 * 86400)
        snprintf(buf, size, "%.2f days", days);
    else if (seconds >= 2 * 3600)
        snprintf(buf, size, "%.1f hours", seconds / 3600);
    else if (seconds >= 120)
        snprintf(buf, size, "%.1f minutes", seconds / 60);
    else
        snprintf(buf, size, "%.3g seconds", seconds);
}

static void print_speed(const struct job *job, double days)
{
    const struct plait_estimate *e = &job->estimate;
    double hours = days * 24 * job->model.gpus;
    char time[32];

    format_time(days, time, sizeof(time));
    printf("\n%.0f tokens/s, %.1f TFLOP/s per GPU\n"
           "MFU %.1f %% (attention in full), %.1f %% (causal half)\n"
           "%.3g tokens%s take %s, %.*f GPU-hours\n",
           e->tokens_per_s, e->tflops_per_gpu, 100 * e->mfu,
           100 * e->mfu_causal, job->tokens, job->whence, time,
           hours < 10 ? 4 : 0, hours);
}

static void print_text(const struct job *job, double days)
{
    const struct plait_estimate *e = &job->estimate;

    if (e->parameters < 1e7)
        printf("%.3f million", e->parameters / 1e6);
    else
        printf("%.3f billion", e->parameters / 1e9);
    print_layout(job);
    if (e->active < e->parameters)
        printf("\n%.3f billion of them for a token", e->active / 1e9);
    printf("\n%.4g FLOPs a token = 3 (l (2 W + 4 s h) + 2 h V%s);\n"
           "%.4g a step with what is recomputed\n",
           e->flops_per_token,
           job->model.config->model.mtp_layers
               ? " + 2 W + 4 s h + 4 h^2 + 2 h V"
               : "",
           e->flops_per_step);
    print_memory(job);
    if (missing(job) == 0) {
        print_time(job);
        print_speed(job, days);
        print_goodput(job, days);
    }
    print_questions(job);
}

/* Before all else, where the training does not fit: how much is missing, and
 * the smallest change that helps. */
static void print_misfit(const struct job *job)
{
    const struct plait_gpu_type *gpu = &job->model.gpu;
    const char *name = is_image(job) ? "MB" : "GB";
    double unit = is_image(job) ? 1e6 : 1e9;

    printf("does not fit: the fullest GPU needs %.2f %s, %.2f more than the "
           "%.0f of each %s\n",
           job->estimate.memory.total / unit, name, missing(job) / unit,
           gpu->memory / unit, gpu->name);
    if (*job->change.flags)
        printf("the smallest change that fits: %s (%.2f %s, %.3f s a step)\n",
               job->change.flags, job->change.total / unit, name,
               job->change.step_s);
    else
        printf("no change of layout or settings fits on %d GPU%s with this "
               "batch\n",
               job->model.gpus, job->model.gpus == 1 ? "" : "s");
    printf("\n");
}

/* The length of the run, where the command line does not say it. */
static void set_tokens(struct job *job)
{
    const struct plait_job_config *c = job->model.config;
    const struct plait_numbers *growth = &c->batch.growth;
    double samples = 0, batch = c->train.global_batch;
    int64_t at = 0;

    if (job->tokens > 0)
        return;
    job->whence = " (20 a parameter)";
    job->tokens = 20 * job->estimate.parameters;
    if (!c->steps_given)
        return;
    for (int i = 0; i < growth->n && growth->at[2 * i] < c->train.steps; i++) {
        samples += (double)(growth->at[2 * i] - at) * batch;
        at = growth->at[2 * i];
        batch = (double)growth->at[2 * i + 1];
    }
    samples += (double)(c->train.steps - at) * batch;
    job->whence = " (train.steps)";
    job->tokens = samples * c->model.seq_len;
}

static int run_estimate(struct job *job, struct plait_error *err)
{
    double days;

    if (model_job_load(&job->model, &job->options, err) < 0 ||
        plait_estimate(job->model.config, &job->model.layout, &job->model.gpu,
                       &job->estimate, err) < 0)
        return -1;
    set_tokens(job);
    if (missing(job) > 0)
        plait_estimate_change(job->model.config, &job->model.layout,
                              &job->model.gpu, &job->change);
    days = job->tokens / job->estimate.tokens_per_s / 86400;
    if (job->options.json)
        return plait_cmd_json(to_json(job, days));
    if (missing(job) > 0)
        print_misfit(job);
    if (is_image(job))
        print_image(job);
    else
        print_text(job, days);
    return missing(job) > 0 ? PLAIT_EXIT_FAILED : PLAIT_EXIT_GOOD;
}

int plait_cmd_estimate(int argc, char **argv)
{
    struct job job = {.whence = ""};
    struct plait_error err;
    int rc;

    model_options_init(&job.options);
    rc = model_options_read(&job.options, "estimate", argc, argv, options,
                            parse_option, &job);
    if (rc >= 0)
        return rc;
    if (!job.options.model_file)
        return plait_cmd_misused("estimate: --model is missing");
    rc = run_estimate(&job, &err);
    model_job_release(&job.model);
    return rc < 0 ? plait_cmd_ended(model_options_status(&job.options), &err)
                  : rc;
}
