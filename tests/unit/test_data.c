/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/data.h"
#include "runtime/data/prep/token_writer.h"
#include "runtime/data/segment.h"
#include "runtime/data/shard.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "tap.h"
#include "temp_path.h"

static char dir[TEMP_PATH];

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(in_dir(name), "w");

    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        abort();
}

/* Writes n tokens first, first + 1, ... */
static void write_shard(const char *name, int vocab, int32_t first, int n)
{
    const struct plait_token_form form = {PLAIT_DATA_PLAIT, "byte", vocab,
                                          false};
    struct plait_token_writer *w;
    struct plait_error err;
    int32_t token;
    char stem[256];
    int i;

    if (n == 0) { /* by hand, as the writer makes no empty file */
        struct plait_shard_header header = {2, 0, vocab, "byte", false};
        unsigned char bytes[PLAIT_SHARD_HEADER];

        header.width = vocab > 65536 ? 4 : 2;
        plait_shard_encode(&header, bytes);
        write_file(name, bytes, sizeof(bytes));
        return;
    }
    snprintf(stem, sizeof(stem), "%.*s", (int)strlen(in_dir(name)) - 4,
             in_dir(name));
    w = plait_token_writer_create(stem, &form, NULL, &err);
    for (i = 0; i < n; i++) {
        token = first + i;
        if (!w || plait_token_writer_add(w, &token, 1, NULL, 0, &err) < 0)
            abort();
    }
    if (plait_token_writer_finish(w, &err) < 0)
        abort();
    plait_token_writer_destroy(w);
}

static struct plait_dataset *
create(const char *name, enum plait_data_format format, struct plait_error *err)
{
    err->text[0] = '\0';
    return plait_dataset_create(in_dir(name), format, err);
}

/* Whether tokens are 0, 1, 2, ... whatever file they come from. */
static int counts_up(const struct plait_dataset *ds, int n, int seq_len)
{
    int32_t input[64], target[64];
    struct plait_error err;
    int64_t i;
    int k;

    if (!ds || plait_dataset_tokens(ds) != n ||
        plait_dataset_samples(ds, seq_len) != (n - 1) / seq_len)
        return 0;
    for (i = 0; i < plait_dataset_samples(ds, seq_len); i++) {
        if (plait_dataset_read(ds,
                               &(struct plait_sequence_form){seq_len, n, -1}, i,
                               input, target, &err) < 0) {
            diag("%s", err.text);
            return 0;
        }
        for (k = 0; k < seq_len; k++)
            if (input[k] != i * seq_len + k || target[k] != input[k] + 1)
                return 0;
    }
    return 1;
}

static void shards(void)
{
    struct plait_error err;
    struct plait_dataset *ds;
    int32_t input[8], target[8];

    write_shard("a-0.bin", 70000, 0, 10);
    write_shard("a-1.bin", 70000, 10, 1);
    write_shard("a-2.bin", 70000, 11, 0);
    write_shard("a-3.bin", 70000, 11, 30);
    ds = create("a-*.bin", PLAIT_DATA_AUTO, &err);
    ok(counts_up(ds, 41, 4) && counts_up(ds, 41, 8) && counts_up(ds, 41, 1),
       "a pattern of shards is one run of tokens %s", err.text);
    ok(ds && plait_dataset_vocab(ds) == 70000 &&
           !strcmp(plait_dataset_tokenizer(ds), "byte"),
       "vocabulary and tokenizer");
    ok(plait_dataset_read(ds, &(struct plait_sequence_form){8, 41, -1}, 5,
                          input, target, &err) == -1 &&
           errno == ERANGE,
       "%s", err.text);
    ok(plait_dataset_read(ds, &(struct plait_sequence_form){8, 40, -1}, 4,
                          input, target, &err) == -1 &&
           errno == ERANGE && strstr(err.text, "token id 40 at position 29"),
       "%s", err.text);
    plait_dataset_destroy(ds);

    write_shard("b.bin", 300, 0, 41);
    ds = create("b.bin", PLAIT_DATA_PLAIT, &err);
    ok(counts_up(ds, 41, 4), "16-bit shards");
    plait_dataset_destroy(ds);
    ds = create("[ab]*.bin", PLAIT_DATA_PLAIT, &err);
    ok(!ds && strstr(err.text, "vocabulary 300"), "%s", err.text);
    plait_dataset_destroy(NULL);
}

