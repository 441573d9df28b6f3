/* SPDX-License-Identifier: Apache-2.0 */
/* A line of JSON with the numbers that the standard leaves out. */
#include "config.h"

#include "runtime/data/prep/json_line.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static size_t count_digits(const char *text, size_t size)
{
    size_t n = 0;

    while (n < size && isdigit((unsigned char)text[n]))
        n++;
    return n;
}

/* The size of the number, NaN or infinity that the text begins with; 0: it
 * begins with none. */
static size_t number_size(const char *text, size_t size)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    size_t n = size > 0 && text[0] == '-', digits;

    for (int i = 0; i < 3; i++)
        if (size >= strlen(words[i]) &&
            !memcmp(text, words[i], strlen(words[i])))
            return strlen(words[i]);
    digits = count_digits(text + n, size - n);
    if (digits == 0 || (digits > 1 && text[n] == '0'))
        return 0;
    n += digits;
    if (n < size && text[n] == '.' &&
        (digits = count_digits(text + n + 1, size - n - 1)))
        n += 1 + digits;
    if (n < size && (text[n] == 'e' || text[n] == 'E')) {
        size_t sign = n + 1 < size && strchr("+-", text[n + 1]) && text[n + 1];

        digits = count_digits(text + n + 1 + sign, size - n - 1 - sign);
        n += digits ? 1 + sign + digits : 0;
    }
    return n;
}

/* Whether a number goes on with it, or a word does. */
static bool is_joined(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("+-._", c));
}

/* Put 0 in the place of every number outside of strings. What is joined to one,
 * as in 1NaN or --1, stays, and is no JSON. */
static void flatten_numbers(char *text, size_t size)
{
    bool quoted = false, apart = true;
    size_t n;

    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && apart &&
                 (n = number_size(text + i, size - i)) > 0 &&
                 (i + n == size || !is_joined(text[i + n]))) {
            text[i] = '0';
            memset(text + i + 1, ' ', n - 1);
            i += n - 1;
            continue; /* what follows is apart from it */
        }
        apart = i < size && !is_joined(text[i]);
    }
}

json_t *plait_json_line_parse(const char *line, size_t size,
                              struct plait_error *err)
{
    size_t flags = JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    json_error_t wrong, again;
    json_t *root = json_loadb(line, size, flags, &wrong);
    char *copy;

    if (root)
        return root;
    copy = malloc(size + 1);
    if (!copy) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    memcpy(copy, line, size);
    flatten_numbers(copy, size);
    root = json_loadb(copy, size, flags, &again);
    free(copy);
    errno = EINVAL;
    if (!root)
        plait_errorf(err, "not JSON: %.120s", wrong.text);
    return root;
}
