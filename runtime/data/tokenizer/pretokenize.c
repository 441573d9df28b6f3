/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/data/tokenizer/pretokenize.h"

#include <string.h>

#include "runtime/data/tokenizer/unicode.h"

static const struct {
    const char *regex;
    struct plait_pattern pattern;
} known[] = {
    /* GPT-2 */
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
     "\\s+(?!\\S)|\\s+",
     {false, 0, false}},
    /* Llama 3, GPT-4 */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
     "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     {true, 3, false}},
    /* Qwen 2 and 3 */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {true, 1, false}},
    /* Qwen 3.5 */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|"
     "\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     {true, 1, true}},
};

bool plait_pattern_find(const char *regex, struct plait_pattern *pattern)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(known[i].regex, regex)) {
            *pattern = known[i].pattern;
            return true;
        }
    return false;
}

/* A text, and what the scanner needs to classify its characters. */
struct scan {
    const uint8_t *table;
    const unsigned char *text;
    size_t size;
    uint8_t letters; /* bits of what counts as a letter */
};

/* The bits of the character at `at`, and its size in bytes, 0 at the end. */
static inline uint8_t class_at(const struct scan *s, size_t at, size_t *n)
{
    *n = 0;
    if (at >= s->size)
        return 0;
    return s->table[plait_utf8_decode(s->text + at, n)];
}

/* The end of the run from `at` of characters that have one of `bits`. */
static inline size_t skip_class(const struct scan *s, size_t at, uint8_t bits)
{
    size_t n;

    while (class_at(s, at, &n) & bits)
        at += n;
    return at;
}

static const uint8_t any_class =
    PLAIT_UNICODE_LETTER | PLAIT_UNICODE_NUMBER | PLAIT_UNICODE_SPACE;

/* Whether the character is no white space, letter or number. */
static inline bool is_other(const struct scan *s, size_t at, size_t *n)
{
    uint8_t class = class_at(s, at, n);

    return *n > 0 && !(class & (any_class | s->letters));
}

static inline size_t skip_other(const struct scan *s, size_t at)
{
    size_t n;

    while (is_other(s, at, &n))
        at += n;
    return at;
}

static bool is_break(unsigned char c)
{
    return c == '\n' || c == '\r';
}

/* 's 't 're 've 'm 'll 'd at the start of the text: its size, or 0. */
static size_t scan_contraction(const struct scan *s, bool any_case)
{
    const unsigned char *p = s->text;
    unsigned char fold = any_case ? 0x20 : 0, a, b;

    if (s->size < 2 || p[0] != '\'')
        return 0;
    /* U+017F, the long s, matches s if case is ignored. */
    if (any_case && s->size >= 3 && p[1] == 0xc5 && p[2] == 0xbf)
        return 3;
    a = p[1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (s->size < 3)
        return 0;
    b = p[2] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
        (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* Letters, and the blank or other character that may come before them. */
static size_t scan_word(const struct scan *s, bool any_case, uint8_t class,
                        size_t n)
{
    size_t next;
    bool leads =
        any_case ? !(class & (PLAIT_UNICODE_LETTER | PLAIT_UNICODE_NUMBER)) &&
                       !is_break(s->text[0])
                 : s->text[0] == ' ';

    if (leads && (class_at(s, n, &next) & s->letters))
        return skip_class(s, n + next, s->letters);
    if (class & s->letters)
        return skip_class(s, n, s->letters);
    return 0;
}

static size_t scan_number(const struct scan *s, int digits, uint8_t class,
                          size_t n)
{
    size_t next;

    if (digits == 0) {
        if (s->text[0] == ' ' && (class_at(s, n, &next) & PLAIT_UNICODE_NUMBER))
            return skip_class(s, n + next, PLAIT_UNICODE_NUMBER);
        return class & PLAIT_UNICODE_NUMBER
                   ? skip_class(s, n, PLAIT_UNICODE_NUMBER)
                   : 0;
    }
    if (!(class & PLAIT_UNICODE_NUMBER))
        return 0;
    while (--digits > 0 && (class_at(s, n, &next) & PLAIT_UNICODE_NUMBER))
        n += next;
    return n;
}

/* Punctuation and symbols, the blank before and the line breaks after them. */
static size_t scan_other(const struct scan *s, bool breaks, size_t n)
{
    size_t at = 0, next;

    if (s->text[0] == ' ' && is_other(s, n, &next))
        at = n + next;
    else if (is_other(s, 0, &next))
        at = next;
    else
        return 0;
    at = skip_other(s, at);
    while (breaks && at < s->size && is_break(s->text[at]))
        at++;
    return at;
}

/* White space: up to its last line break if `breaks`; else all but the last
 * character, which goes with what follows; all at the end of the text. */
static size_t scan_space(const struct scan *s, bool breaks)
{
    size_t end = 0, last = 0, after_break = 0, n;

    while (class_at(s, end, &n) & PLAIT_UNICODE_SPACE) {
        if (is_break(s->text[end]))
            after_break = end + n;
        last = end;
        end += n;
    }
    if (breaks && after_break > 0)
        return after_break;
    return end == s->size || last == 0 ? end : last;
}

size_t plait_pattern_next(const struct plait_pattern *pattern,
                          const uint8_t *table, const unsigned char *text,
                          size_t size)
{
    uint8_t letters = pattern->marks ? PLAIT_UNICODE_LETTER | PLAIT_UNICODE_MARK
                                     : PLAIT_UNICODE_LETTER;
    struct scan s = {table, text, size, letters};
    size_t n, length;
    uint8_t class = class_at(&s, 0, &n);

    if ((length = scan_contraction(&s, pattern->any_case)) > 0)
        return length;
    if ((length = scan_word(&s, pattern->any_case, class, n)) > 0)
        return length;
    if ((length = scan_number(&s, pattern->digits, class, n)) > 0)
        return length;
    if ((length = scan_other(&s, pattern->any_case, n)) > 0)
        return length;
    return scan_space(&s, pattern->any_case);
}
