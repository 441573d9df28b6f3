/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard.h"
#include "tokenizer.h"

/* plait-prep: text -> token shards. See plait-prep(1). */

static const char usage[] =
    "usage: plait-prep TEXT... --out DIR [--tokenizer byte|spm:FILE]\n"
    "\n"
    "Write DIR/train.bin and DIR/val.bin, token shards for plait-train. The\n"
    "last twentieth of each text goes to val.bin.\n"
    "\n"
    "  -o, --out DIR          where the shards go; made if it is missing\n"
    "  -t, --tokenizer NAME   byte (default): 256 bytes and an end of text\n"
    "                         spm:FILE: a SentencePiece model\n"
    "  -h, --help             this text\n"
    "  -V, --version          the version\n";

/* One part of a text, then the end-of-text token. */
static int add_part(const struct plait_tokenizer *t,
                    struct plait_shard_writer *writer, const char *text,
                    size_t size, struct plait_error *err)
{
    int32_t *tokens, end = plait_tokenizer_end(t);
    size_t n;
    int ret;

    if (size == 0)
        return 0;
    if (plait_tokenizer_encode(t, text, size, &tokens, &n, err) < 0)
        return -1;
    ret = plait_shard_writer_add(writer, tokens, n, err);
    free(tokens);
    if (ret == 0)
        ret = plait_shard_writer_add(writer, &end, 1, err);
    return ret;
}

/* Where val begins: after the last line break in the first 19 twentieths. */
static size_t split(const char *text, size_t size)
{
    size_t at = size - size / 20;
    const char *line = memrchr(text, '\n', at);

    return line && (size_t)(line - text) > at / 2 ? (size_t)(line - text) + 1
                                                  : at;
}

static int add_text(const struct plait_tokenizer *t, const char *path,
                    struct plait_shard_writer *train,
                    struct plait_shard_writer *val, struct plait_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), ret = -1;
    char *map = MAP_FAILED;
    struct stat st;
    size_t size = 0, at;

    if (fd < 0 || fstat(fd, &st) < 0) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        plait_errorf(err, "%s: %s", path,
                     S_ISDIR(st.st_mode)   ? "a directory, not a text"
                     : S_ISREG(st.st_mode) ? "an empty file"
                                           : "not a regular file");
        goto done;
    }
    size = (size_t)st.st_size;
    map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        plait_errorf(err, "%s: mmap: %s", path, strerror(errno));
        goto done;
    }
    at = split(map, size);
    ret = add_part(t, train, map, at, err);
    if (ret == 0)
        ret = add_part(t, val, map + at, size - at, err);
done:
    if (map != MAP_FAILED)
        munmap(map, size);
    if (fd >= 0)
        close(fd);
    return ret;
}

static int make_dir(const char *dir, struct plait_error *err)
{
    char *path = strdup(dir), *slash = path;
    int ret = 0;

    if (!path)
        return plait_errorf(err, "%s: out of memory", dir);
    while (ret == 0 && (slash = strchr(slash + 1, '/'))) {
        *slash = '\0';
        ret = mkdir(path, 0777) < 0 && errno != EEXIST ? -1 : 0;
        *slash = '/';
    }
    if (ret == 0 && mkdir(path, 0777) < 0 && errno != EEXIST)
        ret = -1;
    if (ret < 0)
        plait_errorf(err, "%s: cannot make the directory: %s", dir,
                     strerror(errno));
    free(path);
    return ret;
}

static struct plait_shard_writer *open_shard(const char *dir, const char *name,
                                             const struct plait_tokenizer *t,
                                             struct plait_error *err)
{
    struct plait_shard_writer *writer;
    char *path;

    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        plait_errorf(err, "%s: out of memory", dir);
        return NULL;
    }
    writer = plait_shard_writer_create(path, plait_tokenizer_name(t),
                                       plait_tokenizer_vocab(t), err);
    free(path);
    return writer;
}

static void report(const char *dir, int64_t train, int64_t val, int vocab)
{
    printf("# %lld tokens to train on, %lld to validate; in the YAML:\n"
           "model:\n  vocab: %d\ndata:\n  train: %s/train.bin\n"
           "  val: %s/val.bin\n",
           (long long)train, (long long)val, vocab, dir, dir);
}

/* Before anything is made: a misspelt name must leave nothing behind. */
static int check_texts(char **texts, int ntexts, struct plait_error *err)
{
    int i;

    for (i = 0; i < ntexts; i++)
        if (access(texts[i], R_OK) < 0)
            return plait_errorf(err, "%s: %s", texts[i], strerror(errno));
    return 0;
}

static int prepare(char **texts, int ntexts, const char *dir,
                   const char *tokenizer, struct plait_error *err)
{
    struct plait_shard_writer *train = NULL, *val = NULL;
    struct plait_tokenizer *t = plait_tokenizer_create(tokenizer, err);
    int i, ret = -1;

    if (!t || check_texts(texts, ntexts, err) < 0 || make_dir(dir, err) < 0 ||
        !(train = open_shard(dir, "train.bin", t, err)) ||
        !(val = open_shard(dir, "val.bin", t, err)))
        goto done;
    for (i = 0; i < ntexts; i++)
        if (add_text(t, texts[i], train, val, err) < 0)
            goto done;
    if (plait_shard_writer_finish(train, err) < 0 ||
        plait_shard_writer_finish(val, err) < 0)
        goto done;
    report(dir, plait_shard_writer_tokens(train),
           plait_shard_writer_tokens(val), plait_tokenizer_vocab(t));
    ret = 0;
done:
    plait_shard_writer_destroy(train);
    plait_shard_writer_destroy(val);
    plait_tokenizer_destroy(t);
    return ret;
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

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},
        {"tokenizer", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0}};
    const char *dir = NULL, *tokenizer = "byte";
    struct plait_error err;
    int c;

    while ((c = getopt_long(argc, argv, "o:t:hV", options, NULL)) != -1) {
        switch (c) {
        case 'o':
            dir = optarg;
            break;
        case 't':
            tokenizer = optarg;
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
    if (!dir || !*dir)
        return wrong_usage("--out DIR says where the shards go");
    if (strcmp(tokenizer, "byte") != 0 && strncmp(tokenizer, "spm:", 4) != 0) {
        fprintf(stderr, "plait-prep: --tokenizer '%s': want byte or spm:FILE\n",
                tokenizer);
        return 2;
    }
    if (optind == argc)
        return wrong_usage("name at least one text");
    if (prepare(argv + optind, argc - optind, dir, tokenizer, &err) < 0) {
        fprintf(stderr, "plait-prep: %s\n", err.text);
        return 1;
    }
    return flush_output();
}
