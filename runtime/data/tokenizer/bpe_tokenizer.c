/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/tokenizer/bpe_tokenizer.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/data/tokenizer/tokenizer_private.h"
#include "runtime/data/tokenizer/unicode.h"

/* -- encoding ------------------------------------------------------------- */

struct scratch {
    struct plait_bpe_scratch *bpe;
    struct plait_buffer repaired, composed, prefixed;
};

/* What the steps of encoding a text share. */
struct pass {
    const struct plait_bpe_tokenizer *t;
    struct scratch *scratch;
    struct plait_tokens *out;
    const char *start; /* where a text that is not continued begins */
};

static void scratch_destroy(void *scratch)
{
    struct scratch *s = scratch;

    plait_bpe_scratch_destroy(s->bpe);
    free(s->repaired.data);
    free(s->composed.data);
    free(s->prefixed.data);
    free(s);
}

static void *scratch_create(void)
{
    struct scratch *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->bpe = plait_bpe_scratch_create();
    if (s->bpe)
        return s;
    free(s);
    return NULL;
}

static int encode_pieces(const struct pass *p, const unsigned char *text,
                         size_t size)
{
    bool meta = p->t->meta.used;
    size_t n;

    for (; size > 0; text += n, size -= n) {
        n = meta ? plait_metaspace_next(&p->t->meta, p->t->whole_words,
                                        (const char *)text, size)
                 : plait_pattern_next(&p->t->pattern, p->t->table, text, size);
        if (plait_bpe_encode(p->t->bpe, p->scratch->bpe, text, n, p->out) < 0)
            return -1;
    }
    return 0;
}

/* Each digit is encoded as a separate text, and so is what is between
 * digits. */
static int encode_digits(const struct pass *p, const unsigned char *text,
                         size_t size)
{
    size_t at = 0, from = 0, n;

    for (; at < size; at += n) {
        if (!(p->t->table[plait_utf8_decode(text + at, &n)] &
              PLAIT_UNICODE_NUMBER))
            continue;
        if (encode_pieces(p, text + from, at - from) < 0 ||
            encode_pieces(p, text + at, n) < 0)
            return -1;
        from = at + n;
    }
    return encode_pieces(p, text + from, size - from);
}

/* The text with its metaspaces, in `b`. */
static int replace_spaces(const struct pass *p, const char **text, size_t *size,
                          bool continued, struct plait_buffer *b)
{
    b->size = 0;
    if (plait_metaspace_write(&p->t->meta, *text, *size, continued,
                              *text == p->start, b) < 0)
        return -1;
    *text = b->data;
    *size = b->size;
    return 0;
}

static int encode_plain(const struct pass *p, const char *text, size_t size,
                        bool continued)
{
    struct plait_buffer *b = &p->scratch->prefixed;

    if (size == 0)
        return 0;
    if (p->t->meta.used && !p->t->meta.normalizes &&
        replace_spaces(p, &text, &size, continued, b) < 0)
        return -1;
    if (p->t->prefix_space && !continued && text[0] != ' ') {
        b->size = 0;
        if (plait_buffer_add(b, " ", 1) < 0 ||
            plait_buffer_add(b, text, size) < 0)
            return -1;
        text = b->data;
        size = b->size;
    }
    if (p->t->digits)
        return encode_digits(p, (const unsigned char *)text, size);
    return encode_pieces(p, (const unsigned char *)text, size);
}

static int add_token(struct plait_tokens *out, int32_t id)
{
    if (plait_tokens_reserve(out, 1) < 0)
        return -1;
    out->id[out->count++] = id;
    return 0;
}

typedef int encode_part(const struct pass *p, const char *text, size_t size,
                        bool continued);

/* Encode added tokens as themselves, and the text between them by `part`. */
static int encode_between(const struct pass *p, bool normalized,
                          encode_part *part, const char *text, size_t size,
                          bool continued)
{
    const struct plait_added_token *token;
    size_t at;

    do {
        token =
            plait_added_tokens_find(&p->t->added, normalized, text, size, &at);
        if (part(p, text, at, continued) < 0 ||
            (token && add_token(p->out, token->id) < 0))
            return -1;
        at += token ? token->size : 0;
        text += at;
        size -= at;
        continued = false;
    } while (size > 0);
    return 0;
}

