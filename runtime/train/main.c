/* SPDX-License-Identifier: Apache-2.0 */
/* The program plait-train: its command line, and which of its commands runs. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/first_weights.h"
#include "runtime/train/option.h"
#include "runtime/train/program.h"
#include "runtime/train/resume.h"
#include "runtime/train/run.h"
#include "runtime/train/watchdog/signals.h"

#define SAMPLE_TOKENS 200

static const char help[] =
    "usage: plait-train CONFIG.yaml [OPTION]...\n"
    "Train the model that CONFIG.yaml describes; see plait.yaml(5).\n"
    "\n"
    "  --set KEY=VALUE        override a setting, such as train.steps=100\n"
    "  --metrics FILE         write one JSON object a step to FILE\n"
    "  --resume auto|none|DIR resume from the newest checkpoint (auto),\n"
    "                         from DIR, or start anew\n"
    "  --resume-anyway KEY[,KEY]\n"
    "                         resume although these settings have changed\n"
    "  --init DIR             start with the weights of a Hugging Face model "
    "or\n"
    "                         a checkpoint, if there is none to resume from; "
    "new:\n"
    "                         with new ones\n"
    "  --device auto|cuda|cpu where to compute\n"
    "  --comm auto|mpi|socket how ranks on CPUs communicate\n"
    "  --profile-summary      print at the end how much time each part took\n"
    "  --sample N             print N tokens of text from the checkpoint\n"
    "  --sample-prompt TEXT   the beginning of the sampled text\n"
    "  --tokenizer byte|spm:FILE|bpe:FILE\n"
    "                         the tokenizer of the sampled text\n"
    "  --help, --version\n";

enum {
    OPT_SET,
    OPT_METRICS,
    OPT_RESUME,
    OPT_ANYWAY,
    OPT_INIT,
    OPT_DEVICE,
    OPT_COMM,
    OPT_PROFILE,
    OPT_SAMPLE,
    OPT_PROMPT,
    OPT_TOKENIZER
};

static const struct option options[] = {
    {"set", required_argument, NULL, OPT_SET},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"resume", required_argument, NULL, OPT_RESUME},
    {"resume-anyway", required_argument, NULL, OPT_ANYWAY},
    {"init", required_argument, NULL, OPT_INIT},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"comm", required_argument, NULL, OPT_COMM},
    {"profile-summary", no_argument, NULL, OPT_PROFILE},
    {"sample", required_argument, NULL, OPT_SAMPLE},
    {"sample-prompt", required_argument, NULL, OPT_PROMPT},
    {"tokenizer", required_argument, NULL, OPT_TOKENIZER},
    {"help", no_argument, NULL, PLAIT_OPTION_HELP},
    {"version", no_argument, NULL, PLAIT_OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

static int take_option(int option, char *value, void *arg,
                       struct plait_error *err)
{
    struct plait_train_args *args = arg;

    switch (option) {
    case OPT_SET:
        args->set[args->nset++] = value;
        return 0;
    case OPT_METRICS:
        args->metrics = value;
        return 0;
    case OPT_RESUME:
        args->resume = value;
        return 0;
    case OPT_ANYWAY:
        args->anyway = value;
        return plait_resume_check_anyway(value, err);
    case OPT_INIT:
        args->init = value;
        return 0;
    case OPT_DEVICE:
        return plait_option_device(value, &args->device, err);
    case OPT_COMM:
        return plait_option_comm(value, &args->comm, err);
    case OPT_PROFILE:
        args->profile_summary = true;
        return 0;
    case OPT_SAMPLE:
        return plait_option_count("--sample", value, 1, 100000000,
                                  &args->sample, err);
    case OPT_PROMPT:
        args->prompt = value;
        return 0;
    case OPT_TOKENIZER:
        args->tokenizer = value;
        return 0;
    default:
        return plait_errorf(err, "internal: option %d", option);
    }
}

static const struct plait_option_list list = {"plait-train", help, options,
                                              take_option};

/* 0 go on, 1 done (--help), -1 wrong usage, or PLAIT_RUN_BROKEN. */
static int parse_args(int argc, char **argv, struct plait_train_args *args,
                      struct plait_error *err)
{
    static const char *const operands[] = {"CONFIG.yaml", NULL};
    int rc;

    if (!args->set) {
        plait_errorf(err, "out of memory");
        return PLAIT_RUN_BROKEN;
    }
    rc = plait_option_read(&list, argc, argv, args, err);
    if (rc != 0)
        return rc;
    if (plait_option_operands(operands, "plait-train CONFIG.yaml [OPTION]...",
                              argc, argv, err) != 0)
        return -1;
    if (args->init && strcmp(args->init, PLAIT_INIT_NEW) != 0 &&
        strcmp(args->resume, "auto") && strcmp(args->resume, "none"))
        return plait_errorf(err,
                            "--init %s and --resume %s exclude each other; "
                            "give one of them",
                            args->init, args->resume);
    args->config = argv[optind];
    if (args->prompt && !args->sample)
        args->sample = SAMPLE_TOKENS;
    return 0;
}

static int run_command(struct plait_session *s,
                       const struct plait_program *program,
                       struct plait_error *err)
{
    if (program->args->sample)
        return plait_run_sample(s, program->args, err);
    return plait_run_train(s, program->args, err);
}

int main(int argc, char **argv)
{
    struct plait_train_args args = {
        .argv = argv, .resume = "auto", .device = "auto"};
    const struct plait_program program = {.name = "plait-train",
                                          .args = &args,
                                          .elastic = true,
                                          .run = run_command};
    struct plait_error err = {""};
    int rc;

    args.set = calloc(argc, sizeof(*args.set));
    rc = parse_args(argc, argv, &args, &err);
    if (rc == 0 && plait_signals_install() < 0) {
        plait_errorf(&err, "signals: %s", strerror(errno));
        rc = PLAIT_RUN_BROKEN;
    }
    rc = plait_program_main(&program, rc, &err);
    free(args.set);
    return rc;
}
