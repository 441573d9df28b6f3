/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/cmd_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/cli/commands.h"
#include "topology/job/foreign_config.h"
#include "topology/predict/auto.h"

void model_options_init(struct model_options *o)
{
    memset(o, 0, sizeof(*o));
    plait_layout_init(&o->layout);
}

/* Options that are keys of the model file by another name. */
static const struct key {
    int opt;
    const char *key, *option;
} keys[] = {
    {'b', "train.micro_batch", "--micro-batch"},
    {'B', "train.global_batch", "--global-batch"},
    {'z', "parallel.zero", "--zero"},
    {'r', "parallel.recompute", "--recompute"},
    {'S', "parallel.schedule", "--schedule"},
    {'V', "parallel.virtual", "--virtual"},
    {'P', "train.precision", "--precision"},
    {'q', "parallel.sequence", "--sequence"},
    {'x', "", "--set"},
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

/* "  --OPTION a|b|c", the words from the table that checks them. */
static void print_choices(const char *option, const char *name)
{
    const struct plait_yaml_field *s;
    size_t section = strcspn(name, ".");
    int n;

    s = plait_job_config_sections(&n);
    while (strncmp(s->name, name, section) != 0 || s->name[section])
        s++;
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->fields[i].name, name + section + 1) == 0) {
            printf("  --%s ", option);
            plait_cmd_print_values(stdout, &s->fields[i]);
            putchar('\n');
        }
}

void model_options_print_help(void)
{
    printf("  --micro-batch N      sequences that a GPU processes at once\n"
           "  --global-batch N     sequences in a step, over all GPUs\n"
           "  --zero 0|1|2|3       shard over dp 1: optimizer state, 2: and\n"
           "                       gradients, 3: and weights\n");
    print_choices("recompute", "parallel.recompute");
    print_choices("schedule", "parallel.schedule");
    printf("  --virtual N          chunks of layers per pipeline rank\n");
    print_choices("precision", "train.precision");
    printf("  --framework NAME     the trainer to predict: plait, megatron, "
           "torchtitan,\n"
           "                       llm-foundry, megatron-2021, internevo\n"
           "  --sequence           sequence parallelism\n"
           "  --set KEY=VALUE      override any other key of the model file\n");
}

int model_options_set(struct model_options *o, const char *key,
                      const char *value, struct plait_error *err)
{
    int n;

    if (o->nsets == MODEL_SETS)
        return plait_errorf(err, "more than %d settings", MODEL_SETS);
    n = snprintf(o->set[o->nsets], sizeof(o->set[0]), "%s%s%s", key,
                 *key ? "=" : "", value);
    if (n >= (int)sizeof(o->set[0]))
        return plait_errorf(err, "%.40s...: too long", o->set[o->nsets]);
    o->sets[o->nsets] = o->set[o->nsets];
    o->nsets++;
    return 0;
}

static int read_size(struct model_options *o, enum plait_axis axis,
                     struct plait_error *err)
{
    char what[8], key[16];

    snprintf(what, sizeof(what), "--%s", plait_axis_names[axis]);
    if (plait_layout_parse_size(what, optarg, &o->layout.size[axis], err) < 0)
        return -1;
    o->given |= 1u << axis;
    snprintf(key, sizeof(key), "parallel.%s", plait_axis_names[axis]);
    return model_options_set(o, key, optarg, err);
}

/* 1: the option was one of MODEL_OPTIONS; 0: it was not; -1: its argument is
 * wrong. */