static int encode_normalized(const struct pass *p, const char *text,
                             size_t size, bool continued)
{
    struct plait_buffer *b = &p->scratch->composed;

    if (size == 0)
        return 0;
    if (p->t->meta.normalizes &&
        replace_spaces(p, &text, &size, continued, b) < 0)
        return -1;
    if (p->t->composes && plait_unicode_is_loose(p->t->table, text, size)) {
        b->size = 0;
        if (plait_unicode_compose(p->t->table, text, size, b) < 0)
            return -1;
        text = b->data;
        size = b->size;
    }
    return encode_between(p, true, encode_plain, text, size, continued);
}

static int bpe_encode(const void *model, void *scratch,
                      const struct plait_passage *passage,
                      struct plait_tokens *out, struct plait_error *err)
{
    struct pass p = {model, scratch, out, NULL};
    struct plait_buffer *b = &p.scratch->repaired;
    const char *text = passage->text;
    size_t size = passage->size;

    if (plait_utf8_valid(text, size) < size) {
        b->size = 0;
        if (plait_utf8_repair(text, size, b) < 0)
            return plait_errorf(err, "tokenizer: %s", strerror(errno));
        text = b->data;
        size = b->size;
    }
    p.start = passage->continued ? NULL : text;
    if (size > 0 && encode_between(&p, false, encode_normalized, text, size,
                                   passage->continued) < 0)
        return plait_errorf(err, "tokenizer: %s", strerror(errno));
    return 0;
}

/* -- cutting -------------------------------------------------------------- */

/* Whether the characters on both sides of text[at] are whole. */
static bool is_between(const unsigned char *text, size_t size, size_t at)
{
    size_t before = 1, n;
    bool valid;

    while (before < 4 && before < at && (text[at - before] & 0xc0) == 0x80)
        before++;
    n = plait_utf8_next(text + at - before, before, &valid);
    if (!valid || n != before)
        return false;
    plait_utf8_next(text + at, size - at, &valid);
    return valid;
}

/* Text can be cut at two kinds of places, where every pattern ends a piece
 * whatever is around them: after a line break between two characters that are
 * not white space, and before a blank between two letters. A place is used only
 * if the characters beside it are valid UTF-8. */
static bool can_cut(const struct plait_bpe_tokenizer *t,
                    const unsigned char *text, size_t size, size_t at)
{
    const unsigned char *left, *right;
    bool blank = text[at] == ' ';
    size_t n, before;
    uint8_t a, b;
    bool valid;

    left = blank ? text + at : text + at - 1;
    right = blank ? text + at + 1 : text + at;
    if (left == text || right >= text + size)
        return false;
    for (before = 1; before < 4 && before < (size_t)(left - text) &&
                     (left[-(ptrdiff_t)before] & 0xc0) == 0x80;)
        before++;
    n = plait_utf8_next(left - before, before, &valid);
    if (!valid || n != before)
        return false;
    plait_utf8_next(right, (size_t)(text + size - right), &valid);
    if (!valid)
        return false;
    a = t->table[plait_utf8_decode(left - before, &n)];
    b = t->table[plait_utf8_decode(right, &n)];
    if (b & PLAIT_UNICODE_LOOSE)
        return false;
    return blank ? (a & b & PLAIT_UNICODE_LETTER) != 0
                 : !((a | b) & PLAIT_UNICODE_SPACE);
}

static size_t bpe_cut(const void *model, const char *text, size_t size)
{
    const struct plait_bpe_tokenizer *t = model;

    for (size_t at = size; at-- > 1;)
        if ((text[at] == ' ' || text[at - 1] == '\n') &&
            (t->meta.used
                 ? plait_metaspace_can_cut(&t->meta, t->whole_words, text,
                                           at) &&
                       is_between((const unsigned char *)text, size, at)
                 : can_cut(t, (const unsigned char *)text, size, at)) &&
            !plait_added_tokens_cut(&t->added, text, size, at))
            return at;
    return 0;
}

/* -- decoding ------------------------------------------------------------- */

static const struct plait_added_token *
find_added(const struct plait_bpe_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->added.count; i++)
        if (t->added.token[i].id == id)
            return &t->added.token[i];
    return NULL;
}

static int bpe_decode(const void *model, const int32_t *tokens, size_t ntokens,
                      struct plait_buffer *out, struct plait_error *err)
{
    const struct plait_bpe_tokenizer *t = model;
    const struct plait_added_token *added;
    const char *text;
    bool first = true;
    size_t size;

