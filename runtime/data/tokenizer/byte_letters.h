/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_BYTE_LETTERS_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_BYTE_LETTERS_H

#include <stddef.h>
#include <stdint.h>

/* More than any letter of the alphabet. */
enum { PLAIT_BYTE_LETTERS = 0x200 };

/* The byte that each letter stands for; -1: none. */
void plait_byte_letters_list(int16_t bytes[PLAIT_BYTE_LETTERS]);
/* Turn a token's letters into its bytes; the letters stay as they are if one of
 * them stands for no byte. *size: of both. */
void plait_byte_letters_spell(const int16_t *bytes, const char *token,
                              char *out, size_t *size);

#endif