static int read_option(struct model_options *o, int opt,
                       struct plait_error *err)
{
    if (opt >= 0x100 && opt < 0x100 + PLAIT_NAXES)
        return read_size(o, (enum plait_axis)(opt - 0x100), err) < 0 ? -1 : 1;
    for (int i = 0; i < NKEYS; i++)
        if (keys[i].opt == opt) {
            o->schedule |= opt == 'S';
            o->interleaved |= opt == 'V' && strcmp(optarg, "1") != 0;
            o->key = o->key ? o->key : keys[i].option;
            o->by_option |= 1u << i;
            return model_options_set(o, keys[i].key, optarg ? optarg : "true",
                                     err) < 0
                       ? -1
                       : 1;
        }
    switch (opt) {
    case 'm':
        o->model_file = optarg;
        return 1;
    case 'u':
        return plait_layout_parse_size("--gpus", optarg, &o->gpus, err) < 0 ? -1
                                                                            : 1;
    case 'g':
        o->gpu_name = optarg;
        return 1;
    case 'W':
        o->framework_given = true;
        return plait_framework_find(optarg, &o->framework, err) < 0 ? -1 : 1;
    case 's':
        o->site_file = optarg;
        return 1;
    case 'j':
        o->json = 1;
        return 1;
    default:
        return 0;
    }
}

/* Only the interleaved schedule has several chunks of layers. */
static void imply_schedule(struct model_options *o)
{
    struct plait_error err;

    if (o->interleaved && !o->schedule)
        model_options_set(o, "parallel.schedule", "interleaved", &err);
}

/* A folder stands for the configuration in it: of a run, of one of its
 * checkpoints, or of a model of Hugging Face. */
static int find_file(struct model_options *o, struct plait_error *err)
{
    static const char *const names[] = {"plait.yaml", "latest/plait.yaml",
                                        "config.json"};
    struct stat st;

    if (!o->model_file)
        return 0;
    if (stat(o->model_file, &st) < 0 && errno == ENOENT &&
        plait_cmd_init_has(o->model_file))
        return plait_errorf(err,
                            "--model %s: there is no such file; 'plait init "
                            "--model %s --gpus %d --gpu-type %s --out %s.yaml' "
                            "writes one",
                            o->model_file, o->model_file,
                            o->gpus ? o->gpus : 64,
                            o->gpu_name ? o->gpu_name : "h100", o->model_file);
    if (stat(o->model_file, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0; /* who reads it reports what is wrong */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int n = snprintf(o->found_file, sizeof(o->found_file), "%s/%s",
                         o->model_file, names[i]);

        if (n < (int)sizeof(o->found_file) &&
            access(o->found_file, F_OK) == 0) {
            o->model_file = o->found_file;
            return 0;
        }
    }
    return plait_errorf(err,
                        "--model %s: this folder has neither plait.yaml nor "
                        "config.json",
                        o->model_file);
}

int model_options_read(struct model_options *o, const char *command, int argc,
                       char **argv, const struct option *options,
                       int (*parse)(void *job, int opt,
                                    struct plait_error *err),
                       void *job)
{
    struct plait_error err;
    int opt, rc;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == '?')
            return plait_cmd_refuse_option(options, "h", argc, argv);
        rc = read_option(o, opt, &err);
        if (rc == 0)
            rc = parse(job, opt, &err);
        if (rc < 0)
            return plait_cmd_misused("%s", err.text);
        if (opt == 'h')
            return PLAIT_EXIT_GOOD;
    }
    if (o->takes_rest && optind > 1 && strcmp(argv[optind - 1], "--") == 0) {
        o->rest = argv + optind;
        o->nrest = argc - optind;
    } else if (optind < argc && !o->model_file &&
               access(argv[optind], R_OK) == 0)
        return plait_cmd_misused("%s: unexpected argument '%s'; did you mean "
                                 "--model %s?",
                                 command, argv[optind], argv[optind]);
    else if (optind < argc)
        return plait_cmd_misused("%s: unexpected argument '%s'", command,
                                 argv[optind]);
    imply_schedule(o);
    if (find_file(o, &err) < 0)
        return plait_cmd_failed("%s: %s", command, err.text);
    return plait_cmd_check_gpu_type(o->site_file, o->gpu_name);
}

