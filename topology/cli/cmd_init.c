/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/text.h"
#include "topology/cli/commands.h"
#include "topology/job/job_config.h"
#include "topology/node/node.h"
#include "topology/predict/auto.h"

/* plait init: write a commented configuration for a model of some size and the
 * GPUs of this machine. */

/* Shapes, batches and learning rates that were published: GPT-2's shapes by
 * Radford et al., "Language models are unsupervised multitask learners"
 * (2019), its batches and rates by Brown et al. (arXiv:2005.14165, table 2.1);
 * Llama 2 (arXiv:2307.09288), Llama 3 (arXiv:2407.21783) and the model cards
 * of Llama 3.2, whose rates were not published: 1b and 3b take 8b's. */
static const struct size {
    const char *name, *family;
    int layers, hidden, heads, kv_heads, ffn, vocab, seq_len;
    double batch_tokens, lr;
    const char *more; /* keys of this family */
} sizes[] = {
    {"tiny", "gpt2", 4, 256, 4, 4, 1024, 257, 256, 8192, 1e-3, ""},
    {"124m", "gpt2", 12, 768, 12, 12, 3072, 50257, 1024, 524288, 6e-4, ""},
    {"355m", "gpt2", 24, 1024, 16, 16, 4096, 50257, 1024, 524288, 3e-4, ""},
    {"774m", "gpt2", 36, 1280, 20, 20, 5120, 50257, 1024, 524288, 2.5e-4, ""},
    {"1.5b", "gpt2", 48, 1600, 25, 25, 6400, 50257, 1024, 1048576, 2e-4, ""},
    {"1b", "llama", 16, 2048, 32, 8, 8192, 128256, 8192, 4194304, 3e-4,
     "    tie_embeddings: true\n    rope_theta: 500000\n"},
    {"3b", "llama", 28, 3072, 24, 8, 8192, 128256, 8192, 4194304, 3e-4,
     "    tie_embeddings: true\n    rope_theta: 500000\n"},
    {"7b", "llama", 32, 4096, 32, 32, 11008, 32000, 4096, 4194304, 3e-4, ""},
    {"8b", "llama", 32, 4096, 32, 8, 14336, 128256, 8192, 4194304, 3e-4,
     "    rope_theta: 500000\n"},
    {"13b", "llama", 40, 5120, 40, 40, 13824, 32000, 4096, 4194304, 3e-4, ""},
    {"70b", "llama", 80, 8192, 64, 8, 28672, 128256, 8192, 8388608, 1.5e-4,
     "    rope_theta: 500000\n"},
    {"405b", "llama", 126, 16384, 128, 8, 53248, 128256, 8192, 16777216, 8e-5,
     "    rope_theta: 500000\n"},
};

enum { NSIZES = sizeof(sizes) / sizeof(sizes[0]) };

struct job {
    const struct size *size;
    const char *site_file, *gpu_name, *out;
    int gpus; /* 0: those of this machine */
    struct plait_gpu_type gpu;
    bool here; /* one process on this machine's CPU, with its memory */
    struct plait_choices *found;
};

static void print_help(void)
{
    printf("Usage: plait init --model SIZE [OPTION...]\n\n"
           "Write a commented configuration for plait-train: a model of this "
           "size, in the\nfastest layout that fits.\n\n"
           "  --model SIZE       of GPT-2, and from 1b on of Llama; one of "
           "these:\n     ");
    for (int i = 0; i < NSIZES; i++)
        printf(" %s", sizes[i].name);
    printf("\n"
           "  --gpus N           how many GPUs (those of this machine)\n"
           "  --gpu-type TYPE    one of these (the type found here):\n"
           "      %s\n"
           "  --site FILE        the site's own figures, as plait probe "
           "writes them\n"
           "  --out FILE         write there (standard output); an existing "
           "file is kept\n"
           "  --help             print this\n",
           plait_gpu_type_names());
}

bool plait_cmd_init_has(const char *name)
{
    for (int i = 0; i < NSIZES; i++)
        if (strcasecmp(sizes[i].name, name) == 0)
            return true;
    return false;
}

static int find_size(struct job *job, const char *name, struct plait_error *err)
{
    char names[160] = "";

    for (int i = 0; i < NSIZES; i++) {
        if (strcasecmp(sizes[i].name, name) == 0) {
            job->size = &sizes[i];
            return 0;
        }
        strcat(strcat(names, " "), sizes[i].name);
    }
    return plait_errorf(err, "--model=%.40s: must be one of%s", name, names);
}

