/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/convert/convert.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/model_extras.h"
#include "runtime/checkpoint/model_source.h"
#include "runtime/convert/convert_dir.h"
#include "runtime/convert/dcp.h"
#include "runtime/convert/dcp_import.h"
#include "runtime/convert/llmc.h"
#include "runtime/convert/megatron.h"
#include "topology/base/option_words.h"
#include "topology/base/text.h"

/* plait-convert: models in and out. See plait-convert(1). */

static const char usage[] =
    "usage: plait-convert --from DIR --to DIR [--format "
    "hf|plait|llmc|megatron]\n"
    "                     [--dtype fp32|bf16|fp16] [--tp N] [--pp N]\n"
    "                     [--transformer-impl transformer_engine|local]\n"
    "\n"
    "Convert a model of Hugging Face, llm.c, Megatron-LM or PyTorch into a\n"
    "checkpoint of plait-train, or a checkpoint into a model of the first "
    "three.\n"
    "\n"
    "  --from DIR      the model to read: a directory with config.json and\n"
    "                  model.safetensors, a file of llm.c (gpt2_124M.bin), a\n"
    "                  checkpoint of plait-train, Megatron-LM or PyTorch (with "
    "the\n"
    "                  model's config.json in it), or a directory of "
    "checkpoints\n"
    "                  (the newest is taken)\n"
    "  --to DIR        the directory to write\n"
    "  --format NAME   the format to write: plait (default); from a "
    "checkpoint\n"
    "                  hf (default), llmc (model.bin) or megatron (release)\n"
    "  --dtype NAME    the type of the weights written as hf, llmc or "
    "megatron:\n"
    "                  fp32 (default), bf16 or fp16\n"
    "  --tp N          the tensor parallel size of the megatron files (1)\n"
    "  --pp N          the pipeline parallel size of the megatron files (1)\n"
    "  --transformer-impl NAME\n"
    "                  which names the megatron tensors get:\n"
    "                  transformer_engine (default) or local\n"
    "  -h, --help      this text\n"
    "  -V, --version   the version\n";

enum format {
    FORMAT_NONE,
    FORMAT_HF,
    FORMAT_PLAIT,
    FORMAT_LLMC,
    FORMAT_MEGATRON,
    FORMAT_DCP /* is only read */
};

static const char *const format_names[] = {[FORMAT_HF] = "hf",
                                           [FORMAT_PLAIT] = "plait",
                                           [FORMAT_LLMC] = "llmc",
                                           [FORMAT_MEGATRON] = "megatron"};
static const char *const kinds[] = {
    [FORMAT_HF] = "a model of Hugging Face's",
    [FORMAT_PLAIT] = "a checkpoint of plait's",
    [FORMAT_LLMC] = "a model of llm.c's",
    [FORMAT_MEGATRON] = "a checkpoint of Megatron-LM's",
    [FORMAT_DCP] = "a checkpoint of "
                   "torch.distributed.checkpoint"};

struct job {
    const char *from, *to;
    enum format format; /* the format of what is made */
    enum format found;  /* the format of what is read */
    enum plait_dtype type;
    bool typed; /* --dtype was given */
    struct plait_megatron_layout layout;
    bool laid_out;                    /* an option for it was given */
    struct plait_model_source source; /* path: also of Megatron-LM's, and of
                                         config.json beside one of DCP's */
};

static int find_source(struct job *job, struct plait_error *err)
{
    int megatron;

    job->found = FORMAT_LLMC;
    if (plait_llmc_is_model(job->from))
        return 0;
    job->found = FORMAT_MEGATRON;
    megatron = plait_megatron_find(job->from, job->source.path, err);
    if (megatron)
        return megatron < 0 ? -1 : 0;
    job->found = FORMAT_DCP;
    if (plait_dcp_is(job->from))
        return plait_dcp_config_find(job->from, job->source.path, err);
    if (plait_model_source_find(job->from, &job->source, err) < 0)
        return -1;
    job->found = job->source.hf ? FORMAT_HF : FORMAT_PLAIT;
    return 0;
}

