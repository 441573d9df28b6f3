/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/tokenizer/unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* -- classes ------------------------------------------------------------- */

/* Letters, numbers and marks that Unicode 15.1 and 16.0 added: utf8proc of
 * Debian 12 stops at 15.0. Source: DerivedGeneralCategory of Unicode 16. */
static const struct {
    uint32_t first, last;
    uint8_t class;
} newer[] = {
    {0x0897, 0x0897, PLAIT_UNICODE_MARK},
    {0x1c89, 0x1c8a, PLAIT_UNICODE_LETTER},
    {0xa7cb, 0xa7cd, PLAIT_UNICODE_LETTER},
    {0xa7da, 0xa7dc, PLAIT_UNICODE_LETTER},
    {0x105c0, 0x105f3, PLAIT_UNICODE_LETTER},
    {0x10d40, 0x10d49, PLAIT_UNICODE_NUMBER},
    {0x10d4a, 0x10d65, PLAIT_UNICODE_LETTER},
    {0x10d69, 0x10d6d, PLAIT_UNICODE_MARK},
    {0x10d6f, 0x10d85, PLAIT_UNICODE_LETTER},
    {0x10ec2, 0x10ec4, PLAIT_UNICODE_LETTER},
    {0x10efc, 0x10efc, PLAIT_UNICODE_MARK},
    {0x11380, 0x11389, PLAIT_UNICODE_LETTER},
    {0x1138b, 0x1138b, PLAIT_UNICODE_LETTER},
    {0x1138e, 0x1138e, PLAIT_UNICODE_LETTER},
    {0x11390, 0x113b5, PLAIT_UNICODE_LETTER},
    {0x113b7, 0x113b7, PLAIT_UNICODE_LETTER},
    {0x113b8, 0x113c0, PLAIT_UNICODE_MARK},
    {0x113c2, 0x113c2, PLAIT_UNICODE_MARK},
    {0x113c5, 0x113c5, PLAIT_UNICODE_MARK},
    {0x113c7, 0x113ca, PLAIT_UNICODE_MARK},
    {0x113cc, 0x113d0, PLAIT_UNICODE_MARK},
    {0x113d1, 0x113d1, PLAIT_UNICODE_LETTER},
    {0x113d2, 0x113d2, PLAIT_UNICODE_MARK},
    {0x113d3, 0x113d3, PLAIT_UNICODE_LETTER},
    {0x113e1, 0x113e2, PLAIT_UNICODE_MARK},
    {0x116d0, 0x116e3, PLAIT_UNICODE_NUMBER},
    {0x11bc0, 0x11be0, PLAIT_UNICODE_LETTER},
    {0x11bf0, 0x11bf9, PLAIT_UNICODE_NUMBER},
    {0x11f5a, 0x11f5a, PLAIT_UNICODE_MARK},
    {0x13460, 0x143fa, PLAIT_UNICODE_LETTER},
    {0x16100, 0x1611d, PLAIT_UNICODE_LETTER},
    {0x1611e, 0x1612f, PLAIT_UNICODE_MARK},
    {0x16130, 0x16139, PLAIT_UNICODE_NUMBER},
    {0x16d40, 0x16d6c, PLAIT_UNICODE_LETTER},
    {0x16d70, 0x16d79, PLAIT_UNICODE_NUMBER},
    {0x18cff, 0x18cff, PLAIT_UNICODE_LETTER},
    {0x1ccf0, 0x1ccf9, PLAIT_UNICODE_NUMBER},
    {0x1e5d0, 0x1e5ed, PLAIT_UNICODE_LETTER},
    {0x1e5ee, 0x1e5ef, PLAIT_UNICODE_MARK},
    {0x1e5f0, 0x1e5f0, PLAIT_UNICODE_LETTER},
    {0x1e5f1, 0x1e5fa, PLAIT_UNICODE_NUMBER},
    {0x2ebf0, 0x2ee5d, PLAIT_UNICODE_LETTER},
};

static uint8_t category_class(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return PLAIT_UNICODE_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return PLAIT_UNICODE_NUMBER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return PLAIT_UNICODE_MARK;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return PLAIT_UNICODE_SPACE;
    default:
        return (c >= '\t' && c <= '\r') || c == 0x85 ? PLAIT_UNICODE_SPACE : 0;
    }
}

/* Characters that `tokenizers` neither reorders nor joins: it normalizes by the
 * tables of Unicode 9, where these were not assigned (U+0EBA: had no combining
 * class). Found by trying all code points on its release 0.23.3. */
