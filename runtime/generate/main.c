/* SPDX-License-Identifier: Apache-2.0 */
/* The program plait-generate: texts that go on from prompts. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/text/generate.h"
#include "runtime/train/open_model.h"
#include "runtime/train/option.h"
#include "runtime/train/program.h"
#include "runtime/train/run.h"

static const char help[] =
    "usage: plait-generate DIR --prompt TEXT [--prompt TEXT]... [OPTION]...\n"
    "Continue the prompts with the model in DIR: a Hugging\n"
    "Face model or a checkpoint.\n"
    "\n"
    "  --prompt TEXT          the beginning of a text; may be repeated\n"
    "  --tokens N             tokens to generate for each prompt (200)\n"
    "  --temperature X        divides the logits; below 1 favours likely\n"
    "                         tokens, 0 takes the likeliest only (0.8)\n"
    "  --top-k K              choose among the K likeliest tokens only\n"
    "  --top-p P              choose among the likeliest tokens whose\n"
    "                         probabilities add up to P\n"
    "  --seed N               seed of the random choices (1)\n"
    "  --tokenizer byte|spm:FILE|bpe:FILE\n"
    "                         the tokenizer to use instead of the one in DIR\n"
    "  --set KEY=VALUE        override a setting, such as parallel.tp=2\n"
    "  --device auto|cuda|cpu where to compute\n"
    "  --stats                print the time and memory used on stderr\n"
    "  --help, --version\n";

enum {
    OPT_PROMPT,
    OPT_TOKENS,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_SEED,
    OPT_TOKENIZER,
    OPT_SET,
    OPT_DEVICE,
    OPT_STATS
};

static const struct option options[] = {
    {"prompt", required_argument, NULL, OPT_PROMPT},
    {"tokens", required_argument, NULL, OPT_TOKENS},
    {"temperature", required_argument, NULL, OPT_TEMPERATURE},
    {"top-k", required_argument, NULL, OPT_TOP_K},
    {"top-p", required_argument, NULL, OPT_TOP_P},
    {"seed", required_argument, NULL, OPT_SEED},
    {"tokenizer", required_argument, NULL, OPT_TOKENIZER},
    {"set", required_argument, NULL, OPT_SET},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"stats", no_argument, NULL, OPT_STATS},
    {"help", no_argument, NULL, PLAIT_OPTION_HELP},
    {"version", no_argument, NULL, PLAIT_OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

struct args {
    struct plait_train_args train;
    struct plait_generate_how how;
    const char **prompts;
    int nprompts;
    bool stats;
};

static int take_prompt(const char *text, struct args *args,
                       struct plait_error *err)
{
    if (!text[0])
        return plait_errorf(err, "--prompt is empty: give at least one "
                                 "character");
    args->prompts[args->nprompts++] = text;
    return 0;
}

/* How tokens are drawn. */
static int take_choice(int option, const char *value,
                       struct plait_generate_how *how, struct plait_error *err)
{
    int64_t n;

    switch (option) {
    case OPT_TOKENS:
        return plait_option_count("--tokens", value, 1, 100000000, &how->tokens,
                                  err);
    case OPT_TEMPERATURE:
        return plait_option_number("--temperature", value, 0, 1000,
                                   &how->choice.temperature, err);
    case OPT_TOP_K:
        if (plait_option_count("--top-k", value, 1, INT32_MAX, &n, err) < 0)
            return -1;
        how->choice.top_k = n;
        return 0;
    case OPT_TOP_P:
        if (plait_option_number("--top-p", value, 0, 1, &how->choice.top_p,
                                err) < 0)
            return -1;
        return how->choice.top_p > 0
                   ? 0
                   : plait_errorf(err, "--top-p must be above 0, not '%s'",
                                  value);
    default:
        if (plait_option_count("--seed", value, 0, INT64_MAX, &n, err) < 0)
            return -1;
        how->choice.seed = n;
        return 0;
    }
}

static int take_option(int option, char *value, void *arg,
                       struct plait_error *err)
{
    struct args *args = arg;

