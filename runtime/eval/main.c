/* SPDX-License-Identifier: Apache-2.0 */
/* The program plait-eval: the loss of a checkpoint or a Hugging Face model on a
 * file of tokens, in windows that may overlap. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/eval/tokens.h"
#include "runtime/train/open_model.h"
#include "runtime/train/option.h"
#include "runtime/train/program.h"
#include "runtime/train/run.h"

static const char help[] =
    "usage: plait-eval DIR FILE [OPTION]...\n"
    "Print the perplexity of a text, or of tokens, under the model in DIR: a\n"
    "Hugging Face model or a checkpoint.\n"
    "\n"
    "  --window N             length of a window in tokens (model.seq_len)\n"
    "  --stride N             distance between windows in tokens (one window)\n"
    "  --tokenizer byte|spm:FILE|bpe:FILE\n"
    "                         the tokenizer to use instead of the one in DIR\n"
    "  --set KEY=VALUE        override a setting, such as parallel.tp=2\n"
    "  --device auto|cuda|cpu where to compute\n"
    "  --json                 print the result as one JSON object\n"
    "  --help, --version\n";

enum { OPT_WINDOW, OPT_STRIDE, OPT_TOKENIZER, OPT_SET, OPT_DEVICE, OPT_JSON };

static const struct option options[] = {
    {"window", required_argument, NULL, OPT_WINDOW},
    {"stride", required_argument, NULL, OPT_STRIDE},
    {"tokenizer", required_argument, NULL, OPT_TOKENIZER},
    {"set", required_argument, NULL, OPT_SET},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, PLAIT_OPTION_HELP},
    {"version", no_argument, NULL, PLAIT_OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

struct args {
    struct plait_train_args train;
    const char *file;
    int64_t window, stride; /* 0: as large as can be */
    bool json;
};

static int take_option(int option, char *value, void *arg,
                       struct plait_error *err)
{
    struct args *args = arg;

    switch (option) {
    case OPT_WINDOW:
        return plait_option_count("--window", value, 1, INT32_MAX,
                                  &args->window, err);
    case OPT_STRIDE:
        return plait_option_count("--stride", value, 1, INT32_MAX,
                                  &args->stride, err);
    case OPT_TOKENIZER:
        args->train.tokenizer = value;
        return 0;
    case OPT_SET:
        args->train.set[args->train.nset++] = value;
        return 0;
    case OPT_DEVICE:
        return plait_option_device(value, &args->train.device, err);
    default:
        args->json = true;
        return 0;
    }
}

static const struct plait_option_list list = {"plait-eval", help, options,
                                              take_option};

/* 0 go on, 1 done (--help), -1 wrong usage, or PLAIT_RUN_BROKEN. */
static int parse_args(int argc, char **argv, struct args *args,
                      struct plait_error *err)
{
    static const char *const operands[] = {"DIR", "FILE", NULL};
    int rc;

    if (!args->train.set) {
        plait_errorf(err, "out of memory");
        return PLAIT_RUN_BROKEN;
    }
    rc = plait_option_read(&list, argc, argv, args, err);
    if (rc != 0)
        return rc;
    if (plait_option_operands(operands, "plait-eval DIR FILE [OPTION]...", argc,
                              argv, err) != 0)
        return -1;
    args->train.model = argv[optind];
    args->file = argv[optind + 1];
    return 0;
}

/* -- windows --------------------------------------------------------------- */

struct windows {
    int window, stride;
    int length; /* tokens of a pass: the window, or all of a shorter text */
    int64_t count;
    const struct plait_eval_tokens *text;
    int32_t *input, *target; /* [window] */
};

static int choose_windows(struct windows *w, const struct args *args,
                          int seq_len, struct plait_error *err)
{
    int64_t window = args->window ? args->window : seq_len;
    int64_t stride = args->stride ? args->stride : window;

    if (window > seq_len)
        return plait_errorf(err,
                            "--window %" PRId64 ": the model takes at most %d "
                            "tokens (model.seq_len)",
                            window, seq_len);
    if (stride > window)
        return plait_errorf(err,
                            "--stride %" PRId64 " leaves out tokens between "
                            "windows of %" PRId64,
                            stride, window);
    w->window = window;
    w->stride = stride;
    w->input = calloc(window, sizeof(*w->input));
    w->target = calloc(window, sizeof(*w->target));
    return w->input && w->target ? 0 : plait_errorf(err, "out of memory");
}

/* The last window is the first one that reaches the last token. */
static void count_windows(struct windows *w)
{
    int64_t predicted = w->text->n - 1, more = predicted - w->window;

    w->length = more < 0 ? (int)predicted : w->window;
    w->count = more > 0 ? (more + w->stride - 1) / w->stride + 1 : 1;
}

/* Fill in window i; a window after the last one gets no targets. Targets that
 * the previous window has predicted are not counted again, nor is padding. */
static void fill_window(const struct windows *w, int64_t i)
{
    int64_t first = i * w->stride;
    int seen = i > 0 ? w->window - w->stride : 0;

    for (int k = 0; k < w->length; k++) {
        bool there = i < w->count && first + k < w->text->n;

        w->input[k] = there ? w->text->tokens[first + k] & INT32_MAX : 0;
        w->target[k] = there && k >= seen && first + k + 1 < w->text->n
                           ? w->text->tokens[first + k + 1]
                           : -1;
    }
}