static const uint32_t fixed[][2] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},
    {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},
    {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930},
    {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42},
    {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
    {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
};

/* Mark as LOOSE what NFC changes, and all but the first of what it may join. */
static void mark_loose(uint8_t *table, int32_t c)
{
    const utf8proc_property_t *p = utf8proc_get_property(c);
    int32_t part[16];
    utf8proc_ssize_t n;
    int last_class = 0;

    if (p->combining_class)
        table[c] |= PLAIT_UNICODE_LOOSE;
    n = utf8proc_decompose_char(c, part, 16, UTF8PROC_DECOMPOSE, &last_class);
    if (n < 1 || n > 16 || (n == 1 && part[0] == c))
        return;
    for (utf8proc_ssize_t i = 1; i < n; i++)
        table[part[i]] |= PLAIT_UNICODE_LOOSE;
    n = utf8proc_normalize_utf32(part, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n != 1 || part[0] != c)
        table[c] |= PLAIT_UNICODE_LOOSE;
}

/* The next code point; leaves out planes 4 to 13, which have no characters, and
 * 15 and 16, whose characters are private: those have no bits. */
static uint32_t next_point(uint32_t c)
{
    c++;
    return c == 0x40000 ? 0xe0000 : c == 0xf0000 ? PLAIT_UNICODE_SIZE : c;
}

uint8_t *plait_unicode_create(void)
{
    uint8_t *table = calloc(PLAIT_UNICODE_SIZE, 1);

    if (!table)
        return NULL;
    for (uint32_t c = 0; c < PLAIT_UNICODE_SIZE; c = next_point(c))
        table[c] = category_class((int32_t)c);
    for (size_t i = 0; i < sizeof(newer) / sizeof(*newer); i++)
        memset(table + newer[i].first, newer[i].class,
               newer[i].last - newer[i].first + 1);
    for (uint32_t c = 0xa0; c < PLAIT_UNICODE_SIZE; c = next_point(c))
        if (c < 0xd800 || c > 0xdfff)
            mark_loose(table, (int32_t)c);
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
        for (uint32_t c = fixed[i][0]; c <= fixed[i][1]; c++)
            table[c] = (uint8_t)((table[c] & ~PLAIT_UNICODE_LOOSE) |
                                 PLAIT_UNICODE_FIXED);
    return table;
}

/* -- UTF-8 --------------------------------------------------------------- */

/* The second byte's range depends on the first: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
static bool is_second(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0 && second <= 0xbf;
    case 0xed:
        return second >= 0x80 && second <= 0x9f;
    case 0xf0:
        return second >= 0x90 && second <= 0xbf;
    case 0xf4:
        return second >= 0x80 && second <= 0x8f;
    default:
        return second >= 0x80 && second <= 0xbf;
    }
}

size_t plait_utf8_next(const unsigned char *p, size_t n, bool *valid)
{
    size_t want;

    *valid = true;
    if (p[0] < 0x80)
        return 1;
    want = p[0] < 0xc2   ? 0
           : p[0] < 0xe0 ? 2
           : p[0] < 0xf0 ? 3
           : p[0] < 0xf5 ? 4
                         : 0;
    *valid = false;
    if (want == 0 || n < 2 || !is_second(p[0], p[1]))
        return 1;
    for (size_t i = 2; i < want; i++)
        if (i >= n || (p[i] & 0xc0) != 0x80)
            return i;
    *valid = true;
    return want;
}

size_t plait_utf8_valid(const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    uint64_t eight;
    size_t at = 0;
    bool valid;

    while (at < size) {
        while (size - at >= sizeof(eight)) {
            memcpy(&eight, p + at, sizeof(eight));
            if (eight & UINT64_C(0x8080808080808080))
                break;
            at += sizeof(eight);
        }
        if (at < size) {
            size_t n = plait_utf8_next(p + at, size - at, &valid);

            if (!valid)
                break;
            at += n;
        }
    }
    return at;
}

int plait_utf8_repair(const char *text, size_t size, struct plait_buffer *out)
{
    bool valid;

    while (size > 0) {
        size_t n = plait_utf8_valid(text, size);

        if (plait_buffer_add(out, text, n) < 0)
            return -1;
        text += n;
        size -= n;
        if (size == 0)
            break;
        n = plait_utf8_next((const unsigned char *)text, size, &valid);
        if (plait_buffer_add(out, "\xef\xbf\xbd", 3) < 0)
            return -1;
        text += n;
        size -= n;
    }
    return 0;
}

/* -- normalization form C ------------------------------------------------- */

/* The first LOOSE character from `at` on; `size` if there is none. */
static size_t find_loose(const uint8_t *table, const unsigned char *p,
                         size_t at, size_t size)
{
    size_t n;

    while (at < size) {
        if (p[at] < 0x80) {
            at++;
            continue;
        }
        if (table[plait_utf8_decode(p + at, &n)] & PLAIT_UNICODE_LOOSE)
            break;
        at += n;
    }
    return at;
}

static size_t skip_loose(const uint8_t *table, const unsigned char *p,
                         size_t at, size_t size)
{
    size_t n;

    while (at < size &&
           (table[plait_utf8_decode(p + at, &n)] & PLAIT_UNICODE_LOOSE))
        at += n;
    return at;
}

bool plait_unicode_is_loose(const uint8_t *table, const char *text, size_t size)
{
    return find_loose(table, (const unsigned char *)text, 0, size) < size;
}

static int add_composed(const unsigned char *p, size_t size,
                        struct plait_buffer *out)
{
    utf8proc_uint8_t *text;
    utf8proc_ssize_t n;
    int rc;

    n = utf8proc_map(p, (utf8proc_ssize_t)size, &text,
                     UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) {
        errno = n == UTF8PROC_ERROR_NOMEM ? ENOMEM : EINVAL;
        return -1;
    }
    rc = plait_buffer_add(out, text, (size_t)n);
    free(text);
    return rc;
}

/* Where the character before a loose one begins; the loose one itself if there
 * is none after `from`, or if nothing joins that character. */
static size_t step_back(const uint8_t *table, const unsigned char *p,
                        size_t from, size_t loose)
{
    size_t at = loose, n;

    if (at == from)
        return at;
    do
        at--;
    while (at > from && (p[at] & 0xc0) == 0x80);
    return table[plait_utf8_decode(p + at, &n)] & PLAIT_UNICODE_FIXED ? loose
                                                                      : at;
}

/* Only a run of loose characters and the one before it can change. */
int plait_unicode_compose(const uint8_t *table, const char *text, size_t size,
                          struct plait_buffer *out)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t done = 0, loose, from, to;

    while ((loose = find_loose(table, p, done, size)) < size) {
        from = step_back(table, p, done, loose);
        to = skip_loose(table, p, loose, size);
        if (plait_buffer_add(out, p + done, from - done) < 0 ||
            add_composed(p + from, to - from, out) < 0)
            return -1;
        done = to;
    }
    return plait_buffer_add(out, p + done, size - done);
}
