/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Hugging Face's tokenizer.json, of a tokenizer that is byte pair
 * encoding. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/bpe_tokenizer.h"
#include "runtime/data/tokenizer/byte_letters.h"
#include "runtime/data/tokenizer/unicode.h"

/* More than any vocabulary has, and few enough for tables. */
enum { TOKENS_MOST = 1 << 24 };

struct reader {
    const char *name;
    struct plait_bpe_tokenizer *t;
    struct plait_error *err;
};

/* Jansson's lookups treat NULL, and what is no object, as an empty object. */
static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));

    return type ? type : "";
}

/* -- what comes before merging -------------------------------------------- */

static int read_normalizer(struct reader *r, const json_t *normalizer)
{
    const json_t *list = json_object_get(normalizer, "normalizers"), *one;
    size_t i;

    if (!normalizer || json_is_null(normalizer))
        return 0;
    if (!strcmp(type_of(normalizer), "NFC")) {
        r->t->composes = true;
        return 0;
    }
    if (!strcmp(type_of(normalizer), "Sequence") && json_is_array(list)) {
        json_array_foreach(list, i,
                           one) if (read_normalizer(r, one) < 0) return -1;
        return 0;
    }
    errno = ENOTSUP;
    return plait_errorf(r->err,
                        "%s: its normalizer '%.40s' is not supported, only "
                        "NFC or none",
                        r->name, type_of(normalizer));
}

/* The parts of the pre-tokenizer that were found so far, in this order. */
struct cutters {
    bool digits, split, bytes;
};

static int read_split(struct reader *r, const json_t *part, struct cutters *c)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *behavior = json_string_value(json_object_get(part, "behavior"));

    errno = ENOTSUP;
    if (c->digits || c->split || c->bytes || !regex || !behavior ||
        strcmp(behavior, "Isolated") != 0 ||
        json_is_true(json_object_get(part, "invert")) ||
        !plait_pattern_find(regex, &r->t->pattern))
        return plait_errorf(r->err,
                            "%s: its pre_tokenizer splits by a pattern that "
                            "is not GPT-2's, Llama 3's or Qwen's: %.80s",
                            r->name, regex ? regex : "(no regular expression)");
    c->split = true;
    return 0;
}

static int read_byte_level(struct reader *r, const json_t *part,
                           struct cutters *c)
{
    bool regex = !json_is_false(json_object_get(part, "use_regex"));

    r->t->prefix_space =
        !json_is_false(json_object_get(part, "add_prefix_space"));
    errno = ENOTSUP;
    if (c->bytes || regex == c->split ||
        (r->t->prefix_space && (c->digits || c->split)))
        return plait_errorf(r->err,
                            "%s: its pre_tokenizer's ByteLevel should have "
                            "use_regex %s, add_prefix_space false, and come "
                            "once",
                            r->name, c->split ? "false" : "true");
    if (regex)
        plait_pattern_find("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                           "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                           &r->t->pattern);
    c->bytes = true;
    return 0;
}

static int read_cutter(struct reader *r, const json_t *part, struct cutters *c)
{
    const json_t *list = json_object_get(part, "pretokenizers"), *one;
    const char *type = type_of(part);
    size_t i;

    if (!strcmp(type, "Sequence") && json_is_array(list)) {
        json_array_foreach(list, i,
                           one) if (read_cutter(r, one, c) < 0) return -1;
        return 0;
    }
    if (!strcmp(type, "Split"))
        return read_split(r, part, c);
    if (!strcmp(type, "ByteLevel"))
        return read_byte_level(r, part, c);
    if (!strcmp(type, "Digits") && !c->digits && !c->split && !c->bytes &&
        json_is_true(json_object_get(part, "individual_digits"))) {
        c->digits = r->t->digits = true;
        return 0;
    }
    errno = ENOTSUP;
    return plait_errorf(r->err,
                        "%s: its pre_tokenizer has '%.40s'; only ByteLevel, "
                        "Split and, as the first, individual Digits are "
                        "supported",
                        r->name, type);
}

