/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/generate/text_out.h"
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
    refused();
    streams("bytes", "letters", 1 << 20);
    streams("bytes", "text", 20000);
    streams("words", "lines", 20000);
    return done_testing();
}
