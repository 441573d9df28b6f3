/* SPDX-License-Identifier: Apache-2.0 */
/* The alphabet in which byte-level BPE writes bytes as letters. */
#include "runtime/data/tokenizer/byte_letters.h"

#include <string.h>

#include "runtime/data/tokenizer/unicode.h"

/* The byte that a letter stands for in GPT-2's alphabet: printable bytes are
 * themselves, the others follow in order from U+0100 on. -1: none. */
static int letter_byte(uint32_t letter)
{
    int next = 0x100;

    if (letter < 0x100)
        return (letter >= '!' && letter <= '~') ||
                       (letter >= 0xa1 && letter != 0xad)
                   ? (int)letter
                   : -1;
    for (int byte = 0; byte < 256; byte++)
        if (letter_byte((uint32_t)byte) < 0 && (int)letter == next++)
            return byte;
    return -1;
}

void plait_byte_letters_list(int16_t bytes[PLAIT_BYTE_LETTERS])
{
    for (uint32_t i = 0; i < PLAIT_BYTE_LETTERS; i++)
        bytes[i] = (int16_t)letter_byte(i);
}

void plait_byte_letters_spell(const int16_t *bytes, const char *token,
                              char *out, size_t *size)
{
    const unsigned char *p = (const unsigned char *)token;
    size_t n, made = 0;

    for (const unsigned char *end = p + *size; p < end; p += n) {
        uint32_t letter = plait_utf8_decode(p, &n);

        if (letter >= PLAIT_BYTE_LETTERS || bytes[letter] < 0) {
            memcpy(out, token, *size);
            return;
        }
        out[made++] = (char)bytes[letter];
    }
    *size = made;
}