/* A wrong value is told by the option that gave it, not by its key. */
static void name_option(const struct model_options *o, struct plait_error *err)
{
    struct plait_error told = *err;

    for (int i = 0; i < NKEYS; i++) {
        size_t n = strlen(keys[i].key);

        if (n && o->by_option >> i & 1 &&
            strncmp(told.text, "--set ", 6) == 0 &&
            strncmp(told.text + 6, keys[i].key, n) == 0 &&
            told.text[6 + n] == '=')
            snprintf(err->text, sizeof(err->text), "%s%s", keys[i].option,
                     told.text + 6 + n);
    }
}

struct plait_job_config *model_options_config(const struct model_options *o,
                                              struct plait_error *err)
{
    enum plait_framework framework = PLAIT_FRAMEWORK_PLAIT;
    struct plait_job_config *config = plait_foreign_config_create(
        o->model_file, (const char **)o->sets, o->nsets, &framework, err);

    if (o->framework_given)
        framework = o->framework;
    if (!config) {
        name_option(o, err);
        return NULL;
    }
    if (framework != PLAIT_FRAMEWORK_PLAIT &&
        config->optim.masters != PLAIT_MASTERS_FP32) {
        errno = EINVAL;
        plait_errorf(err, "optim.masters bf16 is for --framework plait, not %s",
                     plait_framework_names[framework]);
        plait_job_config_destroy(config);
        return NULL;
    }
    config->framework = framework;
    if (framework != PLAIT_FRAMEWORK_PLAIT &&
        config->train.graph == PLAIT_GRAPH_ON)
        config->graphs = true;
    return config;
}

int model_options_status(const struct model_options *o)
{
    enum plait_framework framework = PLAIT_FRAMEWORK_PLAIT;
    struct plait_job_config *config = NULL;
    struct plait_error ignored;

    if (o->model_file && (o->nsets || o->given || o->gpus))
        config = plait_foreign_config_create(o->model_file, NULL, 0, &framework,
                                             &ignored);
    plait_job_config_destroy(config);
    return config ? PLAIT_EXIT_USAGE : PLAIT_EXIT_FAILED;
}

/* Without --gpus, as many GPUs as the product of the sizes. Sizes that are auto
 * become the fastest that fit; where only dp is, it follows from the others. */
static int find_layout(struct model_job *job, int gpus, struct plait_error *err)
{
    const int *size = job->config->parallel.layout.size;
    bool open = false;

    job->layout = job->config->parallel.layout;
    for (int i = 0; i < PLAIT_NAXES; i++)
        open |= size[i] == PLAIT_AUTO && i != PLAIT_EP && i != PLAIT_DP;
    job->gpus = gpus ? gpus : plait_layout_given(&job->layout);
    if (!open)
        return plait_layout_resolve(&job->layout, job->gpus, err);
    errno = EINVAL;
    if (!gpus)
        return plait_errorf(err, "--gpus is missing: a size is auto");
    return plait_layout_choose(&job->layout, 0, job->config, gpus, &job->gpu,
                               err);
}

int model_job_load(struct model_job *job, const struct model_options *o,
                   struct plait_error *err)
{
    if (plait_cmd_gpu_type(o->site_file, o->gpu_name, &job->gpu, NULL, err) < 0)
        return -1;
    job->config = model_options_config(o, err);
    return job->config ? find_layout(job, o->gpus, err) : -1;
}

int model_fewest_gpus(const struct plait_job_config *config,
                      const struct plait_gpu_type *gpu, char *text, size_t size)
{
    int fewest = plait_auto_fewest(config, gpu);
    int whole = fewest ? plait_auto_fewest_whole(config, gpu) : 0;
    size_t n;

    snprintf(text, size, "%d %s GPU%s", fewest, gpu->name,
             fewest == 1 ? "" : "s");
    n = strlen(text);
    if (fewest < whole)
        snprintf(text + n, size - n, " with offloading, %d without", whole);
    else if (fewest && !whole)
        snprintf(text + n, size - n, " with offloading");
    return fewest;
}

void model_job_release(struct model_job *job)
{
    plait_job_config_destroy(job->config);
}