static int read_pretokenizer(struct reader *r, const json_t *part)
{
    struct cutters c = {0};

    if (read_cutter(r, part, &c) < 0)
        return -1;
    errno = ENOTSUP;
    return c.bytes ? 0
                   : plait_errorf(r->err,
                                  "%s: its pre_tokenizer lacks ByteLevel: "
                                  "only byte-level BPE is supported",
                                  r->name);
}

/* -- the model ------------------------------------------------------------ */

static bool is_unset(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_number(value) && json_number_value(value) == 0);
}

/* Refuse settings that change the tokens and are not supported. */
static int check_model(struct reader *r, const json_t *model)
{
    static const char *const keys[] = {"dropout", "continuing_subword_prefix",
                                       "end_of_word_suffix"};
    const char *type = type_of(model);

    errno = ENOTSUP;
    if (*type && strcmp(type, "BPE") != 0)
        return plait_errorf(r->err, "%s: its model is '%.40s', not BPE",
                            r->name, type);
    for (int i = 0; i < 3; i++)
        if (!is_unset(json_object_get(model, keys[i])))
            return plait_errorf(r->err,
                                "%s: model.%s is set: only BPE without it is "
                                "supported",
                                r->name, keys[i]);
    return 0;
}

/* A token's id; -1 with an error. */
static int32_t read_id(struct reader *r, const char *token, const json_t *value)
{
    json_int_t id = json_integer_value(value);

    if (json_is_integer(value) && id >= 0 && id < TOKENS_MOST)
        return (int32_t)id;
    errno = EINVAL;
    return plait_errorf(r->err,
                        "%s: the id of token '%.40s' is not a number from 0 "
                        "to %d",
                        r->name, token, TOKENS_MOST - 1);
}

/* One more than the largest id of the vocabulary and the added tokens. */
static int count_ids(struct reader *r, json_t *vocab, const json_t *added)
{
    const char *token;
    json_t *value;
    int32_t id;
    size_t i;

    json_object_foreach(vocab, token, value)
    {
        id = read_id(r, token, value);
        if (id < 0)
            return -1;
        if (id >= r->t->vocab)
            r->t->vocab = id + 1;
    }
    json_array_foreach(added, i, value)
    {
        id = read_id(r, "added_tokens", json_object_get(value, "id"));
        if (id < 0)
            return -1;
        if (id >= r->t->vocab)
            r->t->vocab = id + 1;
    }
    return 0;
}

static int read_vocab(struct reader *r, json_t *vocab)
{
    struct plait_buffer text = {0};
    int16_t bytes[PLAIT_BYTE_LETTERS];
    const char *token;
    json_t *value;
    int rc = 0;

    plait_byte_letters_list(bytes);
    json_object_foreach(vocab, token, value)
    {
        size_t size = strlen(token);

        if (plait_buffer_reserve(&text, size) < 0) {
            rc = -1;
            break;
        }
        if (r->t->meta.used)
            memcpy(text.data, token, size);
        else
            plait_byte_letters_spell(bytes, token, text.data, &size);
        rc = plait_bpe_set_text(r->t->bpe, (int32_t)json_integer_value(value),
                                text.data, size);
        if (rc < 0)
            break;
    }
    free(text.data);
    return rc < 0 ? plait_errorf(r->err, "%s: out of memory", r->name) : 0;
}

/* The two halves of a merge: ["a", "b"], or "a b" as older files have it. */
static bool split_merge(const json_t *merge, struct plait_buffer *text,
                        const char **left, const char **right)
{
    const char *both = json_string_value(merge), *blank;
    size_t n;

    *left = json_string_value(json_array_get(merge, 0));
    *right = json_string_value(json_array_get(merge, 1));
    if (json_is_array(merge))
        return json_array_size(merge) == 2 && *left && *right;
    blank = both ? strchr(both, ' ') : NULL;
    if (!blank || strchr(blank + 1, ' '))
        return false;
    n = (size_t)(blank - both);
    text->size = 0;
    if (plait_buffer_add(text, both, strlen(both) + 1) < 0)
        return false;
    text->data[n] = '\0';
    *left = text->data;
    *right = text->data + n + 1;
    return true;
}

