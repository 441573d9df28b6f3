/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/spm.h"
#include "runtime/data/tokenizer/spm_bpe.h"
#include "runtime/data/tokenizer/spm_proto.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/text/text_out.h"
#include "tap.h"

/* The folder with the models and texts that test_spm.sh has made. */
static const char *dir;

static struct plait_tokenizer *open_model(const char *name,
                                          struct plait_error *err)
{
    char spec[512];

    snprintf(spec, sizeof(spec), "spm:%s/%s.model", dir, name);
    return plait_tokenizer_create(spec, err);
}

static char *read_text(const char *name, size_t *size)
{
    char path[512], *text = calloc(1, (8 << 20) + 1);
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "r");
    *size = f && text ? fread(text, 1, 8 << 20, f) : 0;
    if (f)
        fclose(f);
    return text;
}

static void bytes(const char *name)
{
    struct plait_error err = {""};
    struct plait_tokenizer *t = open_model("bytes", &err);
    size_t size, n, back_size;
    char *text = read_text(name, &size), *back = NULL;
    int32_t *tokens = NULL;
    int failed;

    ok(t && plait_tokenizer_vocab(t) == 600 && plait_tokenizer_end(t) == 2 &&
           !strcmp(plait_tokenizer_name(t), "spm"),
       "600 tokens, one of them ends a text %s", err.text);
    failed = plait_tokenizer_encode(t, text, size, &tokens, &n, &err);
    ok(!failed && n > size / 8 && n < size * 3 / 4,
       "%s: %zu bytes are %zu tokens %s", name, size, n, err.text);
    failed = plait_tokenizer_decode(t, tokens, n, &back, &back_size, &err);
    ok(!failed && back_size >= size && back_size <= size + size / (1 << 20),
       "and back %zu bytes %s", back_size, err.text);
    ok(!memcmp(text, back, size < 1 << 20 ? size : 1 << 19),
       "which are the text");
    free(text);
    free(back);
    free(tokens);
    plait_tokenizer_destroy(t);
}

/* Compares with the ids that spm_encode wrote for each line. */
static void words(void)
{
    struct plait_error err = {""};
    struct plait_tokenizer *t = open_model("words", &err);
    size_t size, n, i, back_size;
    char *lines = read_text("lines", &size), *ids = read_text("ids", &size);
    char *line, *at = lines, *id = ids, *back;
    int count = 0, same = 0, round = 0;
    int32_t *tokens;

    while ((line = strsep(&at, "\n")) && at && ++count) {
        if (plait_tokenizer_encode(t, line, strlen(line), &tokens, &n, &err))
            break;
        for (i = 0; i < n; i++)
            if (strtol(id, &id, 10) != tokens[i])
                break;
        same += i == n && *id++ == '\n';
        if (plait_tokenizer_decode(t, tokens, n, &back, &back_size, &err))
            break;
        round += !strcmp(back, line);
        free(back);
        free(tokens);
    }
    ok(count > 400 && same == count, "%d of %d lines are as spm_encode's", same,
       count);
    ok(round > count * 9 / 10, "%d of %d lines come back", round, count);
    free(lines);
    free(ids);
    plait_tokenizer_destroy(t);
}

static bool are_ids(const char *ids, const int32_t *tokens, size_t n)
{
    char *at = (char *)ids;

    for (size_t i = 0; i < n; i++)
        if (strtol(at, &at, 10) != tokens[i])
            return false;
    return *at == '\n';
}

/* A text of several lines against the ids that spm_encode wrote for it, whole
 * and cut as plait-prep does. */
static void lined(void)
{
    struct plait_error err = {""};
    struct plait_tokenizer *t = open_model("blanks", &err);
    struct plait_encoder *e = t ? plait_encoder_create(t) : NULL;
    struct plait_tokens whole = {0}, parts = {0};
    size_t size, ids_size, n, cut, cuts = 0, at = 0;
    char *text = read_text("lined", &size),
         *ids = read_text("lined.ids", &ids_size);
    int failed = !e || plait_encoder_add(e, text, size, false, &whole, &err);

    ok(!failed && are_ids(ids, whole.id, whole.count),
       "blanks: %zu bytes are %zu tokens, as spm_encode's %s", size,
       whole.count, err.text);
    for (; e && at < size; at += n) {
        n = size - at < 3000 ? size - at : 3000;
        cut = n < size - at ? plait_tokenizer_cut(t, text + at, n) : n;
        n = cut ? cut : size - at;
        cuts += at > 0;
        if (plait_encoder_add(e, text + at, n, at > 0, &parts, &err))
            break;
    }
    ok(cuts > 2 && are_ids(ids, parts.id, parts.count),
       "blanks: and in %zu parts %s", cuts + 1, err.text);
    free(text);
    free(ids);
    free(whole.id);
    free(parts.id);
    plait_encoder_destroy(e);
    plait_tokenizer_destroy(t);
}

