/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hostlist.h"

/* Host names in Slurm's notation: "n[1-3,7],login". Only a number at the end of
 * a name is folded, which is where clusters count. */

enum { DIGITS_MOST = 9, RANGE_TEXT = 2 * DIGITS_MOST + 3 };

/* Where the number at the end begins; the name's length, if there is none. */
static size_t find_number(const char *name)
{
    size_t length = strlen(name), at = length;

    while (at && isdigit((unsigned char)name[at - 1]))
        at--;
    return length - at > DIGITS_MOST ? length : at;
}

static bool same_stem(const char *a, const char *b)
{
    size_t n = find_number(a);

    return n == find_number(b) && strncmp(a, b, n) == 0;
}

/* By stem, then by number; "n1" before "n01". */
static int compare(const void *one, const void *other)
{
    const char *a = *(const char *const *)one, *b = *(const char *const *)other;
    long x, y;

    if (!same_stem(a, b))
        return strcmp(a, b);
    x = atol(a + find_number(a));
    y = atol(b + find_number(b));
    return x != y ? (x > y) - (x < y) : (int)strlen(a) - (int)strlen(b);
}

/* How many names from `at` on count up by one, written as the first is: with as
 * many digits, if it has leading zeros. */
static int count_run(char **names, int n, int at)
{
    const char *first = names[at] + find_number(names[at]);
    int width = (int)strlen(first), run = 1;
    char want[RANGE_TEXT];

    while (at + run < n && same_stem(names[at], names[at + run])) {
        const char *next = names[at + run] + find_number(names[at + run]);

        snprintf(want, sizeof(want), "%0*ld", width, atol(first) + run);
        if (strcmp(next, want) != 0)
            break;
        run++;
    }
    return run;
}

/* The names from `at` on that have its stem. */
static int fold_stem(FILE *out, char **names, int n, int at)
{
    size_t stem = find_number(names[at]);
    int count = 1, i = at;

    while (at + count < n && same_stem(names[at], names[at + count]))
        count++;
    if (at)
        fputc(',', out);
    fprintf(out, "%.*s", (int)stem, names[at]);
    if (count == 1 || !names[at][stem]) {
        fputs(names[at] + stem, out);
        return names[at][stem] ? count : 1;
    }
    while (i < at + count) {
        int run = count_run(names, at + count, i);

        fprintf(out, "%c%s", i == at ? '[' : ',', names[i] + stem);
        if (run > 1)
            fprintf(out, "-%s", names[i + run - 1] + stem);
        i += run;
    }
    fputc(']', out);
    return count;
}

char *plait_hostlist_fold(const char *const *names, int n)
{
    char **sorted = calloc((size_t)n + 1, sizeof(*sorted)), *text = NULL;
    size_t size = 0;
    FILE *out = sorted ? open_memstream(&text, &size) : NULL;
    int failed;

    if (!out) {
        free(sorted);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        sorted[i] = (char *)names[i];
    qsort(sorted, (size_t)n, sizeof(*sorted), compare);
    for (int i = 0; i < n;)
        i += fold_stem(out, sorted, n, i);
    failed = fclose(out) != 0;
    free(sorted);
    if (failed) {
        free(text);
        return NULL;
    }
    return text;
}
