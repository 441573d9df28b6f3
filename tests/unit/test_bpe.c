/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/data/tokenizer/unicode.h"
#include "runtime/text/text_out.h"
#include "tap.h"
#include "temp_path.h"

/* Tokenizers made by make.py of tests/fixtures/tokenizer, in that folder or one
 * like it, against the ids that PyPI's `tokenizers` computed. */
static const char *dir;
static const char *const kinds[] = {"gpt2",   "gpt2-space", "llama3", "qwen",
                                    "qwen35", "smollm",     "llama2", "mistral",
                                    "gemma",  "metaspace"};
enum { NKINDS = 10, DECODED = 6 /* from this one on KIND.txt is there */ };

static char *read_text(const char *name, size_t *size)
{
    char path[512], *text = calloc(1, (16 << 20) + 1);
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "r");
    *size = f && text ? fread(text, 1, 16 << 20, f) : 0;
    if (f)
        fclose(f);
    return text;
}

static struct plait_tokenizer *open_kind(const char *kind)
{
    struct plait_error err = {""};
    struct plait_tokenizer *t;
    char spec[512];

    snprintf(spec, sizeof(spec), "bpe:%s/%s.json", dir, kind);
    t = plait_tokenizer_create(spec, &err);
    if (!t)
        diag("%s", err.text);
    return t;
}

/* Encodes a text as a whole, or in parts of about `part` bytes. */
static struct plait_tokens encode(const struct plait_tokenizer *t,
                                  const char *text, size_t size, size_t part)
{
    struct plait_encoder *e = plait_encoder_create(t);
    struct plait_tokens out = {0};
    struct plait_error err;
    bool continued = false;
    size_t n;

    if (!e)
        abort();
    for (; size > 0; text += n, size -= n, continued = true) {
        n = part < size ? plait_tokenizer_cut(t, text, part) : 0;
        n = n > 0 ? n : size;
        if (plait_encoder_add(e, text, n, continued, &out, &err) < 0)
            abort();
    }
    plait_encoder_destroy(e);
    return out;
}

static bool are_equal(const struct plait_tokens *a,
                      const struct plait_tokens *b)
{
    return a->count == b->count && a->count > 0 &&
           !memcmp(a->id, b->id, a->count * sizeof(*a->id));
}

static void ids(const char *kind)
{
    struct plait_tokenizer *t = open_kind(kind);
    struct plait_tokens got, parts;
    char name[64], *text, *want, *at;
    size_t size, want_size, i;

    snprintf(name, sizeof(name), "%s.ids", kind);
    text = read_text("text", &size);
    want = at = read_text(name, &want_size);
    if (!ok(t && size > 1000 && want_size > 1000, "%s is read", kind))
        return;
    got = encode(t, text, size, size);
    for (i = 0; i < got.count && *at; i++)
        if (strtol(at, &at, 10) != got.id[i] || *at++ != '\n')
            break;
    ok(i == got.count && !*at, "%s: %zu of %zu ids are those of tokenizers",
       kind, i, got.count);
    parts = encode(t, text, size, 200);
    ok(are_equal(&got, &parts), "%s: in parts the same", kind);
    free(got.id);
    free(parts.id);
    free(text);
    free(want);
    plait_tokenizer_destroy(t);
}

/* What the ids decode to is what `tokenizers` decodes them to. */
static void texts(const char *kind)
{
    struct plait_tokenizer *t = open_kind(kind);
    struct plait_error err = {""};
    char name[64], *text, *want, *got = NULL;
    size_t size, want_size, got_size = 0;
    struct plait_tokens all;

    snprintf(name, sizeof(name), "%s.txt", kind);
    text = read_text("text", &size);
    want = read_text(name, &want_size);
    all = encode(t, text, size, size);
    ok(plait_tokenizer_decode(t, all.id, all.count, &got, &got_size, &err) ==
               0 &&
           got_size == want_size && want_size > 600 &&
           !memcmp(got, want, want_size),
       "%s: they decode to the text of tokenizers %s", kind, err.text);
    free(all.id);
    free(got);
    free(text);
    free(want);
    plait_tokenizer_destroy(t);
}

