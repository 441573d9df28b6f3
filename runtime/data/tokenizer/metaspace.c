/* SPDX-License-Identifier: Apache-2.0 */
/* Blanks as U+2581, as SentencePiece writes them. */
#include "config.h"

#include "runtime/data/tokenizer/metaspace.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- reading --------------------------------------------------------------- */

struct reader {
    const char *name;
    struct plait_metaspace *m;
    struct plait_error *err;
    bool replaced; /* the normalizer writes the blanks */
};

static bool has_text(const json_t *part, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(part, key));

    return value && !strcmp(value, text);
}

static int refuse(const struct reader *r, const char *what, const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));

    errno = ENOTSUP;
    return plait_errorf(r->err,
                        "%s: its %s has '%.40s' in a way that is not "
                        "supported beside blanks written as U+2581",
                        r->name, what, type ? type : "");
}

/* A list of parts, or one part. */
static const json_t *part_at(const json_t *part, const char *list, size_t i)
{
    const json_t *parts = json_object_get(part, list);

    if (json_is_array(parts))
        return json_array_get(parts, i);
    return i == 0 && json_is_object(part) ? part : NULL;
}

static bool is_of_blank(const json_t *part)
{
    return has_text(json_object_get(part, "pattern"), "String", " ");
}

static int read_normalizer(struct reader *r, const json_t *normalizer)
{
    const json_t *part;

    for (size_t i = 0; (part = part_at(normalizer, "normalizers", i)); i++) {
        if (has_text(part, "type", "Prepend") &&
            has_text(part, "prepend", PLAIT_METASPACE))
            r->m->prepend = PLAIT_PREPEND_ALWAYS;
        else if (has_text(part, "type", "Replace") && is_of_blank(part) &&
                 has_text(part, "content", PLAIT_METASPACE))
            r->replaced = true;
        else
            return refuse(r, "normalizer", part);
    }
    r->m->normalizes = r->replaced;
    if (r->m->prepend == PLAIT_PREPEND_ALWAYS && !r->replaced)
        return refuse(r, "normalizer", part_at(normalizer, "normalizers", 0));
    return 0;
}

/* Files of old versions have add_prefix_space instead of a scheme. */
static int read_scheme(struct reader *r, const json_t *part)
{
    const char *scheme =
        json_string_value(json_object_get(part, "prepend_scheme"));

    if (!scheme)
        scheme = json_is_false(json_object_get(part, "add_prefix_space"))
                     ? "never"
                     : "always";
    if (!has_text(part, "replacement", PLAIT_METASPACE))
        return refuse(r, "pre_tokenizer", part);
    r->m->prepend = !strcmp(scheme, "first")    ? PLAIT_PREPEND_FIRST
                    : !strcmp(scheme, "always") ? PLAIT_PREPEND_MISSING
                                                : PLAIT_PREPEND_NONE;
    r->m->splits = !json_is_false(json_object_get(part, "split"));
    return 0;
}

static int read_pretokenizer(struct reader *r, const json_t *pretokenizer)
{
    bool found = r->replaced;
    const json_t *part;

    for (size_t i = 0; (part = part_at(pretokenizer, "pretokenizers", i));
         i++) {
        if (has_text(part, "type", "Metaspace") && !found) {
            if (read_scheme(r, part) < 0)
                return -1;
            found = true;
        } else if (!has_text(part, "type", "Split") || !is_of_blank(part) ||
                   !r->replaced) {
            return refuse(r, "pre_tokenizer", part);
        } /* else there is no blank left to split by */
    }
    errno = ENOTSUP;
    return found ? 0
                 : plait_errorf(r->err,
                                "%s: it has byte_fallback, but neither its "
                                "normalizer nor its pre_tokenizer writes "
                                "blanks as U+2581",
                                r->name);
}

static void read_decoder(struct reader *r, const json_t *decoder)
{
    const json_t *part;

    for (size_t i = 0; (part = part_at(decoder, "decoders", i)); i++) {
        if (has_text(part, "type", "Strip") && has_text(part, "content", " ") &&
            json_integer_value(json_object_get(part, "start")) == 1)
            r->m->strip = PLAIT_STRIP_BLANK;
        if (has_text(part, "type", "Metaspace") &&
            !has_text(part, "prepend_scheme", "never"))
            r->m->strip = PLAIT_STRIP_TOKEN;
    }
}

int plait_metaspace_read(const json_t *root, const char *name,
                         struct plait_metaspace *m, struct plait_error *err)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *before = json_object_get(root, "pre_tokenizer");
    struct reader r = {.name = name, .m = m, .err = err};
    const json_t *part;

    *m = (struct plait_metaspace){
        .falls_back = json_is_true(json_object_get(model, "byte_fallback"))};
    m->used = m->falls_back;
    for (size_t i = 0; (part = part_at(normalizer, "normalizers", i)); i++)
        m->used |= has_text(part, "type", "Prepend") ||
                   has_text(part, "content", PLAIT_METASPACE);
    for (size_t i = 0; (part = part_at(before, "pretokenizers", i)); i++)
        m->used |= has_text(part, "type", "Metaspace");
    if (!m->used)
        return 0;
    if (read_normalizer(&r, normalizer) < 0 ||
        read_pretokenizer(&r, before) < 0)
        return -1;
    read_decoder(&r, json_object_get(root, "decoder"));
    return 0;
}

