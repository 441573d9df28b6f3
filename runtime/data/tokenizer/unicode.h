/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_UNICODE_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/data/tokenizer/buffer.h"

/* What the tokenizers need to know of a code point, as bits of one byte. */
enum {
    PLAIT_UNICODE_LETTER = 1, /* \p{L} */
    PLAIT_UNICODE_NUMBER = 2, /* \p{N} */
    PLAIT_UNICODE_SPACE = 4,  /* \s, White_Space */
    PLAIT_UNICODE_MARK = 8,   /* \p{M} */
    PLAIT_UNICODE_LOOSE = 16, /* NFC may change it or join it to what is
                                 before it */
    PLAIT_UNICODE_FIXED = 32  /* NFC joins nothing to it */
};
enum { PLAIT_UNICODE_SIZE = 0x110000 };

/* The bits of every code point, [PLAIT_UNICODE_SIZE], of Unicode 16; the
 * caller frees. NULL with ENOMEM. */
uint8_t *plait_unicode_create(void);

/* The size of the character at `p`, where n > 0 bytes are left. An invalid
 * sequence has the size that is replaced by one U+FFFD (Unicode 16, section
 * 3.9, maximal subparts, as in Python's errors="replace"), and *valid is
 * false. */
size_t plait_utf8_next(const unsigned char *p, size_t n, bool *valid);
/* How many bytes from the start are valid UTF-8. */
size_t plait_utf8_valid(const char *text, size_t size);
/* Appends the text with U+FFFD for what is not UTF-8. -1 with ENOMEM. */
int plait_utf8_repair(const char *text, size_t size, struct plait_buffer *out);
/* Appends the text in normalization form C (Unicode annex 15), as
 * `tokenizers` has it: marks newer than Unicode 9 keep their order. The text
 * is UTF-8. -1 with errno. */
int plait_unicode_compose(const uint8_t *table, const char *text, size_t size,
                          struct plait_buffer *out);
/* Whether the text has a LOOSE character at all. */
bool plait_unicode_is_loose(const uint8_t *table, const char *text,
                            size_t size);

/* The code point at `p` of valid UTF-8, and *n: its size in bytes. */
static inline uint32_t plait_utf8_decode(const unsigned char *p, size_t *n)
{
    uint32_t c = p[0];

    if (c < 0x80) {
        *n = 1;
        return c;
    }
    if (c < 0xe0) {
        *n = 2;
        return (c & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if (c < 0xf0) {
        *n = 3;
        return (c & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *n = 4;
    return (c & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
           (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* The code point that ends right before `end`, of valid UTF-8; `start` is
 * where the text begins. */
static inline uint32_t plait_utf8_before(const unsigned char *start,
                                         const unsigned char *end)
{
    size_t n;

    do
        end--;
    while (end > start && (*end & 0xc0) == 0x80);
    return plait_utf8_decode(end, &n);
}

#endif