/* A token's id; -1 if there is none. */
static int32_t find_token(const json_t *vocab, const char *token)
{
    const json_t *id = json_object_get(vocab, token);

    return id ? (int32_t)json_integer_value(id) : -1;
}

static int read_merge(struct reader *r, const json_t *vocab,
                      const json_t *merge, struct plait_buffer text[2])
{
    const char *left, *right;
    int32_t a, b, both;

    errno = EINVAL;
    if (!split_merge(merge, &text[0], &left, &right))
        return plait_errorf(r->err, "two tokens are expected");
    text[1].size = 0;
    if (plait_buffer_add(&text[1], left, strlen(left)) < 0 ||
        plait_buffer_add(&text[1], right, strlen(right) + 1) < 0)
        return plait_errorf(r->err, "out of memory");
    a = find_token(vocab, left);
    b = find_token(vocab, right);
    both = find_token(vocab, text[1].data);
    if (a < 0 || b < 0 || both < 0)
        return plait_errorf(r->err, "'%.40s' is not in the vocabulary",
                            a < 0   ? left
                            : b < 0 ? right
                                    : text[1].data);
    return plait_bpe_add_merge(r->t->bpe, a, b, both);
}

static int read_merges(struct reader *r, const json_t *vocab,
                       const json_t *merges)
{
    struct plait_buffer text[2] = {{0}};
    struct plait_error why;
    struct reader inner = {r->name, r->t, &why};
    json_t *merge;
    size_t i;
    int rc = 0;

    json_array_foreach(merges, i,
                       merge) if (read_merge(&inner, vocab, merge, text) < 0)
    {
        rc = plait_errorf(r->err, "%s: merge %zu of its model: %.200s", r->name,
                          i, why.text);
        break;
    }
    free(text[0].data);
    free(text[1].data);
    return rc;
}

/* Set how the pieces of a tokenizer begin that writes blanks as U+2581. */
static void set_characters(struct reader *r, const json_t *model,
                           const json_t *vocab)
{
    const char *unknown =
        json_string_value(json_object_get(model, "unk_token"));
    const struct plait_bpe_characters characters = {
        .used = r->t->meta.used,
        .falls_back = json_is_true(json_object_get(model, "byte_fallback")),
        .fuse = json_is_true(json_object_get(model, "fuse_unk")),
        .unknown = unknown ? find_token(vocab, unknown) : -1};

    plait_bpe_set_characters(r->t->bpe, &characters);
}

static int finish_model(struct reader *r)
{
    if (plait_bpe_finish(r->t->bpe, r->t->whole_words) == 0)
        return 0;
    return errno == EINVAL
               ? plait_errorf(r->err,
                              "%s: model.byte_fallback is set, but not all of "
                              "<0x00> to <0xFF> are in its vocabulary",
                              r->name)
               : plait_errorf(r->err, "%s: out of memory", r->name);
}

static int read_model(struct reader *r, const json_t *model,
                      const json_t *added)
{
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");

    r->t->whole_words = json_is_true(json_object_get(model, "ignore_merges"));
    errno = EINVAL;
    if (check_model(r, model) < 0)
        return -1;
    if (!json_is_object(vocab) || !json_is_array(merges))
        return plait_errorf(r->err,
                            "%s: it has no model.%s: a tokenizer.json "
                            "of Hugging Face's tokenizers is expected",
                            r->name,
                            json_is_object(vocab) ? "merges" : "vocab");
    if (count_ids(r, vocab, added) < 0)
        return -1;
    r->t->bpe = plait_bpe_create(r->t->vocab, json_array_size(merges));
    if (!r->t->bpe)
        return plait_errorf(r->err, "%s: out of memory", r->name);
    if (read_vocab(r, vocab) < 0 || read_merges(r, vocab, merges) < 0)
        return -1;
    set_characters(r, model, vocab);
    return finish_model(r);
}