/* -- pieces ---------------------------------------------------------------- */

static bool is_space(const char *text, size_t size)
{
    return size >= PLAIT_METASPACE_SIZE &&
           !memcmp(text, PLAIT_METASPACE, PLAIT_METASPACE_SIZE);
}

/* Whether such a blank ends right before text[at]. */
static bool is_after_space(const char *text, size_t at)
{
    return at >= PLAIT_METASPACE_SIZE &&
           is_space(text + at - PLAIT_METASPACE_SIZE, PLAIT_METASPACE_SIZE);
}

static void note_token(struct plait_metaspace *m, const char *text, size_t size)
{
    for (size_t i = 1; i < size; i++) {
        m->joins_blanks |=
            is_space(text + i, size - i) && !is_after_space(text, i);
        m->joins_lines |= text[i - 1] == '\n' && text[i] != '\n';
    }
}

void plait_metaspace_note_joins(struct plait_metaspace *m,
                                const struct plait_bpe *bpe, int vocab,
                                const struct plait_added_tokens *added)
{
    const char *text;
    size_t size;

    /* Unknown characters side by side may be one token. */
    m->joins_blanks =
        plait_bpe_find(bpe, PLAIT_METASPACE, PLAIT_METASPACE_SIZE) < 0;
    m->joins_lines = !m->falls_back;
    for (int32_t id = 0; id < vocab; id++) {
        text = plait_bpe_text(bpe, id, &size);
        note_token(m, text, size);
    }
    for (size_t i = 0; i < added->count; i++)
        if (added->token[i].normalized)
            note_token(m, added->token[i].text, added->token[i].size);
}

int plait_metaspace_write(const struct plait_metaspace *m, const char *text,
                          size_t size, bool continued, bool begins,
                          struct plait_buffer *out)
{
    bool missing = text[0] != ' ' && !is_space(text, size);
    const char *blank;
    size_t n;

    if (!continued &&
        (m->prepend == PLAIT_PREPEND_ALWAYS ||
         (m->prepend == PLAIT_PREPEND_MISSING && missing) ||
         (m->prepend == PLAIT_PREPEND_FIRST && missing && begins)) &&
        plait_buffer_add(out, PLAIT_METASPACE, PLAIT_METASPACE_SIZE) < 0)
        return -1;
    for (; size > 0; text += n, size -= n) {
        blank = memchr(text, ' ', size);
        n = blank ? (size_t)(blank - text) : size;
        if (plait_buffer_add(out, text, n) < 0 ||
            (blank &&
             plait_buffer_add(out, PLAIT_METASPACE, PLAIT_METASPACE_SIZE) < 0))
            return -1;
        n += blank != NULL;
    }
    return 0;
}

/* The size of the first line and the line breaks after it. */
static size_t line_size(const char *text, size_t size)
{
    const char *end = memchr(text, '\n', size);
    size_t n;

    if (!end)
        return size;
    n = (size_t)(end - text);
    while (n < size && text[n] == '\n')
        n++;
    return n;
}

/* Where no token joins a blank to what is before it, no merge crosses that
 * place, and what is on its sides can be merged apart. The same is true of what
 * is after a line break. */
size_t plait_metaspace_next(const struct plait_metaspace *m, bool whole_words,
                            const char *text, size_t size)
{
    if (!m->splits && whole_words)
        return size;
    if (!m->splits && m->joins_blanks)
        return m->joins_lines ? size : line_size(text, size);
    for (size_t i = 1; i < size; i++)
        if (is_space(text + i, size - i) &&
            (m->splits || !is_after_space(text, i)))
            return i;
    return size;
}

bool plait_metaspace_can_cut(const struct plait_metaspace *m, bool whole_words,
                             const char *text, size_t at)
{
    if (whole_words && !m->splits)
        return false;
    if (text[at] == ' ')
        return m->splits || (!m->joins_blanks && text[at - 1] != ' ' &&
                             !is_after_space(text, at));
    return text[at - 1] == '\n' && text[at] != '\n' && !m->joins_lines &&
           !whole_words;
}

/* The byte of "<0x0A>"; -1: it is no such token. */
static int fallback_byte(const char *token, size_t size)
{
    char digits[3] = {0};

    if (size != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>' ||
        !isxdigit((unsigned char)token[3]) ||
        !isxdigit((unsigned char)token[4]))
        return -1;
    memcpy(digits, token + 3, 2);
    return (int)strtol(digits, NULL, 16);
}

int plait_metaspace_decode(const struct plait_metaspace *m, const char *token,
                           size_t size, bool first, struct plait_buffer *out)
{
    int byte = fallback_byte(token, size);
    bool strip = first && m->strip != PLAIT_STRIP_NONE;

    if (byte >= 0)
        return plait_buffer_add(out, &(char){(char)byte}, 1);
    for (size_t i = 0; i < size; i++) {
        bool blank = is_space(token + i, size - i);

        i += blank ? PLAIT_METASPACE_SIZE - 1 : 0;
        if (blank && strip) {
            strip = m->strip == PLAIT_STRIP_TOKEN;
            continue;
        }
        strip &= m->strip == PLAIT_STRIP_TOKEN;
        if (plait_buffer_add(out, blank ? " " : token + i, 1) < 0)
            return -1;
    }
    return 0;
}
