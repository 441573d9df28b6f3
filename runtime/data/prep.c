/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/prep_run.h"

/* plait-prep: text -> tokens. See plait-prep(1). */

static const char usage[] =
    "usage: plait-prep TEXT... --out DIR [--tokenizer byte|spm:FILE|bpe:FILE]\n"
    "                  [--field NAME] [--format plait|llmc|megatron]\n"
    "\n"
    "Write DIR/train.bin and DIR/val.bin, tokens for plait-train. A TEXT is a\n"
    "file, packed or not, or a folder of them. The last twentieth of each "
    "text\n"
    "goes to val.bin, of JSON lines each twentieth document. A run that was\n"
    "killed goes on when it is started again.\n"
    "\n"
    "  -o, --out DIR          where the tokens go; made if it is missing\n"
    "  -t, --tokenizer NAME   byte (default): 256 bytes and an end of text\n"
    "                         spm:FILE: a SentencePiece model\n"
    "                         bpe:FILE: a tokenizer.json of Hugging Face\n"
    "  -F, --field NAME       all texts are JSON lines with the text in this\n"
    "                         field; text for files that end in .jsonl\n"
    "  -f, --format NAME      plait (default), llmc or megatron (.bin, .idx)\n"
    "  -h, --help             this text\n"
    "  -V, --version          the version\n";

static void report_tokens(const char *dir,
                          const struct plait_prep_result *result)
{
    int64_t train = result->mark[PLAIT_TEXT_TRAIN].tokens;
    int64_t val = result->mark[PLAIT_TEXT_VAL].tokens;

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

static int check_usage(const struct plait_prep *p)
{
    if (!p->dir || !*p->dir)
        return wrong_usage("--out DIR says where the tokens go");
    if (strcmp(p->tokenizer, "byte") != 0 &&
        strncmp(p->tokenizer, "spm:", 4) != 0 &&
        strncmp(p->tokenizer, "bpe:", 4) != 0) {
        fprintf(stderr,
                "plait-prep: --tokenizer '%s' must be byte, spm:FILE or "
                "bpe:FILE\n",
                p->tokenizer);
        return 2;
    }
    if (p->field && !*p->field)
        return wrong_usage("--field needs the name of a field");
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

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},
        {"tokenizer", required_argument, NULL, 't'},
        {"field", required_argument, NULL, 'F'},
        {"format", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0}};
    struct plait_prep p = {.tokenizer = "byte", .format = PLAIT_DATA_PLAIT};
    int c;

    while ((c = getopt_long(argc, argv, "o:t:F:f:hV", options, NULL)) != -1) {
        switch (c) {
        case 'o':
            p.dir = optarg;
            break;
        case 't':
            p.tokenizer = optarg;
            break;
        case 'F':
            p.field = optarg;
            break;
        case 'f':
            if (find_format(optarg, &p.format) < 0)
                return 2;
            break;
        case 'h':
            fputs(usage, stdout);
            return flush_output();
        case 'V':
            puts("plait-prep " PACKAGE_VERSION);
            return flush_output();
        default:
            return 2; /* getopt has said why */
        }
    }
    p.texts = argv + optind;
    p.ntexts = argc - optind;
    c = check_usage(&p);
    return c ? c : run_prep(&p);
}