/* Random bytes with some likely sequences: a text gives the same ids whole or
 * in parts, and decodes to itself with U+FFFD where it is not UTF-8. */
static void soups(const char *kind)
{
    static const char *const words[] = {" ", "\n", "x", "'s", "12", "\xc3\xa9"};
    struct plait_tokenizer *t = open_kind(kind);
    struct plait_error err = {""};
    int back = 0, cut = 0;
    size_t size, i;

    for (int round = 0; round < 30; round++) {
        unsigned char soup[600];
        struct plait_buffer mended = {0};
        struct plait_tokens whole, parts;
        char *text = NULL;

        if (getrandom(soup, sizeof(soup), 0) != sizeof(soup))
            abort();
        for (i = 0; round % 2 && i + 2 < sizeof(soup); i += 3)
            memcpy(soup + i, words[soup[i] % 6], strlen(words[soup[i] % 6]));
        whole = encode(t, (char *)soup, sizeof(soup), sizeof(soup));
        parts = encode(t, (char *)soup, sizeof(soup), 60);
        cut += are_equal(&whole, &parts);
        plait_utf8_repair((char *)soup, sizeof(soup), &mended);
        if (plait_tokenizer_decode(t, whole.id, whole.count, &text, &size,
                                   &err) == 0)
            back += size == mended.size && !memcmp(text, mended.data, size);
        free(mended.data);
        free(whole.id);
        free(parts.id);
        free(text);
    }
    ok(cut == 30, "%s: %d of 30 soups of bytes: in parts the same", kind, cut);
    ok(back == 30, "%s: %d of 30 soups of bytes come back %s", kind, back,
       err.text);
    plait_tokenizer_destroy(t);
}

/* Printing a sample token by token gives the same as decoding all tokens at
 * once; special tokens print nothing. */
static void streams(const char *kind)
{
    struct plait_error err = {""};
    struct plait_tokenizer *t = open_kind(kind);
    struct plait_text_out as = {.tokenizer = t};
    static const char text[] = "na\303\257ve \360\237\231\202 \xe4\xb8\xad, "
                               "<|im_start|>we'll 42!\n  end";
    static const char want[] = "na\303\257ve \360\237\231\202 \xe4\xb8\xad, "
                               "we'll 42!\n  end\n";
    struct plait_tokens tokens = encode(t, text, strlen(text), strlen(text));
    char *got = NULL;
    size_t size;
    FILE *out = open_memstream(&got, &size);
    int failed = 0;

    for (size_t i = 0; i < tokens.count; i++)
        failed |= plait_text_out_put(&as, tokens.id[i], out, &err);
    failed |= plait_text_out_end(&as, out, &err);
    fclose(out);
    ok(!failed && !strcmp(got, want), "%s: one by one the same text %s", kind,
       err.text);
    ok(plait_tokenizer_end(t) == 0, "%s: <|endoftext|> ends a text", kind);
    plait_tokenizer_destroy(t);
    free(tokens.id);
    free(got);
}

/* -- what is refused --------------------------------------------------------
 */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        abort();
}

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"e\":3}"
#define BYTES "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}"
#define META \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"}"
#define ADDED "\"added_tokens\":[{\"id\":3,\"content\":\"</s>\"}]"

