/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/data/prep/image_prep.h"
#include "runtime/data/prep/prep_run.h"
#include "topology/base/option_words.h"

/* plait-prep: text -> tokens, images -> IDX. See plait-prep(1). */

static const char usage[] =
    "usage: plait-prep TEXT... --out DIR [--tokenizer byte|spm:FILE|bpe:FILE]\n"
    "                  [--field NAME] [--prompt-field NAME] [--skip-bad]\n"
    "                  [--end-token TEXT] [--format plait|llmc|megatron]\n"
    "       plait-prep --images FILE --out DIR [--labels first|last|none|NPY]\n"
    "                  [--shape C,H,W] [--channels first|last] [--white V]\n"
    "                  [--val SHARE] [--seed N|none]\n"
    "\n"
    "Write the tokens of texts to DIR/train.bin and DIR/val.bin for "
    "plait-train.\n"
    "A TEXT is a file (also gzip, zstd or xz) or a folder of such files. The\n"
    "last twentieth of each text goes to val.bin; of JSON lines every "
    "twentieth\n"
    "document. A run that was killed continues when it is started again.\n"
    "\n"
    "  -o, --out DIR          where to write the tokens; made if it is "
    "missing\n"
    "  -t, --tokenizer NAME   byte (default): 256 bytes and an end of text\n"
    "                         spm:FILE: a SentencePiece model\n"
    "                         bpe:FILE: a tokenizer.json of Hugging Face\n"
    "                         (a FILE named .model or .json says it alone)\n"
    "  -F, --field NAME       read all texts as JSON lines with the text in "
    "this\n"
    "                         field (files named .jsonl are read so anyway, "
    "with\n"
    "                         the field text)\n"
    "  -p, --prompt-field NAME\n"
    "                         the field of a prompt that comes before the "
    "text\n"
    "                         (--field, here completion) and is not learned\n"
    "  -b, --skip-bad         leave out JSON lines that cannot be read, and "
    "say\n"
    "                         how many and which\n"
    "  -e, --end-token TEXT   the token that ends a document (the model's "
    "own)\n"
    "  -f, --format NAME      plait (default), llmc or megatron (.bin, .idx)\n"
    "\n"
    "With --images, FILE is a CSV file with one row of pixels for each image, "
    "or\n"
    "an NPY file. DIR gets the images and labels to train on\n"
    "(train-images-idx3-ubyte ...) and to validate (t10k-images-idx3-ubyte "
    "...;\n"
    "idx4 if they have several channels).\n"
    "\n"
    "  -l, --labels WHERE     the labels: first (default) or last column of a "
    "CSV\n"
    "                         file, the NPY file of an NPY file's labels, or "
    "none\n"
    "  -s, --shape C,H,W      the shape of a row of CSV (a square, one "
    "channel)\n"
    "  -c, --channels WHERE   first or last: which side of a four-dimensional\n"
    "                         array counts channels (the one that is 1, 3 or "
    "4)\n"
    "  -w, --white V          the pixel value that becomes 255 (1 if none is\n"
    "                         above it, else 255)\n"
    "  -v, --val SHARE        the share of the images to validate on (0.1)\n"
    "  -S, --seed N           seed by which those are chosen (1); none: the "
    "last\n"
    "\n"
    "  -h, --help             this text\n"
    "  -V, --version          the version\n";

static void report_tokens(const char *dir,
                          const struct plait_prep_result *result)
{
    int64_t train = result->mark[PLAIT_TEXT_TRAIN].tokens;
    int64_t val = result->mark[PLAIT_TEXT_VAL].tokens;

    if (result->left > 0)
        printf("# %lld line%s gave no text and %s left out\n",
               (long long)result->left, result->left == 1 ? "" : "s",
               result->left == 1 ? "was" : "were");
    printf("# each document ends with token %d%s%s\n", (int)result->end,
           *result->end_name ? ", " : "", result->end_name);
    printf("# %lld tokens to train on, %lld to validate; in the YAML:\n"
           "model:\n  vocab: %d\ndata:\n  train: %s/train.bin\n",
           (long long)train, (long long)val, result->vocab, dir);
    if (val > 0)
        printf("  val: %s/val.bin\n", dir);
}