/* -- added tokens ---------------------------------------------------------- */

static int read_added(struct reader *r, const json_t *token)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    const json_t *content = json_object_get(token, "content");
    const char *text = json_string_value(content);
    size_t size = json_string_length(content);
    struct plait_buffer composed = {0};
    bool normalized = json_is_true(json_object_get(token, "normalized"));
    int rc;

    errno = EINVAL;
    if (!text || size == 0)
        return plait_errorf(r->err, "%s: an added token has no content",
                            r->name);
    for (int i = 0; i < 3; i++)
        if (json_is_true(json_object_get(token, flags[i]))) {
            errno = ENOTSUP;
            return plait_errorf(r->err,
                                "%s: added token '%.40s' has %s set, which is "
                                "not supported",
                                r->name, text, flags[i]);
        }
    if (normalized && r->t->composes &&
        plait_unicode_compose(r->t->table, text, size, &composed) == 0) {
        text = composed.data;
        size = composed.size;
    }
    if (normalized && r->t->meta.normalizes &&
        plait_metaspace_write(&r->t->meta, text, size, false, true,
                              &composed) == 0) {
        text = composed.data;
        size = composed.size;
    }
    rc = plait_added_tokens_add(
        &r->t->added, (int32_t)json_integer_value(json_object_get(token, "id")),
        text, size, json_is_true(json_object_get(token, "special")),
        normalized);
    free(composed.data);
    return rc < 0 ? plait_errorf(r->err, "%s: out of memory", r->name) : 0;
}

static int read_root(struct reader *r, const json_t *root)
{
    const json_t *added = json_object_get(root, "added_tokens");
    json_t *token;
    size_t i;

    if (plait_metaspace_read(root, r->name, &r->t->meta, r->err) < 0 ||
        (!r->t->meta.used &&
         read_normalizer(r, json_object_get(root, "normalizer")) < 0) ||
        read_model(r, json_object_get(root, "model"), added) < 0 ||
        (!r->t->meta.used &&
         read_pretokenizer(r, json_object_get(root, "pre_tokenizer")) < 0))
        return -1;
    json_array_foreach(added, i, token) if (read_added(r, token) < 0) return -1;
    if (r->t->meta.used)
        plait_metaspace_note_joins(&r->t->meta, r->t->bpe, r->t->vocab,
                                   &r->t->added);
    return 0;
}

struct plait_bpe_tokenizer *plait_tokenizer_json_parse(const char *text,
                                                       size_t size,
                                                       const char *name,
                                                       struct plait_error *err)
{
    struct plait_bpe_tokenizer *t = calloc(1, sizeof(*t));
    struct reader r = {name, t, err};
    json_error_t wrong;
    json_t *root;
    int rc = -1;

    if (!t || !(t->table = plait_unicode_create())) {
        plait_errorf(err, "%s: out of memory", name);
        free(t);
        return NULL;
    }
    root = json_loadb(text, size, JSON_ALLOW_NUL, &wrong);
    errno = EINVAL;
    if (root)
        rc = read_root(&r, root);
    else
        plait_errorf(err, "%s: not JSON: line %d: %.120s", name, wrong.line,
                     wrong.text);
    json_decref(root);
    if (rc == 0)
        return t;
    plait_bpe_tokenizer_destroy(t);
    return NULL;
}

void plait_bpe_tokenizer_destroy(struct plait_bpe_tokenizer *t)
{
    int saved = errno;

    if (!t)
        return;
    plait_bpe_destroy(t->bpe);
    plait_added_tokens_clear(&t->added);
    free(t->table);
    free(t);
    errno = saved;
}
