/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/generate/text_out.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/unicode.h"

/* As many tokens of whole characters may be forgotten, all but the last. */
#define ENOUGH 16

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes that are no character yet are decoded as U+FFFD by some tokenizers. */
static bool is_half(const char *text, size_t size)
{
    return size >= 3 && !memcmp(text + size - 3, REPLACEMENT, 3);
}

/* Writes the text but, unless it is all, the beginning of a character at its
 * end; returns how many bytes of it are done. */
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

/* Writes what the pending tokens are beyond what is printed. *size: of all
 * that they are. */
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

/* All is printed: the last token is enough for the next one to stand on. */
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
    if (token == plait_tokenizer_end(t->tokenizer))
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