/* -- plait's own encoding --------------------------------------------------
 */

/* plait's own encoding of a model, NULL where the library is needed. */
static struct plait_spm_bpe *open_own(const char *name)
{
    struct plait_spm_proto proto;
    struct plait_spm_bpe *own = NULL;
    char file[64], *bytes;
    size_t size;

    snprintf(file, sizeof(file), "%s.model", name);
    bytes = read_text(file, &size);
    if (plait_spm_proto_read(bytes, size, &proto) < 0 ||
        plait_spm_bpe_create(&proto, &own) < 0)
        abort();
    plait_spm_proto_clear(&proto);
    free(bytes);
    return own;
}

/* Writes the model `bytes` as `ties`, in which eight pieces at a time have the
 * same score. Each piece is a field 1, in which the score is a field 2 behind
 * the text. */
static void make_ties(void)
{
    size_t size, at = 0;
    char *bytes = read_text("bytes.model", &size), path[512];
    float score;
    FILE *f;

    while (at < size && bytes[at] == 0x0a && !(bytes[at + 1] & 0x80)) {
        char *piece = bytes + at + 2, *behind = piece + 2 + piece[1];

        if (*behind != 0x15)
            abort();
        memcpy(&score, behind + 1, sizeof(score));
        score = floorf(score / 8);
        memcpy(behind + 1, &score, sizeof(score));
        at += 2 + (size_t)bytes[at + 1];
    }
    snprintf(path, sizeof(path), "%s/ties.model", dir);
    f = fopen(path, "w");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0)
        abort();
    free(bytes);
}

