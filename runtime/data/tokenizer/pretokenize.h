/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The regular expressions that split a text into the pieces within which BPE
 * merges, scanned by hand: GPT-2's, Llama 3's, Qwen's. They differ in these
 * points. */
struct plait_pattern {
    bool any_case; /* contractions in any case ('S, 's); a word may begin with
                      any one character but a line break, a letter or a number,
                      else only with a blank; punctuation and white space
                      include the line breaks after them */
    int digits;    /* the most digits of a number in one piece; 0: any, with the
                      blank before them */
    bool marks;    /* \p{M} counts as a letter */
};

/* The pattern of a regular expression as tokenizer.json has it; false if it
 * is none of them. */
bool plait_pattern_find(const char *regex, struct plait_pattern *pattern);
/* The size of the first piece of a text. `text` is valid UTF-8, `size` > 0;
 * `table` as plait_unicode_create() makes it. */
size_t plait_pattern_next(const struct plait_pattern *pattern,
                          const uint8_t *table, const unsigned char *text,
                          size_t size);

#endif