/* Of 30 tokens, every third one is a prompt's. */
static void masked(int vocab, int32_t first)
{
    const struct plait_token_form form = {PLAIT_DATA_PLAIT, "byte", vocab,
                                          true};
    struct plait_error err = {""};
    struct plait_token_writer *w =
        plait_token_writer_create(in_dir("masked"), &form, NULL, &err);
    int32_t tokens[30], input[7], target[7];
    struct plait_dataset *ds;
    int bad = 0, i, k;

    for (i = 0; i < 30; i++)
        tokens[i] = (first + i) | (i % 3 ? 0 : PLAIT_TOKEN_MASKED);
    if (!w || plait_token_writer_add(w, tokens, 30, NULL, 0, &err) < 0 ||
        plait_token_writer_finish(w, &err) < 0)
        abort();
    plait_token_writer_destroy(w);
    ds = create("masked.bin", PLAIT_DATA_AUTO, &err);
    ok(ds && plait_dataset_masked(ds) && plait_dataset_samples(ds, 7) == 4,
       "a masked shard of %d tokens %s", vocab, err.text);
    for (i = 0; ds && i < 4; i++) {
        bad +=
            plait_dataset_read(ds, &(struct plait_sequence_form){7, vocab, -1},
                               i, input, target, &err) < 0;
        for (k = 0; k < 7; k++)
            bad += input[k] != first + 7 * i + k ||
                   target[k] != ((7 * i + k + 1) % 3 ? input[k] + 1 : -1);
    }
    ok(ds && !bad, "tokens of prompts are read, and no targets");
    ok(plait_dataset_read(ds, &(struct plait_sequence_form){7, first + 3, -1},
                          0, input, target, &err) == -1 &&
           errno == ERANGE && strstr(err.text, "at position 3 is outside"),
       "%s", err.text);
    plait_dataset_destroy(ds);
}

static void llmc(void)
{
    struct plait_error err;
    struct plait_dataset *ds;
    int32_t header[256] = {20240520, 1, 33}, wide[256 + 33] = {20240801, 7, 33};
    char bytes[1024 + 66];
    uint16_t token;
    int i;

    memcpy(bytes, header, sizeof(header));
    for (i = 0; i < 33; i++) {
        token = (uint16_t)i;
        memcpy(bytes + 1024 + 2 * i, &token, 2);
        wide[256 + i] = i;
    }
    write_file("l1.bin", bytes, sizeof(bytes));
    write_file("l7.bin", wide, sizeof(wide));
    ds = create("l1.bin", PLAIT_DATA_AUTO, &err);
    ok(counts_up(ds, 33, 4), "llm.c version 1 %s", err.text);
    plait_dataset_destroy(ds);
    ds = create("l7.bin", PLAIT_DATA_LLMC, &err);
    ok(counts_up(ds, 33, 8), "llm.c version 7 %s", err.text);
    plait_dataset_destroy(ds);
    write_file("l1-short.bin", bytes, sizeof(bytes) - 1);
    ds = create("l1-short.bin", PLAIT_DATA_AUTO, &err);
    ok(!ds && strstr(err.text, "l1-short.bin: truncated: the header says 33 "
                               "tokens, 1090 bytes in all; the file has 1089"),
       "%s", err.text);
    wide[1] = 1;
    write_file("l7-v1.bin", wide, sizeof(wide));
    ds = create("l7-v1.bin", PLAIT_DATA_AUTO, &err);
    ok(!ds && strstr(err.text, "version 1; with magic 20240801 it would be 7"),
       "%s", err.text);
    wide[0] = 0;
    write_file("zero.bin", wide, sizeof(wide));
    ds = create("zero.bin", PLAIT_DATA_LLMC, &err);
    ok(!ds && strstr(err.text, "not a token file of llm.c's"), "%s", err.text);
}