static int parse_gpus(struct job *job, const char *text,
                      struct plait_error *err)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (!isdigit((unsigned char)*text) || *end || n < 1 || n > 1 << 20)
        return plait_errorf(
            err, "--gpus=%.40s: must be a number from 1 to 1048576", text);
    job->gpus = (int)n;
    return 0;
}

static const struct option options[] = {
    {"model", required_argument, NULL, 'm'},
    {"gpus", required_argument, NULL, 'u'},
    {"gpu-type", required_argument, NULL, 'g'},
    {"site", required_argument, NULL, 's'},
    {"out", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {0}};

/* -1 to go on, else the exit status. */
static int read_options(struct job *job, int argc, char **argv)
{
    struct plait_error err;
    int opt;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'm':
            if (find_size(job, optarg, &err) < 0)
                return plait_cmd_misused("init: %s", err.text);
            break;
        case 'u':
            if (parse_gpus(job, optarg, &err) < 0)
                return plait_cmd_misused("init: %s", err.text);
            break;
        case 'g':
            job->gpu_name = optarg;
            break;
        case 's':
            job->site_file = optarg;
            break;
        case 'o':
            job->out = optarg;
            break;
        case 'h':
            print_help();
            return PLAIT_EXIT_GOOD;
        default:
            return plait_cmd_refuse_option(options, "", argc, argv);
        }
    }
    if (optind < argc && job->size)
        return plait_cmd_misused("init: unexpected argument '%s'; see 'plait "
                                 "init --help'",
                                 argv[optind]);
    if (optind < argc)
        return plait_cmd_misused("init: unexpected argument '%s'; did you mean "
                                 "--model %s?",
                                 argv[optind], argv[optind]);
    if (!job->size)
        return plait_cmd_misused("init: --model is missing; see 'plait init "
                                 "--help'");
    return -1;
}

/* Leave a quarter for the system, the page cache and the buffers that the
 * estimate does not know. */
static void take_memory_of_this_machine(struct job *job)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    double memory = 0.75 * (double)pages * (double)size;

    if (pages > 0 && size > 0 && memory < job->gpu.memory)
        job->gpu.memory = memory;
}

/* Take what was not given from this machine; without a GPU, its CPU. */
static int find_gpus(struct job *job, struct plait_error *err)
{
    struct plait_node *node = NULL;
    const char *name = job->gpu_name;
    int ngpus = 0;

    job->here = !job->gpus && !name && !job->site_file;
    if (!job->gpus || !name) {
        node = plait_node_create(1, err);
        if (!node)
            return -1;
        ngpus = node->ngpus;
        if (!name)
            name = ngpus       ? plait_gpu_type_of(&node->gpus[0])
                   : job->gpus ? NULL
                               : "cpu";
    }
    if (!job->gpus)
        job->gpus = ngpus ? ngpus : 1;
    plait_node_destroy(node);
    if (!name)
        return plait_errorf(err, "the type of the GPUs is not known here; "
                                 "give it with --gpu-type");
    if (plait_cmd_gpu_type(job->site_file, name, &job->gpu, NULL, err) < 0)
        return -1;
    job->here &= ngpus == 0;
    if (job->here)
        take_memory_of_this_machine(job);
    return 0;
}

static bool runs_on_cpu(const struct job *job)
{
    return strcmp(job->gpu.name, "cpu") == 0;
}

/* The fastest precision of the GPU: before the A100, there is no bf16. */
static const char *precision_of(const struct job *job)
{
    if (runs_on_cpu(job))
        return "fp32";
    return strncmp(job->gpu.name, "v100", 4) == 0 ? "fp16" : "bf16";
}

/* A line of the file, with the comment in a column of its own. */
static void __attribute__((format(printf, 3, 4)))
print_key(FILE *out, const char *comment, const char *fmt, ...)
{
    char text[80];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(out, *comment ? "    %-24s # %s\n" : "    %s\n", text, comment);
}

/* The part of the file that does not depend on the layout. */
static void print_model(const struct job *job, FILE *out)
{
    const struct size *s = job->size;

    fprintf(out, "model:\n");
    print_key(out, "", "family: %s", s->family);
    print_key(out, "", "layers: %d", s->layers);
    print_key(out, "", "hidden: %d", s->hidden);
    print_key(out, "", "heads: %d", s->heads);
    print_key(out, "heads of keys and values", "kv_heads: %d", s->kv_heads);
    print_key(out, "", "ffn: %d", s->ffn);
    print_key(out, "the tokenizer's; 257 for bytes", "vocab: %d", s->vocab);
    print_key(out, "tokens in a sequence", "seq_len: %d", s->seq_len);
    fprintf(out, "%s", s->more);
}

