/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void plait_text_add(struct plait_text *text, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text->at + text->used, text->size - text->used, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < text->size - text->used)
        text->used += (size_t)n;
    else
        text->at[text->used] = '\0';
}

/* The length of the UTF-8 character at `at`, which a NUL may cut short, and
 * the character. Bytes that are not UTF-8 (also longer forms than needed and
 * surrogates) have length 1 and are U+FFFD. */
static size_t read_character(const unsigned char *at, uint32_t *character)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = at[0] < 0x80   ? 1
                    : at[0] < 0xc2 ? 0
                    : at[0] < 0xe0 ? 2
                    : at[0] < 0xf0 ? 3
                    : at[0] < 0xf5 ? 4
                                   : 0;
    uint32_t c = length > 1 ? at[0] & (0x7fu >> length) : at[0];

    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            length = 0;
        else
            c = c << 6 | (at[i] & 0x3fu);
    }
    if (length == 0 || c < least[length] || c > 0x10ffff ||
        (c >= 0xd800 && c < 0xe000)) {
        *character = 0xfffd;
        return 1;
    }
    *character = c;
    return length;
}

/* A terminal, a log or a page might obey it: C0, DEL and C1; ends of lines and
 * paragraphs; what changes the direction in which text is shown. */
static bool is_command(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e ||
           c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* Whether the next character, of that length, may stay. */
static bool is_text(const char *text, size_t *length)
{
    uint32_t c;

    *length = read_character((const unsigned char *)text, &c);
    return !is_command(c) && (*length > 1 || c < 0x80);
}

bool plait_text_is_clean(const char *text)
{
    size_t length;

    while (*text && is_text(text, &length))
        text += length;
    return *text == '\0';
}

void plait_text_clean(char *text)
{
    char *to = text;
    size_t length;

    while (*text) {
        if (!is_text(text, &length)) {
            *to++ = '?';
            text += length;
        } else {
            while (length-- > 0)
                *to++ = *text++;
        }
    }
    *to = '\0';
}

const char *plait_text_quote(const char *word, char room[PLAIT_QUOTED_MAX])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-+=.,:/@%";
    struct plait_text text = {room, PLAIT_QUOTED_MAX, 0};
    size_t length = strlen(word), quotes = 0;

    for (const char *at = word; *at; at++)
        quotes += *at == '\'';
    if ((length > 0 && strspn(word, plain) == length) ||
        length + 3 * quotes + 3 > PLAIT_QUOTED_MAX)
        return word;
    plait_text_add(&text, "'");
    for (const char *at = word; *at; at++)
        plait_text_add(&text, *at == '\'' ? "'\\''" : "%c", *at);
    plait_text_add(&text, "'");
    return room;
}
