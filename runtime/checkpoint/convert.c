/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "runtime/checkpoint/convert.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/checkpoint/convert_dir.h"
#include "runtime/checkpoint/model_source.h"

/* plait-convert: models in and out. See plait-convert(1). */

static const char usage[] =
    "usage: plait-convert --from DIR --to DIR [--format hf|plait]\n"
    "                     [--dtype fp32|bf16|fp16]\n"
    "\n"
    "Make a checkpoint of plait-train's from a model of Hugging Face's, or a\n"
    "model of Hugging Face's from a checkpoint.\n"
    "\n"
    "  --from DIR      what is read: config.json and model.safetensors, or a\n"
    "                  checkpoint, or a directory of checkpoints (the one\n"
    "                  saved last)\n"
    "  --to DIR        what is made\n"
    "  --format NAME   of what is made: hf or plait; the other of the two\n"
    "  --dtype NAME    of the weights that hf gets: fp32 (default), bf16, "
    "fp16\n"
    "  -h, --help      this text\n"
    "  -V, --version   the version\n";

enum format { FORMAT_NONE, FORMAT_HF, FORMAT_PLAIT };

struct job {
    const char *from, *to;
    enum format format;
    enum plait_dtype type;
    bool typed; /* --dtype was given */
    struct plait_model_source source;
};

/* What there is, and so what is made of it. */
static int choose_format(struct job *job, struct plait_error *err)
{
    enum format made;

    if (plait_model_source_find(job->from, &job->source, err) < 0)
        return -1;
    made = job->source.hf ? FORMAT_PLAIT : FORMAT_HF;
    errno = EINVAL;
    if (job->format != FORMAT_NONE && job->format != made)
        return plait_errorf(err, "%s: is a %s already", job->from,
                            job->source.hf ? "model of Hugging Face's"
                                           : "checkpoint of plait's");
    if (job->typed && made == FORMAT_PLAIT)
        return plait_errorf(err, "--dtype is for --format hf: checkpoints are "
                                 "fp32");
    job->format = made;
    return 0;
}

/* config.json is kept for the way back: see plait_hf_config_write(). */
static int convert_to_plait(const struct job *job,
                            const struct plait_convert_dir *dir,
                            struct plait_converted *done,
                            struct plait_error *err)
{
    if (plait_convert_from_hf(job->from, dir->made, done, err) < 0)
        return -1;
    return plait_convert_dir_copy_file(dir, job->from, "config.json", err);
}

static int run_job(struct job *job, struct plait_error *err)
{
    struct plait_convert_dir dir;
    struct plait_converted done;
    int ret;

    if (choose_format(job, err) < 0 ||
        plait_convert_dir_open(&dir, job->to, err) < 0)
        return -1;
    ret = job->format == FORMAT_HF
              ? plait_convert_to_hf(job->source.path, dir.made, job->type,
                                    job->from, &done, err)
              : convert_to_plait(job, &dir, &done, err);
    if (ret == 0)
        ret = plait_convert_dir_copy(&dir, job->from, err);
    if (ret == 0)
        ret = plait_convert_dir_commit(&dir, err);
    if (ret < 0) {
        plait_convert_dir_abandon(&dir);
        return -1;
    }
    printf("# %lld parameters in %d tensors, %d file%s: %s\n",
           (long long)done.parameters, done.tensors, done.files,
           done.files == 1 ? "" : "s", dir.to);
    if (job->format == FORMAT_PLAIT)
        printf("# the section \"model\" of plait.yaml: %s/latest/plait.yaml\n",
               dir.to);
    return 0;
}

/* -- the command line ----------------------------------------------------- */

static int take_format(const char *text, struct job *job)
{
    if (!strcmp(text, "hf")) {
        job->format = FORMAT_HF;
        return 0;
    }
    if (!strcmp(text, "plait")) {
        job->format = FORMAT_PLAIT;
        return 0;
    }
    if (!strcmp(text, "megatron") || !strcmp(text, "llmc"))
        fprintf(stderr,
                "plait-convert: --format %s is not there yet: hf and plait "
                "are\n",
                text);
    else
        fprintf(stderr, "plait-convert: --format is hf or plait, not '%s'\n",
                text);
    return -1;
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
    fprintf(stderr, "plait-convert: --dtype is fp32, bf16 or fp16, not '%s'\n",
            text);
    return -1;
}

static int wrong_option(int c, const char *option)
{
    fprintf(stderr, "plait-convert: %s %s; see --help\n", option,
            c == ':' ? "needs a value" : "is no option");
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
            return wrong_option(c, argv[optind - 1]);
        else if ((c == 'F' && take_format(optarg, job) < 0) ||
                 (c == 'd' && take_type(optarg, job) < 0))
            return 3; /* said already */
    }
    if (optind == argc && job->from && *job->from && job->to && *job->to)
        return 0;
    fprintf(stderr, "plait-convert: --from DIR and --to DIR say what is "
                    "converted; see --help\n");
    return 3;
}

int main(int argc, char **argv)
{
    struct job job = {.type = PLAIT_F32};
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
