/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_FUZZ_FUZZ_LINES_H
#define PLAIT_TESTS_FUZZ_FUZZ_LINES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* An input of NAME=VALUE lines, used as an environment or a command line. */
struct fuzz_lines {
    char *text; /* owned */
    int n;
    struct {
        char *name, *value;
    } line[64];
};

static inline void fuzz_lines_create(struct fuzz_lines *lines,
                                     const uint8_t *data, size_t size)
{
    char *p, *end, *equals;

    lines->n = 0;
    lines->text = malloc(size + 1);
    if (!lines->text)
        abort();
    memcpy(lines->text, data, size);
    lines->text[size] = '\0';
    for (p = lines->text; *p && lines->n < 64; p = end) {
        end = p + strcspn(p, "\n");
        if (*end)
            *end++ = '\0';
        equals = strchr(p, '=');
        if (!equals)
            continue;
        *equals = '\0';
        lines->line[lines->n].name = p;
        lines->line[lines->n++].value = equals + 1;
    }
}

static inline void fuzz_lines_destroy(struct fuzz_lines *lines)
{
    free(lines->text);
}

/* NULL: no such line. Can be passed to plait_launch_decode(). */
static inline const char *fuzz_lines_get(void *arg, const char *name)
{
    const struct fuzz_lines *lines = arg;
    int i;

    for (i = 0; i < lines->n; i++)
        if (strcmp(lines->line[i].name, name) == 0)
            return lines->line[i].value;
    return NULL;
}

static inline int fuzz_lines_number(const struct fuzz_lines *lines,
                                    const char *name)
{
    const char *value = fuzz_lines_get((void *)lines, name);

    return value ? atoi(value) : 0;
}

#endif