/* Find out what `from` is, and so what is made of it. */
static int choose_format(struct job *job, struct plait_error *err)
{
    if (find_source(job, err) < 0)
        return -1;
    if (job->format == FORMAT_NONE)
        job->format = job->found == FORMAT_PLAIT ? FORMAT_HF : FORMAT_PLAIT;
    errno = EINVAL;
    if (job->format == job->found)
        return plait_errorf(err, "%s: it is %s already", job->from,
                            kinds[job->found]);
    if (job->found != FORMAT_PLAIT && job->format != FORMAT_PLAIT)
        return plait_errorf(err,
                            "%s: is %s: convert it to a checkpoint first "
                            "(--format plait), and that to %s",
                            job->from, kinds[job->found], kinds[job->format]);
    if (job->typed && job->format == FORMAT_PLAIT)
        return plait_errorf(err, "--dtype is for --format hf, llmc and "
                                 "megatron: checkpoints are fp32");
    if (job->laid_out && job->format != FORMAT_MEGATRON)
        return plait_errorf(err, "--tp, --pp and --transformer-impl are for "
                                 "--format megatron: other formats are not "
                                 "divided into ranks");
    if (job->type == PLAIT_FP16_T && job->format == FORMAT_LLMC)
        return plait_errorf(err, "--dtype fp16: llm.c's models are fp32 or "
                                 "bf16");
    return 0;
}

/* config.json is copied for the conversion back: see
 * plait_hf_config_write(). */
static int convert_to_plait(const struct job *job,
                            const struct plait_convert_dir *dir,
                            struct plait_converted *done,
                            struct plait_error *err)
{
    const char *from;
    int rc;

    if (job->found == FORMAT_LLMC)
        return plait_convert_from_llmc(job->from, dir->made, done, err);
    if (job->found == FORMAT_MEGATRON)
        return plait_convert_from_megatron(job->source.path, dir->made, done,
                                           err);
    from = job->found == FORMAT_DCP ? job->source.path : job->from;
    if (job->found == FORMAT_DCP)
        rc = plait_convert_from_dcp(job->from, from, dir->made, done, err);
    else
        rc = plait_convert_from_hf(from, dir->made, done, err);
    if (rc == 0)
        rc = plait_copy_file(from, dir->made, "config.json", err);
    return rc < 0 ? -1 : 0;
}

/* The whole path of a folder that will have this name. malloc'ed. */
static char *whole_path(const char *name)
{
    const char *slash = strrchr(name, '/');
    char *parent = slash == name ? strdup("/")
                   : slash       ? strndup(name, (size_t)(slash - name))
                                 : strdup(".");
    char *whole = parent ? realpath(parent, NULL) : NULL, *path = NULL;

    if (whole && asprintf(&path, "%s/%s", strcmp(whole, "/") ? whole : "",
                          slash ? slash + 1 : name) < 0)
        path = NULL;
    free(parent);
    free(whole);
    return path;
}

/* The value of a key, as YAML quotes any text. */
static void print_path(FILE *out, const char *key, const char *path,
                       const char *more)
{
    fprintf(out, "  %s: '", key);
    for (; *path; path++)
        fprintf(out, *path == '\'' ? "''" : "%c", *path);
    fprintf(out, "%s'\n", more);
}

/* A configuration that trains the model on, from its weights. */
static void print_config(const struct plait_model_config *model,
                         const char *path, FILE *out)
{
    fprintf(out, "# Trains on a model that plait convert has read; data.train "
                 "is missing.\n"
                 "# Every key: man plait.yaml\n");
    plait_job_config_print_model(model, out);
    fprintf(out, "train:\n"
                 "  # new: with new weights instead of those of the model\n");
    print_path(out, "init", path, "");
    fprintf(out, "checkpoint:\n");
    print_path(out, "dir", path, "-trained");
}

static int write_config(const struct plait_convert_dir *dir,
                        struct plait_error *err)
{
    struct plait_model_source source;
    struct plait_model_config model;
    char *path, *file = NULL;
    FILE *out = NULL;
    int rc = -1;

