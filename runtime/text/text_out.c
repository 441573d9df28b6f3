/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/text/text_out.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/unicode.h"

/* Once this many tokens make whole characters, all but the last are dropped. */
#define ENOUGH 16

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Whether the text ends with U+FFFD, as which some tokenizers decode an
 * incomplete character. */
static bool is_half(const char *text, size_t size)
{
    return size >= 3 && !memcmp(text + size - 3, REPLACEMENT, 3);
}

/* Writes the text without an incomplete character at its end, unless `all`;
 * returns how many bytes were handled. */
static size_t write_characters(const char *text, size_t size, bool all,
                               FILE *out)
{
    size_t at = 0, n;
    bool valid;

    while (at < size) {
        n = plait_utf8_next((const unsigned char *)text + at, size - at,
                            &valid);
        if (valid)
            fwrite(text + at, 1, n, out);
        else if (at + n == size && !all)
            break;
        else
            fputs(REPLACEMENT, out);
        at += n;
    }
    return at;
}

/* Writes the part of the pending tokens' text that is not printed yet. *size:
 * of their whole text. */
static int write_text(struct plait_text_out *t, bool all, FILE *out,
                      size_t *size, struct plait_error *err)
{
    char *text;

    if (plait_tokenizer_decode(t->tokenizer, t->pending, t->npending, &text,
                               size, err) < 0)
        return -1;
    if (*size > t->printed && (all || !is_half(text, *size)))
        t->printed +=
            write_characters(text + t->printed, *size - t->printed, all, out);
    free(text);
    return 0;
}

/* All is printed: keep only the last token, as context for the next one. */
static int shorten_pending(struct plait_text_out *t, struct plait_error *err)
{
    char *text;

    t->pending[0] = t->pending[t->npending - 1];
    t->npending = 1;
    if (plait_tokenizer_decode(t->tokenizer, t->pending, 1, &text, &t->printed,
                               err) < 0)
        return -1;
    free(text);
    return 0;
}

int plait_text_out_put(struct plait_text_out *t, int32_t token, FILE *out,
                       struct plait_error *err)
{
    bool full;
    size_t size;

    if (!t->tokenizer) {
        fprintf(out, " %d", token);
        return 0;
    }
    if (token == plait_tokenizer_usual_end(t->tokenizer))
        return plait_text_out_end(t, out, err);
    t->pending[t->npending++] = token;
    full = t->npending == PLAIT_TEXT_PENDING;
    if (write_text(t, full, out, &size, err) < 0)
        return -1;
    if (full || (t->npending >= ENOUGH && t->printed == size))
        return shorten_pending(t, err);
    return 0;
}

int plait_text_out_end(struct plait_text_out *t, FILE *out,
                       struct plait_error *err)
{
    size_t size;
    int rc = t->tokenizer ? write_text(t, true, out, &size, err) : 0;

    t->npending = 0;
    t->printed = 0;
    fputc('\n', out);
    return rc;
}
