/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/train/resume.h"
#include "runtime/train/run.h"
#include "runtime/train/session.h"
#include "runtime/train/signals.h"

#define SAMPLE_TOKENS 200
#define ABORT_S 5 /* what giving up may take */

static const char help[] =
    "usage: plait-train CONFIG.yaml [OPTION]...\n"
    "Train the model that CONFIG.yaml describes; see plait.yaml(5).\n"
    "\n"
    "  --set KEY=VALUE        override a setting, such as train.steps=100\n"
    "  --metrics FILE         write one JSON object a step to FILE\n"
    "  --resume auto|none|DIR go on from the checkpoint saved last (auto),\n"
    "                         from DIR, or start anew\n"
    "  --resume-anyway KEY[,KEY]\n"
    "                         go on although these settings were others\n"
    "  --init DIR             start with the weights of a Hugging Face model "
    "or\n"
    "                         a checkpoint, where there is none to go on from\n"
    "  --device auto|cuda|cpu where to compute\n"
    "  --profile-summary      say at the end where the time went\n"
    "  --sample N             print N tokens of text from the checkpoint\n"
    "  --sample-prompt TEXT   what the sampled text begins with\n"
    "  --tokenizer NAME       of the sampled text: byte, spm:FILE or\n"
    "                         bpe:FILE\n"
    "  --help, --version\n";

enum {
    OPT_SET,
    OPT_METRICS,
    OPT_RESUME,
    OPT_ANYWAY,
    OPT_INIT,
    OPT_DEVICE,
    OPT_PROFILE,
    OPT_SAMPLE,
    OPT_PROMPT,
    OPT_TOKENIZER,
    OPT_HELP,
    OPT_VERSION
};

static const struct option options[] = {
    {"set", required_argument, NULL, OPT_SET},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"resume", required_argument, NULL, OPT_RESUME},
    {"resume-anyway", required_argument, NULL, OPT_ANYWAY},
    {"init", required_argument, NULL, OPT_INIT},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"profile-summary", no_argument, NULL, OPT_PROFILE},
    {"sample", required_argument, NULL, OPT_SAMPLE},
    {"sample-prompt", required_argument, NULL, OPT_PROMPT},
    {"tokenizer", required_argument, NULL, OPT_TOKENIZER},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static int one_of(const char *text, const char *a, const char *b, const char *c)
{
    return !strcmp(text, a) || !strcmp(text, b) || !strcmp(text, c);
}

static int take_count(const char *text, int64_t *count, struct plait_error *err)
{
    char *end;
    long long n;

    errno = 0;
    n = strtoll(text, &end, 10);
    if (errno || *end || end == text || n < 1 || n > 100000000)
        return plait_errorf(err,
                            "--sample needs a number of tokens from 1 "
                            "to 100000000, not '%s'",
                            text);
    *count = n;
    return 0;
}

static int take_option(int option, char *value, struct plait_train_args *args,
                       struct plait_error *err)
{
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
        args->device = value;
        if (one_of(value, "auto", "cuda", "cpu"))
            return 0;
        return plait_errorf(err, "--device is auto, cuda or cpu, not '%s'",
                            value);
    case OPT_PROFILE:
        args->profile_summary = true;
        return 0;
    case OPT_SAMPLE:
        return take_count(value, &args->sample, err);
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

/* 0 go on, 1 done (--help), -1 wrong usage. */
static int parse_args(int argc, char **argv, struct plait_train_args *args,
                      struct plait_error *err)
{
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (option == OPT_HELP || option == OPT_VERSION) {
            fputs(option == OPT_HELP ? help
                                     : "plait-train " PACKAGE_VERSION "\n",
                  stdout);
            return 1;
        }
        if (option == ':')
            return plait_errorf(err, "%s needs a value; see --help",
                                argv[optind - 1]);
        if (option == '?')
            return plait_errorf(err, "unknown option '%s'; see --help",
                                argv[optind - 1]);
        if (take_option(option, optarg, args, err) < 0)
            return -1;
    }
    if (optind != argc - 1)
        return plait_errorf(err, "usage: plait-train CONFIG.yaml [OPTION]... "
                                 "(see --help)");
    if (args->init && !one_of(args->resume, "auto", "none", "none"))
        return plait_errorf(err,
                            "--init %s and --resume %s are two "
                            "beginnings; give one of them",
                            args->init, args->resume);
    args->config = argv[optind];
    if (args->prompt && !args->sample)
        args->sample = SAMPLE_TOKENS;
    return 0;
}

static void report_error(const struct plait_error *err)
{
    if (err->text[0])
        fprintf(stderr, "plait-train: %s\n", err->text);
}

/* A process of this node is gone, killed perhaps, and its launcher lets the
 * others go on. They cannot. */
static void on_peer_gone(void *arg, const char *what)
{
    struct plait_session *session = arg;

    fprintf(stderr, "plait-train: %s: stopped\n", what);
    plait_comm_kill_node(session->world.comm);
    alarm(ABORT_S); /* the main thread may be inside of what is aborted */
    plait_comm_abort(session->world.comm);
    _exit(1);
}

static int run_command(const struct plait_train_args *args)
{
    struct plait_error err = {""};
    struct plait_session session;
    int rc = plait_session_open(&session, args, &err);

    if (rc == 0)
        rc = plait_error_consensus(
            session.world.comm,
            plait_comm_watch(session.world.comm, on_peer_gone, &session, &err),
            &err);
    if (rc == 0)
        rc = args->sample ? plait_run_sample(&session, args, &err)
                          : plait_run_train(&session, args, &err);
    report_error(&err);
    if (rc == PLAIT_RUN_BROKEN) {
        /* The others may wait for this rank for ever: end them too. */
        plait_comm_abort(session.world.comm);
        exit(1);
    }
    /* Launchers kill the others as soon as one has failed: none ends before
     * the message is out. */
    if (rc < 0 && session.world.comm)
        plait_comm_barrier(session.world.comm);
    plait_session_close(&session);
    return rc == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct plait_train_args args = {.resume = "auto", .device = "auto"};
    struct plait_error err = {""};
    int rc;

    args.set = calloc(argc, sizeof(*args.set));
    rc = args.set ? parse_args(argc, argv, &args, &err) : -1;
    if (rc < 0) {
        /* All ranks see the same command line: one says what is wrong. */
        if (plait_rank_hint() == 0)
            report_error(&err);
        rc = 2;
    } else if (rc > 0) {
        rc = 0;
    } else if (plait_signals_install() < 0) {
        fprintf(stderr, "plait-train: signals: %s\n", strerror(errno));
        rc = 1;
    } else {
        rc = run_command(&args);
    }
    free(args.set);
    /* A full disk must not pass for success. */
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "plait-train: cannot write to standard output: %s\n",
                strerror(errno));
        rc = 1;
    }
    return rc;
}