    if (plait_model_source_find(dir->made, &source, err) < 0 ||
        plait_model_file_read(source.path, &model, err) < 0)
        return -1;
    path = whole_path(dir->to);
    if (path && asprintf(&file, "%s/plait.yaml", dir->made) >= 0)
        out = fopen(file, "we");
    if (out) {
        print_config(&model, path, out);
        rc = ferror(out) ? -1 : 0;
        rc = fclose(out) == 0 ? rc : -1;
    }
    if (rc < 0)
        plait_errorf(err, "%s/plait.yaml: cannot write: %s", dir->to,
                     strerror(errno));
    free(path);
    free(file);
    return rc;
}

static int convert(const struct job *job, const struct plait_convert_dir *dir,
                   struct plait_converted *done, struct plait_error *err)
{
    switch (job->format) {
    case FORMAT_HF:
        return plait_convert_to_hf(job->source.path, dir->made, job->type,
                                   job->from, done, err);
    case FORMAT_LLMC:
        return plait_convert_to_llmc(job->source.path, dir->made, job->type,
                                     done, err);
    case FORMAT_MEGATRON:
        return plait_convert_to_megatron(job->source.path, dir->made, job->type,
                                         &job->layout, done, err);
    default:
        return convert_to_plait(job, dir, done, err);
    }
}

static void print_notes(const struct job *job,
                        const struct plait_converted *done)
{
    struct plait_hf_notes notes;

    if (job->found == FORMAT_HF || job->found == FORMAT_DCP) {
        bool dcp = job->found == FORMAT_DCP;

        plait_hf_notes_read(dcp ? job->source.path : job->from, NULL, &notes);
        notes.untied = dcp ? done->untied : notes.untied;
        plait_hf_notes_print(&notes, "# ", stdout);
    }
    if (done->dropout[0])
        printf("# %s\n", done->dropout);
}

static int run_job(struct job *job, struct plait_error *err)
{
    struct plait_convert_dir dir;
    struct plait_converted done = {.tensors = 0};
    char room[PLAIT_QUOTED_MAX];
    int rc;

    if (choose_format(job, err) < 0 ||
        plait_convert_dir_open(&dir, job->to, err) < 0)
        return -1;
    rc = job->found == FORMAT_LLMC
             ? 0
             : plait_model_extras_copy(job->from, dir.made, err);
    if (rc == 0)
        rc = convert(job, &dir, &done, err);
    if (rc == 0 && job->format == FORMAT_PLAIT)
        rc = write_config(&dir, err);
    if (rc == 0)
        rc = plait_convert_dir_commit(&dir, err);
    if (rc < 0) {
        plait_convert_dir_abandon(&dir);
        return -1;
    }
    printf("# %lld parameters in %d tensors, %d file%s: %s\n",
           (long long)done.parameters, done.tensors, done.files,
           done.files == 1 ? "" : "s", dir.to);
    print_notes(job, &done);
    if (job->format == FORMAT_PLAIT)
        printf("# to train it on: plait train %s/plait.yaml --set "
               "data.train=TOKENS\n",
               plait_text_quote(dir.to, room));
    return 0;
}

/* -- the command line ----------------------------------------------------- */

static int take_format(const char *text, struct job *job)
{
    for (int i = FORMAT_HF; i <= FORMAT_MEGATRON; i++)
        if (!strcmp(text, format_names[i])) {
            job->format = (enum format)i;
            return 0;
        }
    fprintf(stderr,
            "plait-convert: --format must be hf, plait, llmc or megatron, not "
            "'%s'\n",
            text);
    return -1;
}

static int take_ranks(const char *axis, const char *text, int *ranks)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*text && !*end && n >= 1 && n <= 512) {
        *ranks = (int)n;
        return 0;
    }
    fprintf(stderr,
            "plait-convert: --%s must be a whole number from 1 to 512, not "
            "'%s'\n",
            axis, text);
    return -1;
}