/* Writes an index of `n` sequences of 4 tokens; returns its size. */
static size_t megatron_index(unsigned char *to, int type, int width, int n)
{
    unsigned char *at = to;
    uint64_t version = 1, count = (uint64_t)n, documents = 2;
    int64_t offset, document[2] = {0, n};
    int32_t length = 4;
    int i;

#define PUT(p, size) (memcpy(at, p, size), at += (size))
    PUT("MMIDIDX\0\0", 9);
    PUT(&version, 8);
    *at++ = (unsigned char)type;
    PUT(&count, 8);
    PUT(&documents, 8);
    for (i = 0; i < n; i++)
        PUT(&length, 4);
    for (i = 0; i < n; i++) {
        offset = 4L * width * i;
        PUT(&offset, 8);
    }
    PUT(document, 16);
    return (size_t)(at - to);
}

static void megatron(void)
{
    static const struct {
        int code, width;
    } types[] = {{1, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    unsigned char index[1024], data[512];
    struct plait_error err;
    struct plait_dataset *ds;
    int64_t token;
    size_t size, i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        for (token = 0; token < 40; token++)
            memcpy(data + token * types[i].width, &token,
                   (size_t)types[i].width);
        size = megatron_index(index, types[i].code, types[i].width, 10);
        write_file("m.idx", index, size);
        write_file("m.bin", data, 40 * (size_t)types[i].width);
        ds = create("m", PLAIT_DATA_AUTO, &err);
        ok(counts_up(ds, 40, 3), "Megatron, type %d %s", types[i].code,
           err.text);
        plait_dataset_destroy(ds);
    }
    ds = create("m.*", PLAIT_DATA_AUTO, &err);
    ok(counts_up(ds, 40, 3), "a pattern that matches both files %s", err.text);
    plait_dataset_destroy(ds);
    index[9] = 2;
    write_file("m.idx", index, size);
    ds = create("m.bin", PLAIT_DATA_AUTO, &err);
    ok(!ds && strstr(err.text, "m.idx: Megatron index of version 2, not 1"),
       "%s", err.text);
    index[9] = 1;
    index[17] = 6;
    write_file("m.idx", index, size);
    ds = create("m.bin", PLAIT_DATA_MEGATRON, &err);
    ok(!ds && strstr(err.text, "type code 6 is not a token type"), "%s",
       err.text);
    index[17] = 8;
    index[34 + 40 + 8] = 1;
    write_file("m.idx", index, size);
    ds = create("m.bin", PLAIT_DATA_AUTO, &err);
    ok(!ds && strstr(err.text, "sequence 1 starts at byte 1, not 8"), "%s",
       err.text);
    index[34 + 40 + 8] = 8;
    write_file("m.idx", index, size - 1);
    ds = create("m.bin", PLAIT_DATA_AUTO, &err);
    ok(!ds && strstr(err.text, "10 sequences and 2 documents do not"), "%s",
       err.text);
    write_file("m.idx", index, size);
    write_file("m.bin", data, 79);
    ds = create("m.bin", PLAIT_DATA_AUTO, &err);
    ok(!ds && strstr(err.text, "m.bin: truncated: the header says 40"), "%s",
       err.text);
}

static void refused(void)
{
    static const struct {
        const char *name, *says;
    } bad[] = {
        {"none.bin", "none.bin: No such file or directory"},
        {"none*.bin", "none*.bin: no file has a name like this"},
        {"empty.bin", "neither a plait shard"},
        {"text.bin", "neither a plait shard"},
        {".", "/.: "},
        {"pipe.bin", "neither a plait shard"},
        {"short.bin", "truncated: 20 bytes are less than its header of 64"},
        {"cut.bin", "truncated: the header says 41 tokens, 146 bytes"},
        {"long.bin", "too long: the header says 41 tokens"},
        {"version.bin", "plait shard of version 3"},
        {"corrupt.bin", "corrupt header: its checksum is"},
        {"width.bin", "invalid header: 3 bytes a token"},
        {"huge.bin", "invalid header"},
    };
    struct plait_shard_header header = {3, 41, 300, "byte", false};
    unsigned char bytes[64 + 82 + 1] = {0};
    struct plait_error err;
    struct plait_dataset *ds;
    FILE *file = fopen(in_dir("b.bin"), "r");
    size_t i;

    if (!file || fread(bytes, 1, sizeof(bytes), file) != 64 + 82)
        abort();
    fclose(file);
    if (mkfifo(in_dir("pipe.bin"), 0600) < 0)
        abort();
    write_file("empty.bin", "", 0);
    write_file("text.bin", "once upon a time there was", 26);
    write_file("short.bin", bytes, 20);
    write_file("cut.bin", bytes, 64 + 81);
    write_file("long.bin", bytes, 64 + 83);
    bytes[8] = 3;
    write_file("version.bin", bytes, 64 + 82);
    bytes[8] = 1;
    bytes[17] ^= 1;
    write_file("corrupt.bin", bytes, 64 + 82);
    plait_shard_encode(&header, bytes);
    write_file("width.bin", bytes, 64 + 82);
    header.width = 2;
    header.tokens = INT64_MAX;
    plait_shard_encode(&header, bytes);
    write_file("huge.bin", bytes, 64 + 82);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ds = create(bad[i].name, PLAIT_DATA_AUTO, &err);
        ok(!ds && strstr(err.text, bad[i].says), "%s", err.text);
        plait_dataset_destroy(ds);
    }
    ds = create("text.bin", PLAIT_DATA_PLAIT, &err);
    ok(!ds && strstr(err.text, "truncated"), "%s", err.text);
}