static int find_format(const char *name, enum plait_data_format *format)
{
    static const struct {
        const char *name;
        enum plait_data_format format;
    } formats[] = {{"plait", PLAIT_DATA_PLAIT},
                   {"llmc", PLAIT_DATA_LLMC},
                   {"megatron", PLAIT_DATA_MEGATRON}};

    for (int i = 0; i < 3; i++)
        if (!strcmp(name, formats[i].name)) {
            *format = formats[i].format;
            return 0;
        }
    fprintf(stderr,
            "plait-prep: --format '%s' must be plait, llmc or megatron\n",
            name);
    return -1;
}

static int wrong_usage(const char *what)
{
    fprintf(stderr, "plait-prep: %s; see --help\n", what);
    return 2;
}

/* A full disk must not pass for success. */
static int flush_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "plait-prep: cannot write to standard output: %s\n",
            strerror(errno));
    return 1;
}

/* Where several words stand without an option, the last one is likely to be the
 * folder, as in cp. */
static int refuse_out(const struct plait_prep *p)
{
    const char *last = p->ntexts > 1 ? p->texts[p->ntexts - 1] : NULL;

    if (!last || access(last, F_OK) == 0)
        return wrong_usage("--out DIR is missing: where to write the tokens");
    fprintf(stderr,
            "plait-prep: --out DIR is missing: where to write the tokens; did "
            "you mean --out %s?\n",
            last);
    return 2;
}

static int check_usage(const struct plait_prep *p)
{
    if (!p->dir || !*p->dir)
        return refuse_out(p);
    if (!plait_tokenizer_is_spec(p->tokenizer)) {
        fprintf(stderr,
                "plait-prep: --tokenizer '%s' must be byte, bpe:FILE (a "
                "tokenizer.json or its folder) or spm:FILE (a "
                "tokenizer.model)\n",
                p->tokenizer);
        return 2;
    }
    if ((p->field && !*p->field) || (p->prompt_field && !*p->prompt_field))
        return wrong_usage("--field and --prompt-field need the name of a "
                           "field");
    if (p->prompt_field && p->format != PLAIT_DATA_PLAIT)
        return wrong_usage("--prompt-field needs --format plait: the formats "
                           "llmc and megatron cannot keep prompts out of the "
                           "loss");
    if (p->end_token && (!*p->end_token || !strcmp(p->tokenizer, "byte")))
        return wrong_usage("--end-token needs the text of a token of "
                           "--tokenizer bpe:FILE or spm:FILE");
    return p->ntexts > 0 ? 0 : wrong_usage("name at least one text");
}

static int run_prep(const struct plait_prep *p)
{
    struct plait_prep_result result;
    struct plait_error err = {""};

    if (plait_prep_run(p, &result, &err) < 0) {
        fprintf(stderr, "plait-prep: %s\n", err.text);
        return 1;
    }
    report_tokens(p->dir, &result);
    return flush_output();
}

/* -- images ---------------------------------------------------------------- */

static int report_images(const struct plait_image_prep *p,
                         const struct plait_image_prep_result *r)
{
    char *train = plait_image_prep_path(p->dir, false, r->shape[0]);
    char *val = plait_image_prep_path(p->dir, true, r->shape[0]);

    if (train && val) {
        printf("# %lld images to train on, %lld to validate; in the YAML:\n"
               "model:\n",
               (long long)r->train, (long long)r->val);
        if (p->labels != PLAIT_LABEL_NONE)
            printf("  classes: %d\n", r->classes);
        printf("  input: [%d, %d, %d]\ndata:\n  train: %s\n", r->shape[0],
               r->shape[1], r->shape[2], train);
        if (r->val > 0)
            printf("  val: %s\n", val);
    }
    free(train);
    free(val);
    return flush_output();
}