static int take_names(const char *text, bool *local)
{
    *local = !strcmp(text, "local");
    if (*local || !strcmp(text, "transformer_engine"))
        return 0;
    fprintf(stderr,
            "plait-convert: --transformer-impl must be transformer_engine or "
            "local, not '%s'\n",
            text);
    return -1;
}

/* 1: it is another option. */
static int take_layout(int c, const char *text, struct job *job)
{
    if (c != 'T' && c != 'P' && c != 'I')
        return 1;
    job->laid_out = true;
    if (c == 'I')
        return take_names(text, &job->layout.local);
    return take_ranks(c == 'T' ? "tp" : "pp", text,
                      c == 'T' ? &job->layout.tp : &job->layout.pp);
}

static int take_type(const char *text, struct job *job)
{
    static const enum plait_dtype types[] = {PLAIT_F32, PLAIT_BF16_T,
                                             PLAIT_FP16_T};

    for (int i = 0; i < 3; i++) {
        if (strcmp(text, plait_dtype_name(types[i])) != 0)
            continue;
        job->type = types[i];
        job->typed = true;
        return 0;
    }
    fprintf(stderr,
            "plait-convert: --dtype must be fp32, bf16 or fp16, not "
            "'%s'\n",
            text);
    return -1;
}

static int wrong_option(int c, const struct option *table, const char *option)
{
    char advice[PLAIT_OPTION_ADVICE];

    if (c == ':') {
        fprintf(stderr, "plait-convert: %s needs a value; see --help\n",
                option);
        return 3;
    }
    plait_option_advise(table, option, advice);
    fprintf(stderr, "plait-convert: unknown option '%s'%s\n", option, advice);
    return 3;
}

/* `word` is one that follows the options, NULL where none does. */
static int refuse_words(const char *word)
{
    if (word)
        fprintf(stderr,
                "plait-convert: unexpected argument '%s'; --from DIR names the "
                "model, --to DIR where it is written; see --help\n",
                word);
    else
        fprintf(stderr, "plait-convert: --from DIR or --to DIR is missing; see "
                        "--help\n");
    return 3;
}

/* 0: go on; else the program ends with status - 1. */
static int parse_args(int argc, char **argv, struct job *job)
{
    static const struct option options[] = {
        {"from", required_argument, NULL, 'f'},
        {"to", required_argument, NULL, 't'},
        {"format", required_argument, NULL, 'F'},
        {"dtype", required_argument, NULL, 'd'},
        {"tp", required_argument, NULL, 'T'},
        {"pp", required_argument, NULL, 'P'},
        {"transformer-impl", required_argument, NULL, 'I'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0}};
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":hV", options, NULL)) != -1) {
        if (c == 'h' || c == 'V') {
            fputs(c == 'h' ? usage : "plait-convert " PACKAGE_VERSION "\n",
                  stdout);
            return 1;
        }
        if (c == 'f')
            job->from = optarg;
        else if (c == 't')
            job->to = optarg;
        else if (c == '?' || c == ':')
            return wrong_option(c, options, plait_option_word(argc, argv));
        else if ((c == 'F' && take_format(optarg, job) < 0) ||
                 (c == 'd' && take_type(optarg, job) < 0) ||
                 take_layout(c, optarg, job) < 0)
            return 3; /* reported already */
    }
    if (optind == argc && job->from && *job->from && job->to && *job->to)
        return 0;
    return refuse_words(optind < argc ? argv[optind] : NULL);
}

int main(int argc, char **argv)
{
    struct job job = {.type = PLAIT_F32, .layout = {1, 1, false}};
    struct plait_error err = {""};
    int status = parse_args(argc, argv, &job);

    if (status > 1)
        return status - 1;
    if (status == 0 && run_job(&job, &err) < 0) {
        fprintf(stderr, "plait-convert: %s\n", err.text);
        return 1;
    }
    /* A full disk must not pass for success. */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "plait-convert: cannot write to standard output: %s\n",
            strerror(errno));
    return 1;
}