/* The batch in sequences. */
static int global_batch(const struct size *s)
{
    return (int)(s->batch_tokens / s->seq_len);
}

/* Chinchilla's 20 tokens a parameter (arXiv:2203.15556). */
static long steps_of(const struct job *job)
{
    const struct plait_estimate *e = &job->found->choice[0].estimate;

    return (long)(20 * e->parameters / job->size->batch_tokens) + 1;
}

/* One process needs no srun. */
static void print_command(const struct job *job, FILE *out)
{
    const int *size = job->found->choice[0].layout.size;
    char room[PLAIT_QUOTED_MAX];
    const char *file =
        job->out ? plait_text_quote(job->out, room) : "THIS-FILE";
    int tasks = plait_gpu_type_tasks(&job->gpu, job->gpus);

    fprintf(out, "#   plait prep TEXT... --out tokens\n");
    if (job->gpus == 1) {
        fprintf(out, "#   plait train %s\n", file);
        return;
    }
    fprintf(out, "#   srun -N%d --ntasks-per-node=%d", job->gpus / tasks,
            tasks);
    if (!runs_on_cpu(job))
        fprintf(out, " --gpus-per-node=%d", tasks);
    fprintf(out,
            " --tp=%d --cp=%d --pp=%d --dp=%d \\\n"
            "#       plait-train %s\n",
            size[PLAIT_TP], size[PLAIT_CP], size[PLAIT_PP], size[PLAIT_DP],
            file);
}

static void print_head(const struct job *job, FILE *out)
{
    const struct plait_estimate *e = &job->found->choice[0].estimate;
    bool large = e->parameters >= 1e9;

    fprintf(out, "# %.3g %s parameters, planned by plait init for ",
            e->parameters / (large ? 1e9 : 1e6), large ? "billion" : "million");
    if (runs_on_cpu(job))
        fprintf(out, "%d process%s without a GPU.\n", job->gpus,
                job->gpus == 1 ? "" : "es");
    else
        fprintf(out,
                "%d %s GPU%s:\n# %.2f GB of %.0f, %.3g s a step, %.3g "
                "tokens/s.\n",
                job->gpus, job->gpu.name, job->gpus == 1 ? "" : "s",
                e->memory.total / 1e9, job->gpu.memory / 1e9, e->step_s,
                e->tokens_per_s);
    fprintf(out, "#\n");
    print_command(job, out);
    fprintf(out, "#\n# Every key: man plait.yaml\n");
}

/* A size of one is left to the default: in the file it would refuse a job that
 * is started with another one, as by srun --tp=2. */
static void print_size(FILE *out, const char *comment, int axis,
                       const int *size)
{
    const char *name = plait_axis_names[axis];
    char text[80];

    if (size[axis] > 1) {
        print_key(out, comment, "%s: %d", name, size[axis]);
        return;
    }
    snprintf(text, sizeof(text), "%s: 1", name);
    fprintf(out, "    # %-22s # %s; or srun --%s=2 ...\n", text, comment, name);
}

static void print_parallel(const struct job *job, FILE *out)
{
    const struct plait_choice *c = &job->found->choice[0];
    const int *size = c->layout.size;

    fprintf(out, "parallel:\n");
    print_size(out, "tensor: a layer's products are split", PLAIT_TP, size);
    print_size(out, "context: sequences are split", PLAIT_CP, size);
    print_size(out, "pipeline: layers are split", PLAIT_PP, size);
    print_key(out, "data: all ranks that are left", "dp: auto");
    if (size[PLAIT_PP] > 1) {
        print_key(out, "of micro-batches", "schedule: %s",
                  plait_schedule_names[c->parallel.schedule]);
        print_key(out, "runs of layers of a pipeline rank", "virtual: %d",
                  c->parallel.virtual_stages);
    }
    if (c->parallel.sequence)
        print_key(out, "norms are split over tp too", "sequence: true");
    print_key(out, "1: optimizer state is sharded over dp,", "zero: %d",
              c->parallel.zero);
    fprintf(out, "    %-24s # 2: gradients too, 3: weights too\n", "");
    print_key(out, "activations made again, not kept", "recompute: %s",
              plait_recompute_names[c->parallel.recompute]);
    if (c->parallel.offload)
        print_key(out, "kept in the host's memory", "offload: %s",
                  plait_offload_names[c->parallel.offload]);
}