/* Appends a character as UTF-8, of one to four bytes. */
static char *put_character(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        if (c >= 0x10000) {
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        } else {
            *to++ = (char)(0xe0 | c >> 12);
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* Up to 1000 bytes of UTF-8: parts of `text` without what is not ASCII,
 * characters, and what models treat in ways of their own. */
static size_t make_document(char *to, const char *text, size_t size)
{
    static const char *const words[] = {
        " ",   "   ",  "\n",    "\n\n",   "\n ",       "\xe2\x96\x81", "\t",
        "<s>", "</s>", "<unk>", "<0x41>", "aaaaaaaaa", "        ",     "\r\n"};
    char *start = to;

    for (int i = rand() % 30; i >= 0 && to - start < 900; i--) {
        size_t n = (size_t)rand() % 60;
        const char *from = text + (size_t)rand() % (size - n);
        unsigned c = (unsigned)rand() % (i % 2 ? 0x110000u : 0x3000u);

        switch (rand() % 3) {
        case 0:
            to = stpcpy(to, words[rand() % 14]);
            break;
        case 1:
            to = put_character(to, c >> 11 == 0x1b ? 0xfffd : c);
            break;
        default:
            for (; n > 0; from++, n--)
                if (!(*from & 0x80))
                    *to++ = *from;
        }
    }
    return (size_t)(to - start);
}

static bool are_same(const struct plait_tokens *a, const struct plait_tokens *b)
{
    return a->count == b->count &&
           (a->count == 0 || !memcmp(a->id, b->id, a->count * sizeof(*a->id)));
}

/* The library's tokens of whole documents, and those of a long text in parts,
 * are plait's own. */
static void own(const char *name)
{
    struct plait_tokens want = {0}, got = {0};
    struct plait_spm_bpe *own = open_own(name);
    struct plait_spm_space space = {0};
    char document[1200], path[512], *text;
    struct plait_error err = {""};
    struct plait_spm *library;
    size_t size, n, documents = 0, same = 0;

    snprintf(path, sizeof(path), "%s/%s.model", dir, name);
    library = plait_spm_create(path, &err);
    text = read_text("text", &size);
    if (!ok(own && library, "%s: plait encodes it %s", name, err.text))
        return;
    for (; documents < 5000; documents++) {
        n = make_document(document, text, size);
        want.count = got.count = 0;
        if (plait_spm_encode(library, document, n, false, &want, &err) ||
            plait_spm_bpe_encode(
                own, &space, &(struct plait_passage){document, n, false}, &got))
            break;
        same += are_same(&want, &got);
    }
    ok(same == 5000, "%s: %zu of %zu documents as by the library %s", name,
       same, documents, err.text);
    want.count = got.count = 0;
    ok(!plait_spm_encode(library, text, size, false, &want, &err) &&
           !plait_spm_bpe_encode(
               own, &space, &(struct plait_passage){text, size, false}, &got) &&
           are_same(&want, &got) && got.count > size / 8,
       "%s: a long text has the tokens of its parts", name);
    free(want.id);
    free(got.id);
    plait_spm_space_clear(&space);
    free(text);
    plait_spm_bpe_destroy(own);
    plait_spm_destroy(library);
}

/* Models that change the text, or are no BPE, are left to the library. */
static void not_own(const char *name)
{
    struct plait_spm_bpe *own = open_own(name);

    ok(!own, "%s: the library encodes it", name);
    plait_spm_bpe_destroy(own);
}

/* What is no model, or a part of one, is refused and read no further. */
static void proto_ends(void)
{
    struct plait_spm_proto proto;
    size_t size, refused = 0;
    char *bytes = read_text("bytes.model", &size), *copy;

    for (size_t n = 0; n < 2000; n++) {
        copy = malloc(n + 1);
        if (!copy)
            abort();
        memcpy(copy, bytes, n);
        refused += plait_spm_proto_read(copy, n, &proto) < 0;
        plait_spm_proto_clear(&proto);
        free(copy);
    }
    ok(refused > 1500, "%zu of 2000 beginnings of a model are refused",
       refused);
    free(bytes);
}

static void refused(void)
{
    struct plait_tokenizer *t;
    struct plait_error err;
    int32_t beyond = 600;
    size_t size;
    char *text;

    ok(!open_model("missing", &err) && strstr(err.text, "missing.model"), "%s",
       err.text);
    ok(!open_model("cut", &err) && strstr(err.text, "not a SentencePiece"),
       "%s", err.text);
    ok(!open_model("endless", &err) && strstr(err.text, "no end of sentence"),
       "%s", err.text);
    t = open_model("bytes", &err);
    ok(plait_tokenizer_decode(t, &beyond, 1, &text, &size, &err) == -1,
       "a token beyond the vocabulary: %s", err.text);
    plait_tokenizer_destroy(t);
}

/* Printing a sample token by token gives the same as decoding all tokens at
 * once. */
static void streams(const char *model, const char *name, size_t most)
{
    struct plait_error err = {""};
    struct plait_tokenizer *t = open_model(model, &err);
    struct plait_text_out as = {.tokenizer = t};
    char *text, *want = NULL, *got = NULL;
    size_t size, n, want_size, got_size;
    FILE *out = open_memstream(&got, &got_size);
    int32_t *tokens = NULL;
    int failed = 0;

    text = read_text(name, &size);
    size = size < most ? size : most;
    if (!t || plait_tokenizer_encode(t, text, size, &tokens, &n, &err) < 0 ||
        plait_tokenizer_decode(t, tokens, n, &want, &want_size, &err) < 0)
        abort();
    for (size_t i = 0; i < n; i++)
        failed |= plait_text_out_put(&as, tokens[i], out, &err);
    failed |= plait_text_out_end(&as, out, &err);
    fclose(out);
    ok(!failed && got_size == want_size + 1 && got[want_size] == '\n' &&
           !memcmp(got, want, want_size),
       "%s, %s: %zu tokens are the same text one by one %s", model, name, n,
       err.text);
    plait_tokenizer_destroy(t);
    free(text);
    free(want);
    free(got);
    free(tokens);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return skip_all("run by test_spm.sh");
    dir = argv[1];
    bytes("text");
    bytes("long");
    words();
    lined();
    make_ties();
    own("bytes");
    own("joins");
    own("plain");
    own("ties");
    not_own("words");
    not_own("blanks");
    not_own("nfkc");
    not_own("defined");
    not_own("few");
    proto_ends();
    refused();
    streams("bytes", "letters", 1 << 20);
    streams("bytes", "text", 20000);
    streams("words", "lines", 20000);
    return done_testing();
}