    switch (option) {
    case OPT_PROMPT:
        return take_prompt(value, args, err);
    case OPT_TOKENIZER:
        args->train.tokenizer = value;
        return 0;
    case OPT_SET:
        args->train.set[args->train.nset++] = value;
        return 0;
    case OPT_DEVICE:
        return plait_option_device(value, &args->train.device, err);
    case OPT_STATS:
        args->stats = true;
        return 0;
    default:
        return take_choice(option, value, &args->how, err);
    }
}

static const struct plait_option_list list = {"plait-generate", help, options,
                                              take_option};

/* 0 go on, 1 done (--help), -1 wrong usage, or PLAIT_RUN_BROKEN. */
static int parse_args(int argc, char **argv, struct args *args,
                      struct plait_error *err)
{
    static const char *const operands[] = {"DIR", NULL};
    int rc;

    if (!args->train.set || !args->prompts) {
        plait_errorf(err, "out of memory");
        return PLAIT_RUN_BROKEN;
    }
    rc = plait_option_read(&list, argc, argv, args, err);
    if (rc != 0)
        return rc;
    if (plait_option_operands(operands,
                              "plait-generate DIR --prompt TEXT [OPTION]...",
                              argc, argv, err) != 0)
        return -1;
    if (args->nprompts == 0)
        return plait_errorf(err, "--prompt TEXT is missing: the beginning of "
                                 "the text; see --help");
    args->train.model = argv[optind];
    return 0;
}

static double per_second(int64_t n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static void print_stats(const struct plait_generate_stats *s)
{
    fprintf(stderr,
            "plait-generate: prompts: %" PRId64 " tokens in %.3f s (%.0f/s); "
            "text: %" PRId64 " tokens in %.3f s (%.1f/s); keys and values: "
            "%.1f MiB a rank, %d text%s of up to %d tokens\n",
            s->prompt_tokens, s->prompt_s,
            per_second(s->prompt_tokens, s->prompt_s), s->tokens, s->tokens_s,
            per_second(s->tokens, s->tokens_s), s->cache_bytes / 1048576.0,
            s->texts, s->texts == 1 ? "" : "s", s->length);
}

static int run(struct plait_session *s, const struct plait_program *program,
               struct plait_error *err)
{
    const struct args *args = program->own;
    const struct plait_tokenizer_source source = {
        .spec = args->train.tokenizer,
        .dir = args->train.model,
        .vocab = s->config->model.vocab,
    };
    const struct plait_prompt_texts texts = {args->prompts, args->nprompts,
                                             s->config->model.seq_len};
    struct plait_generate_stats stats;
    struct plait_prompts prompts = {0};
    struct plait_inference *inf = NULL;
    int rc = plait_prompts_open(&prompts, s->world.comm, &source, &texts, err);

    if (rc == 0)
        rc = plait_open_model(s, args->train.model, PLAIT_WORK_EXTEND, &inf,
                              err);
    if (rc == 0 && plait_generate(plait_inference_model(inf), &prompts,
                                  &args->how, stdout, &stats, err) < 0)
        return PLAIT_RUN_BROKEN;
    if (rc == 0 && args->stats && s->mesh->rank == 0)
        print_stats(&stats);
    plait_prompts_close(&prompts);
    plait_inference_destroy(inf);
    return rc;
}

int main(int argc, char **argv)
{
    struct args args = {
        .train = {.device = "auto"},
        .how = {.choice = {.temperature = 0.8, .top_p = 1, .seed = 1},
                .tokens = 200,
                .stop_at_end = true},
    };
    const struct plait_program program = {.name = "plait-generate",
                                          .args = &args.train,
                                          .own = &args,
                                          .run = run};
    struct plait_error err = {""};
    int rc;

    args.train.words = argv + 1;
    args.train.nwords = argc - 1;
    args.train.set = calloc(argc, sizeof(*args.train.set));
    args.prompts = calloc(argc, sizeof(*args.prompts));
    rc = parse_args(argc, argv, &args, &err);
    rc = plait_program_main(&program, rc, &err);
    free(args.train.set);
    free(args.prompts);
    return rc;
}