static int run_images(const struct plait_image_prep *p)
{
    struct plait_image_prep_result result;
    struct plait_error err = {""};

    if (!p->dir || !*p->dir)
        return wrong_usage("--out DIR is missing: where to write the images");
    if (plait_image_prep_run(p, &result, &err) < 0) {
        fprintf(stderr, "plait-prep: %s\n", err.text);
        return 1;
    }
    return report_images(p, &result);
}

static int wrong_value(const char *option, const char *value, const char *what)
{
    fprintf(stderr, "plait-prep: --%s '%s' must be %s\n", option, value, what);
    return -1;
}

static int parse_labels(struct plait_image_prep *p, const char *text)
{
    size_t n = strlen(text);

    p->labels = PLAIT_LABEL_FILE;
    p->label_file = text;
    if (!strcmp(text, "first"))
        p->labels = PLAIT_LABEL_FIRST;
    else if (!strcmp(text, "last"))
        p->labels = PLAIT_LABEL_LAST;
    else if (!strcmp(text, "none"))
        p->labels = PLAIT_LABEL_NONE;
    else if (n < 5 || strcmp(text + n - 4, ".npy") != 0)
        return wrong_value("labels", text,
                           "first, last, none or an NPY file (.npy)");
    return 0;
}

static int parse_shape(struct plait_image_prep *p, const char *text)
{
    char more;

    if (sscanf(text, "%d,%d,%d%c", &p->shape[0], &p->shape[1], &p->shape[2],
               &more) == 3 &&
        p->shape[0] > 0 && p->shape[1] > 0 && p->shape[2] > 0 &&
        p->shape[0] <= 65536 && p->shape[1] <= 65536 && p->shape[2] <= 65536)
        return 0;
    return wrong_value("shape", text, "C,H,W, as in 3,32,32");
}

static int parse_channels(struct plait_image_prep *p, const char *text)
{
    if (!strcmp(text, "first"))
        p->channels = PLAIT_CHANNELS_FIRST;
    else if (!strcmp(text, "last"))
        p->channels = PLAIT_CHANNELS_LAST;
    else
        return wrong_value("channels", text, "first or last");
    return 0;
}

static int parse_number(const char *option, const char *text, double least,
                        double below, const char *what, double *value)
{
    char *end;

    *value = strtod(text, &end);
    if (end > text && !*end && *value >= least && *value < below)
        return 0;
    return wrong_value(option, text, what);
}

static int parse_seed(struct plait_image_prep *p, const char *text)
{
    char *end;

    p->shuffled = strcmp(text, "none") != 0;
    errno = 0;
    p->seed = p->shuffled ? strtoull(text, &end, 10) : 0;
    if (!p->shuffled || (*text >= '0' && *text <= '9' && !*end && !errno))
        return 0;
    return wrong_value("seed", text, "a number of at least 0, or none");
}

/* Parse the value of an option of --images. */
static int parse_image_option(struct plait_image_prep *p, int c,
                              const char *text)
{
    switch (c) {
    case 'l':
        return parse_labels(p, text);
    case 's':
        return parse_shape(p, text);
    case 'c':
        return parse_channels(p, text);
    case 'w':
        return parse_number("white", text, 1e-30, 1e30, "a number above 0",
                            &p->white);
    case 'v':
        return parse_number("val", text, 0, 1, "from 0 on and below 1",
                            &p->share);
    default:
        return parse_seed(p, text);
    }
}

/* -- the command line ------------------------------------------------------ */

struct command {
    struct plait_prep text;
    struct plait_image_prep image;
    bool texts_alone, images_alone; /* an option for only those was given */
};