static void refused(void)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{", "not JSON: line 1"},
        {"[]", "no model.vocab"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "'Unigram', not BPE"},
        {"{\"model\":{" VOCAB "}}", "no model.merges"},
        {"{\"model\":{" VOCAB ",\"merges\":[],\"byte_fallback\":true}}",
         "neither its normalizer nor its pre_tokenizer"},
        {"{\"model\":{" VOCAB ",\"merges\":[],\"byte_fallback\":true}," META
         "}",
         "not all of <0x00> to <0xFF>"},
        {"{\"normalizer\":{\"type\":\"NFC\"},\"model\":{" VOCAB
         ",\"merges\":[]}," META "}",
         "normalizer has 'NFC' in a way"},
        {"{\"model\":{" VOCAB ",\"merges\":[],\"dropout\":0.1}}",
         "model.dropout is set"},
        {"{\"model\":{" VOCAB ",\"merges\":[\"ab\"]}}",
         "merge 0 of its model: two tokens"},
        {"{\"model\":{" VOCAB ",\"merges\":[\"a b\",[\"b\",\"a\"]]}}",
         "merge 1 of its model: 'ba' is not in the vocabulary"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}",
         "token 'a' is not a number from 0"},
        {"{\"model\":{\"vocab\":{\"a\":99999999},\"merges\":[]}}",
         "token 'a' is not a number from 0"},
        {"{\"model\":{" VOCAB ",\"merges\":[]}}", "has ''"},
        {"{\"model\":{" VOCAB ",\"merges\":[]},\"pre_tokenizer\":{\"type\":"
         "\"Whitespace\"}}",
         "has 'Whitespace'"},
        {"{\"model\":{" VOCAB ",\"merges\":[]},\"pre_tokenizer\":{\"type\":"
         "\"Split\",\"pattern\":{\"Regex\":\"x+\"},\"behavior\":\"Isolated\"}}",
         "Llama 3's or Qwen's: x+"},
        {"{\"normalizer\":{\"type\":\"NFKC\"},\"model\":{" VOCAB
         ",\"merges\":[]}," BYTES "}",
         "normalizer 'NFKC'"},
        {"{\"model\":{" VOCAB ",\"merges\":[]}," BYTES
         ",\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"lstrip\":true}]}",
         "'x' has lstrip set"},
    };
    char spec[TEMP_PATH + 4], *path = spec + 4;
    struct plait_tokenizer *t;
    struct plait_error err;

    memcpy(spec, "bpe:", 4);
    close(mkstemp(temp_path(path, "bpe")));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        write_file(path, cases[i].json);
        err.text[0] = '\0';
        t = plait_tokenizer_create(spec, &err);
        ok(!t && strstr(err.text, cases[i].says) && !strchr(err.text, '\n'),
           "%s", err.text);
        plait_tokenizer_destroy(t);
    }
    write_file(path, "{\"model\":{" VOCAB ",\"merges\":[\"a b\"]}," BYTES
                     "," ADDED "}");
    t = plait_tokenizer_create(spec, &err);
    ok(t && plait_tokenizer_vocab(t) == 4 && plait_tokenizer_end(t) == 3,
       "a small one is read");
    plait_tokenizer_destroy(t);
    write_file(path, "{\"model\":{" VOCAB ",\"merges\":[]}," BYTES "}");
    t = plait_tokenizer_create(spec, &err);
    ok(t && plait_tokenizer_end(t) == -1 && !plait_tokenizer_end_name(t) &&
           plait_tokenizer_set_end(t, "b", &err) == 0 &&
           plait_tokenizer_end(t) == 1,
       "one without an end of text is asked for it %s", err.text);
    plait_tokenizer_destroy(t);
    unlink(path);
    ok(!plait_tokenizer_create(spec, &err) && strstr(err.text, "No such file"),
       "%s", err.text);
}

int main(int argc, char **argv)
{
    const char *top = getenv("top_srcdir");
    char path[512];

    snprintf(path, sizeof(path), "%s/tests/fixtures/tokenizer",
             top ? top : ".");
    dir = argc > 1 ? argv[1] : path;
    for (int i = 0; i < NKINDS; i++)
        ids(kinds[i]);
    for (int i = DECODED; i < NKINDS; i++)
        texts(kinds[i]);
    soups("gpt2");
    soups("llama2");
    streams("gpt2");
    streams("qwen");
    refused();
    return done_testing();
}