static void permutation(void)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 17, 64, 1000, 4097};
    int64_t moved = 0, same_epoch = 0, i;
    char *seen;
    size_t k;

    for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        int64_t n = sizes[k], epoch, twice = 0;

        seen = calloc(1, (size_t)n);
        for (epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, (size_t)n);
            for (i = 0; i < n; i++) {
                int64_t x = plait_sample_index(7, n, epoch * n + i);

                twice += x < 0 || x >= n || seen[x]++;
            }
        }
        free(seen);
        ok(!twice, "%lld samples: each once an epoch", (long long)n);
    }
    for (i = 0; i < 1000; i++) {
        moved += plait_sample_index(7, 1000, i) != i;
        same_epoch += plait_sample_index(7, 1000, i) ==
                      plait_sample_index(7, 1000, 1000 + i);
        moved +=
            plait_sample_index(8, 1000, i) != plait_sample_index(7, 1000, i);
    }
    ok(moved > 1980 && same_epoch < 10, "shuffled anew by seed and epoch");
    ok(plait_sample_index(1, INT64_C(1) << 60, 12345) >= 0 &&
           plait_sample_index(1, INT64_C(1) << 60, 12345) < INT64_C(1) << 60,
       "2^60 samples");
}

static struct plait_loader *create_loader(struct plait_dataset *ds, int seq_len,
                                          int vocab,
                                          const struct plait_share *share,
                                          int most, struct plait_error *err)
{
    const struct plait_sequence_form form = {seq_len, vocab, -1};
    const struct plait_mixture one = {&ds, NULL, 1};

    return plait_loader_create_blend(&one, 3, &form, share, most, err);
}