    for (size_t i = 0; i < ntokens; i++) {
        errno = ERANGE;
        if (tokens[i] < 0 || tokens[i] >= t->vocab)
            return plait_errorf(err, "tokenizer: token %d is not one of its %d",
                                tokens[i], t->vocab);
        added = find_added(t, tokens[i]);
        if (added && added->special)
            continue;
        text = added ? added->text : plait_bpe_text(t->bpe, tokens[i], &size);
        size = added ? added->size : size;
        if ((t->meta.used
                 ? plait_metaspace_decode(&t->meta, text, size, first, out)
                 : plait_buffer_add(out, text, size)) < 0)
            return plait_errorf(err, "tokenizer: out of memory");
        first = false;
    }
    return 0;
}

/* -- its files ------------------------------------------------------------ */

/* The added token with one of the usual names; NULL: there is none. */
static const struct plait_added_token *
find_usual(const struct plait_bpe_tokenizer *t)
{
    static const char *const usual[] = {"<|endoftext|>", "<|end_of_text|>",
                                        "</s>", "<eos>"};
    const struct plait_added_token *token = NULL;

    for (int i = 0; i < 4 && !token; i++)
        token = plait_added_tokens_named(&t->added, usual[i]);
    return token;
}

/* The token that ends a text: the model's own, where files beside `path` name
 * one, else `usual`. A chat model ends its answers with another token than
 * the usual ones, which its vocabulary has too. */
static const struct plait_added_token *
choose_end(const struct plait_bpe_tokenizer *t, const char *path,
           const struct plait_added_token *usual)
{
    const struct plait_added_token *token = NULL;
    char *eos = plait_tokenizer_eos(path);

    if (eos)
        token = plait_added_tokens_named(&t->added, eos);
    free(eos);
    if (!token)
        token = find_added(t, plait_tokenizer_eos_id(path));
    return token ? token : usual;
}

static int read_file(const char *path, struct plait_buffer *text,
                     struct plait_error *err)
{
    FILE *file = fopen(path, "re");
    size_t n = 1;

    if (!file)
        return plait_errorf(err, "bpe:%s: %s", path, strerror(errno));
    while (n > 0 && plait_buffer_reserve(text, 1 << 20) == 0) {
        n = fread(text->data + text->size, 1, 1 << 20, file);
        text->size += n;
    }
    if (n == 0 && !ferror(file)) {
        fclose(file);
        return 0;
    }
    plait_errorf(err, "bpe:%s: %s", path, strerror(errno));
    fclose(file);
    return -1;
}

static void find_end(struct plait_tokenizer *t,
                     const struct plait_bpe_tokenizer *model, const char *path)
{
    const struct plait_added_token *usual = find_usual(model);
    const struct plait_added_token *end = choose_end(model, path, usual);

    t->usual_end = usual ? usual->id : -1;
    t->end = end ? end->id : -1;
}

static const char *bpe_name(const void *model, int32_t token)
{
    const struct plait_added_token *added = find_added(model, token);

    return added ? added->text : NULL;
}

static const struct plait_tokenizer_ops bpe_ops = {
    .name = "bpe",
    .file = "tokenizer.json",
    .destroy = (void (*)(void *))plait_bpe_tokenizer_destroy,
    .cut = bpe_cut,
    .scratch_create = scratch_create,
    .scratch_destroy = scratch_destroy,
    .encode = bpe_encode,
    .decode = bpe_decode,
    .name_of = bpe_name,
};

/* The path of the file, if `path` is a folder; NULL with ENOMEM. */
static char *file_in(const char *path)
{
    struct stat st;
    char *file;

    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return strdup(path);
    return asprintf(&file, "%s/tokenizer.json", path) < 0 ? NULL : file;
}

int plait_tokenizer_open_bpe(struct plait_tokenizer *t, const char *path,
                             struct plait_error *err)
{
    char *file = file_in(path);
    struct plait_bpe_tokenizer *model = NULL;
    struct plait_buffer text = {0};

    if (!file)
        return plait_errorf(err, "bpe:%s: out of memory", path);
    if (read_file(file, &text, err) == 0)
        model = plait_tokenizer_json_parse(text.data, text.size, file, err);
    free(text.data);
    if (!model) {
        free(file);
        return -1;
    }
    find_end(t, model, file);
#ifdef __GLIBC__
    /* Return the memory of a large vocabulary's JSON, several times that of its
     * tables, to the system. */
    malloc_trim(0);
#endif
    t->ops = &bpe_ops;
    t->model = model;
    t->vocab = model->vocab;
    free(t->path);
    t->path = file;
    return 0;
}