static void print_train(const struct job *job, FILE *out)
{
    const struct size *s = job->size;
    long steps = steps_of(job);

    fprintf(out, "train:\n");
    print_key(out, "", "precision: %s", precision_of(job));
    print_key(out, "20 tokens a parameter", "steps: %ld", steps);
    print_key(out, "sequences a step", "global_batch: %d", global_batch(s));
    print_key(out, "sequences at a time on a GPU", "micro_batch: %d",
              job->found->choice[0].micro_batch);
    print_key(out, "steps between validations", "eval_every: %ld",
              steps < 250 ? steps : 250);
    fprintf(out, "optim:\n");
    print_key(out, "or muon, lamb, adamw8bit, ...", "name: adamw");
    print_key(out, "", "lr: %g", s->lr);
    fprintf(out, "lr:\n");
    print_key(out, "or linear, constant, step, wsd", "schedule: cosine");
    print_key(out, "steps", "warmup: %ld", steps < 14000 ? steps / 20 : 700);
    print_key(out, "share of lr at the end", "min: 0.1");
    fprintf(out, "checkpoint:\n");
    print_key(out, "the next start goes on from it", "dir: checkpoints");
    print_key(out, "steps", "every: %ld", steps < 1000 ? steps : 1000);
    fprintf(out, "log:\n");
    print_key(out, "plait watch, plait report", "metrics: metrics.jsonl");
}

static void print_file(const void *arg, FILE *out)
{
    const struct job *job = arg;

    print_head(job, out);
    print_model(job, out);
    fprintf(out, "data:\n");
    print_key(out, "the folder that plait prep wrote", "train: tokens");
    print_key(out, "", "val: tokens");
    print_parallel(job, out);
    print_train(job, out);
}

/* The model and its batch, for the search. */
static struct plait_job_config *create_config(const struct job *job,
                                              struct plait_error *err)
{
    struct plait_job_config *config = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    print_model(job, out);
    fprintf(out, "train: {precision: %s, global_batch: %d, micro_batch: 1}\n",
            precision_of(job), global_batch(job->size));
    if (fclose(out) == 0)
        config =
            plait_job_config_parse(job->size->name, text, size, NULL, 0, err);
    else
        plait_errorf(err, "out of memory");
    free(text);
    return config;
}

static int plan_layout(struct job *job, struct plait_error *err)
{
    struct plait_job_config *config = create_config(job, err);
    struct plait_layout layout;
    int rc = -1, fewest;

    if (!config)
        return -1;
    plait_layout_init(&layout);
    for (int i = 0; i < PLAIT_NAXES; i++)
        layout.size[i] = i == PLAIT_EP ? 1 : PLAIT_AUTO;
    job->found = plait_auto_create(config, &layout, job->gpus, &job->gpu, 1);
    if (!job->found)
        plait_errorf(err, "out of memory");
    else if (job->found->n > 0)
        rc = 0;
    else if (job->here)
        plait_errorf(err,
                     "%s does not fit into this machine, which has no GPU and "
                     "%.0f GB for it; name the GPUs it is for, as in --gpus=8 "
                     "--gpu-type=h100",
                     job->size->name, job->gpu.memory / 1e9);
    else if ((fewest = plait_auto_fewest_free(config, &job->gpu)) > job->gpus)
        plait_errorf(err,
                     "%s on %d %s: does not fit; it needs at least "
                     "--gpus=%d",
                     job->size->name, job->gpus, job->gpu.name, fewest);
    else
        plait_auto_why(job->found, config, job->gpus, &job->gpu, err);
    plait_job_config_destroy(config);
    return rc;
}

/* An existing file is not overwritten. */
static int write_file(const struct job *job)
{
    int fd;

    if (!job->out)
        return plait_cmd_write("-", print_file, job);
    fd = open(job->out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return plait_cmd_failed("%s: %s", job->out,
                                errno == EEXIST ? "is there already; name "
                                                  "another with --out"
                                                : strerror(errno));
    close(fd);
    return plait_cmd_write(job->out, print_file, job);
}

int plait_cmd_init(int argc, char **argv)
{
    struct job job = {0};
    struct plait_error err;
    int rc = read_options(&job, argc, argv);

    if (rc >= 0)
        return rc;
    if (find_gpus(&job, &err) < 0 || plan_layout(&job, &err) < 0)
        rc = plait_cmd_failed("init: %s", err.text);
    else
        rc = write_file(&job);
    plait_choices_destroy(job.found);
    return rc;
}