static const char short_options[] = ":o:t:F:p:be:f:i:l:s:c:w:v:S:hV";
static const struct option options[] = {
    {"out", required_argument, NULL, 'o'},
    {"tokenizer", required_argument, NULL, 't'},
    {"field", required_argument, NULL, 'F'},
    {"prompt-field", required_argument, NULL, 'p'},
    {"skip-bad", no_argument, NULL, 'b'},
    {"end-token", required_argument, NULL, 'e'},
    {"format", required_argument, NULL, 'f'},
    {"images", required_argument, NULL, 'i'},
    {"labels", required_argument, NULL, 'l'},
    {"shape", required_argument, NULL, 's'},
    {"channels", required_argument, NULL, 'c'},
    {"white", required_argument, NULL, 'w'},
    {"val", required_argument, NULL, 'v'},
    {"seed", required_argument, NULL, 'S'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0}};

static int parse_text_option(struct plait_prep *p, int c, const char *text)
{
    if (c == 't')
        p->tokenizer = text;
    else if (c == 'F')
        p->field = text;
    else if (c == 'p')
        p->prompt_field = text;
    else if (c == 'b')
        p->skip_bad = true;
    else if (c == 'e')
        p->end_token = text;
    else
        return find_format(text, &p->format);
    return 0;
}

/* An option that has a value. */
static int parse_option(struct command *command, int c, const char *text)
{
    if (strchr("tFpbef", c)) {
        command->texts_alone = true;
        return parse_text_option(&command->text, c, text);
    }
    if (strchr("lscwvS", c)) {
        command->images_alone = true;
        return parse_image_option(&command->image, c, text);
    }
    if (c == 'o')
        command->text.dir = command->image.dir = text;
    else
        command->image.path = text;
    return 0;
}

/* By Ctrl-C, for instance: what is written is kept. */
static void stop(int number)
{
    static const char text[] =
        "plait-prep: stopped; the same command goes on from what it has "
        "written, and train.bin appears when it is complete\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)n; /* nobody to tell */
    signal(number, SIG_DFL);
    raise(number);
}

static void say_stops(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction old;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            signal(numbers[i], stop);
}

static int run_command(struct command *command)
{
    int rc;

    if (command->image.path) {
        if (command->texts_alone)
            return wrong_usage(
                "--tokenizer, --field, --prompt-field, --skip-bad, "
                "--end-token and --format are for texts, not for --images");
        if (command->text.ntexts > 0)
            return wrong_usage("--images takes one file, and no text");
        return run_images(&command->image);
    }
    if (command->images_alone)
        return wrong_usage("--labels, --shape, --channels, --white, --val and "
                           "--seed are for --images");
    rc = check_usage(&command->text);
    if (rc)
        return rc;
    say_stops();
    return run_prep(&command->text);
}

static int refuse_option(int c, const char *word)
{
    char advice[PLAIT_OPTION_ADVICE];

    plait_option_advise(options, word, advice);
    if (c == ':')
        fprintf(stderr, "plait-prep: option '%s' requires an argument\n", word);
    else
        fprintf(stderr, "plait-prep: unrecognized option '%s'%s\n", word,
                advice);
    return 2;
}

int main(int argc, char **argv)
{
    struct command command = {
        .text = {.tokenizer = "byte", .format = PLAIT_DATA_PLAIT},
        .image = {.labels = PLAIT_LABEL_FIRST,
                  .share = 0.1,
                  .shuffled = true,
                  .seed = 1}};
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, short_options, options, NULL)) != -1) {
        switch (c) {
        case 'h':
            fputs(usage, stdout);
            return flush_output();
        case 'V':
            puts("plait-prep " PACKAGE_VERSION);
            return flush_output();
        case ':':
        case '?':
            return refuse_option(c, plait_option_word(argc, argv));
        default:
            if (parse_option(&command, c, optarg) < 0)
                return 2;
        }
    }
    command.text.texts = argv + optind;
    command.text.ntexts = argc - optind;
    return run_command(&command);
}