/* The summed loss of all windows, which are divided among the data-parallel
 * ranks. Every rank makes the same number of passes, because a pass may
 * exchange weights or tokens between ranks. */
static int sum_losses(struct plait_session *s, struct plait_pipeline *pipe,
                      const struct windows *w, double *sum)
{
    const struct plait_mesh *mesh = s->mesh;
    const struct plait_ops *ops = mesh->ops;
    const struct plait_coord *at = &mesh->coord;
    int dp = mesh->layout.size[PLAIT_DP];
    bool counts = at->at[PLAIT_TP] == 0 &&
                  at->at[PLAIT_PP] == mesh->layout.size[PLAIT_PP] - 1;
    struct plait_batch batch = {.batch = 1,
                                .seq_len = w->length,
                                .tokens = w->input,
                                .targets = w->target,
                                .loss_scale = 1};
    double *loss = ops->alloc(mesh->dev, sizeof(*loss));
    int rc = loss ? 0 : -1;

    *sum = 0;
    for (int64_t i = 0; i < w->count && rc == 0; i += dp) {
        fill_window(w, i + at->at[PLAIT_DP]);
        rc = plait_pipeline_eval(pipe, &batch, 1, loss);
    }
    if (rc == 0)
        rc = ops->to_host(mesh->q, sum, loss, sizeof(*sum));
    if (!counts)
        *sum = 0;
    ops->free(mesh->dev, loss);
    if (rc < 0)
        return -1;
    return plait_comm_host_all_reduce(mesh->world, sum, 1, PLAIT_SUM);
}

/* -- output ---------------------------------------------------------------- */

/* JSON has no infinity, which the perplexity is from a loss of 710 on. */
static void print_json(const struct windows *w, double sum)
{
    double n = w->text->predicted, perplexity = exp(sum / n);

    printf("{\"tokens\":%" PRId64 ",\"loss\":%.9g,", w->text->predicted,
           sum / n);
    if (isfinite(perplexity))
        printf("\"perplexity\":%.9g,", perplexity);
    else
        printf("\"perplexity\":null,");
    if (w->text->bytes > 0)
        printf("\"bytes\":%" PRId64 ",\"bits_per_byte\":%.9g,", w->text->bytes,
               sum / log(2) / w->text->bytes);
    printf("\"window\":%d,\"stride\":%d}\n", w->window, w->stride);
}

static int print_result(const struct windows *w, const struct args *args,
                        double sum, struct plait_error *err)
{
    double n = w->text->predicted;

    if (w->text->predicted == 0)
        return plait_errorf(err, "%s: all tokens belong to prompts",
                            args->file);
    if (!isfinite(sum))
        return plait_errorf(err, "%s: the loss is not finite", args->file);
    if (args->json) {
        print_json(w, sum);
        return 0;
    }
    printf("%" PRId64 " tokens, loss %.6f, perplexity %.4f", w->text->predicted,
           sum / n, exp(sum / n));
    if (w->text->bytes > 0)
        printf(", %.4f bits per byte", sum / log(2) / w->text->bytes);
    printf(" (windows of %d, stride %d)\n", w->window, w->stride);
    return 0;
}

static int evaluate(struct plait_session *s, const struct args *args,
                    struct plait_inference *inf, struct windows *w,
                    struct plait_error *err)
{
    struct plait_pipeline *pipe = plait_inference_pipeline(inf, err);
    double sum;
    int rc;

    if (plait_error_consensus(s->world.comm, pipe ? 0 : -1, err) < 0)
        return -1;
    if (sum_losses(s, pipe, w, &sum) < 0) {
        plait_errorf(err, "%s: %s", args->file,
                     plait_comm_error(s->world.comm));
        return PLAIT_RUN_BROKEN;
    }
    rc = s->mesh->rank == 0 ? print_result(w, args, sum, err) : 0;
    return plait_error_consensus(s->world.comm, rc, err);
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
    struct plait_eval_tokens text = {0};
    struct windows w = {.text = &text};
    struct plait_inference *inf = NULL;
    int rc = plait_error_consensus(
        s->world.comm, choose_windows(&w, args, s->config->model.seq_len, err),
        err);

    if (rc == 0)
        rc = plait_eval_tokens_read(&text, s->world.comm, args->file, &source,
                                    err);
    if (rc == 0)
        rc = plait_open_model(s, args->train.model, PLAIT_WORK_EVALUATE, &inf,
                              err);
    if (rc == 0) {
        count_windows(&w);
        rc = evaluate(s, args, inf, &w, err);
    }
    plait_inference_destroy(inf);
    plait_eval_tokens_free(&text);
    free(w.input);
    free(w.target);
    return rc;
}

int main(int argc, char **argv)
{
    struct args args = {.train = {.device = "auto"}};
    const struct plait_program program = {
        .name = "plait-eval", .args = &args.train, .own = &args, .run = run};
    struct plait_error err = {""};
    int rc;

    args.train.words = argv + 1;
    args.train.nwords = argc - 1;
    args.train.set = calloc(argc, sizeof(*args.train.set));
    rc = parse_args(argc, argv, &args, &err);
    rc = plait_program_main(&program, rc, &err);
    free(args.train.set);
    return rc;
}