static void loader(void)
{
    struct plait_error err;
    struct plait_dataset *ds = create("a-*.bin", PLAIT_DATA_AUTO, &err);
    struct plait_share all = {.stride = 6, .count = 6};
    struct plait_share part = {
        .start = 12, .stride = 6, .first = 3, .count = 3};
    struct plait_loader *whole, *half;
    const int32_t *in, *out, *in2, *out2;
    int step, i, good = 1;

    whole = create_loader(ds, 4, 41, &all, 1, &err);
    half = create_loader(ds, 4, 41, &part, 1, &err);
    for (step = 0; step < 40; step++) {
        good &= plait_loader_next(whole, 1, &err) == 0;
        plait_loader_get(whole, 0, &in, &out);
        good &= in[0] == 4 * plait_sample_index(3, 10, 6 * step) &&
                out[23] == in[23] + 1;
        if (step < 2)
            continue;
        good &= plait_loader_next(half, 1, &err) == 0;
        plait_loader_get(half, 0, &in2, &out2);
        good &= !memcmp(in + 12, in2, 48) && !memcmp(out + 12, out2, 48);
    }
    ok(good, "a share of the batch, from a later step, is the same samples");
    plait_loader_destroy(half);

    /* 1, 2, ... 7 micro-batches per step, repeatedly */
    part = (struct plait_share){.start = 5, .stride = 2, .count = 2};
    half = create_loader(ds, 4, 41, &part, 7, &err);
    for (good = 1, step = 0; step < 60; step++) {
        int n = 1 + step % 7, start = step / 7 * 28 + n * (n - 1) / 2;

        good &= plait_loader_next(half, n, &err) == 0;
        for (i = 0; i < n; i++) {
            plait_loader_get(half, i, &in, &out);
            good &= in[4] == 4 * plait_sample_index(3, 10, 6 + 2 * (start + i));
        }
    }
    ok(good, "steps of any size read one run of samples");
    plait_loader_destroy(whole);
    plait_loader_destroy(half);

    whole = create_loader(ds, 4, 20, &all, 1, &err);
    ok(plait_loader_next(whole, 1, &err) == -1 && errno == ERANGE &&
           strstr(err.text, "outside the vocabulary of 20"),
       "%s", err.text);
    ok(plait_loader_next(whole, 1, &err) == -1, "and again");
    plait_loader_destroy(whole);
    ok(!create_loader(ds, 41, 41, &all, 1, &err) &&
           strstr(err.text, "41 tokens are too few for a sequence of 41"),
       "%s", err.text);
    plait_dataset_destroy(ds);
}

static void tokenizer(void)
{
    struct plait_error err;
    struct plait_tokenizer *t = plait_tokenizer_create("byte", &err);
    int32_t *tokens;
    size_t n, size;
    char *text;

    ok(t && plait_tokenizer_vocab(t) == 257 && plait_tokenizer_end(t) == 256,
       "257 tokens");
    ok(plait_tokenizer_encode(t, "a\xff\n", 3, &tokens, &n, &err) == 0 &&
           n == 3 && tokens[0] == 'a' && tokens[1] == 255,
       "bytes");
    tokens[0] = 256;
    ok(plait_tokenizer_decode(t, tokens, 3, &text, &size, &err) == 0 &&
           size == 2 && !strcmp(text, "\xff\n"),
       "and back");
    free(tokens);
    free(text);
    plait_tokenizer_destroy(t);
    ok(!plait_tokenizer_create("bpe", &err) &&
           strstr(err.text, "byte, a tokenizer.json or its folder (also "
                            "bpe:FILE), or a tokenizer.model (also spm:FILE), "
                            "not 'bpe'"),
       "%s", err.text);
    ok(!plait_tokenizer_create("spm:/nonexistent", &err), "%s", err.text);
}

int main(void)
{
    char command[160];

    if (!mkdtemp(temp_path(dir, "data")))
        return 1;
    shards();
    masked(300, 256);
    masked(1 << 15, (1 << 15) - 30);
    masked((1 << 15) + 1, (1 << 15) - 29);
    llmc();
    megatron();
    refused();
    permutation();
    loader();
    tokenizer();
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    ok(system(command) == 0, "cleaned up");
    return done_testing();
}
