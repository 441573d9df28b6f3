/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/visible.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_entry(struct plait_visible *visible, const char *start,
                     size_t length, struct plait_error *err)
{
    if (visible->n == PLAIT_VISIBLE_MOST)
        return plait_errorf(err, "more than %d visible GPUs",
                            PLAIT_VISIBLE_MOST);
    if (length < 1 || length >= sizeof(visible->id[0]))
        return plait_errorf(err, "a visible GPU has a bad name: '%.*s'",
                            (int)(length > 60 ? 60 : length), start);
    for (int i = 0; i < visible->n; i++)
        if (strlen(visible->id[i]) == length &&
            strncmp(visible->id[i], start, length) == 0)
            return plait_errorf(err, "GPU %s is listed as visible twice",
                                visible->id[i]);
    memcpy(visible->id[visible->n], start, length);
    visible->id[visible->n++][length] = '\0';
    return 0;
}

int plait_visible_parse(const char *text, struct plait_visible *visible,
                        struct plait_error *err)
{
    struct plait_visible found = {0};

    errno = EINVAL;
    if (text && *text && strcmp(text, "NoDevFiles") != 0) {
        for (const char *p = text;; p++) {
            size_t length = strcspn(p, ",");

            if (add_entry(&found, p, length, err) < 0)
                return -1;
            p += length;
            if (!*p)
                break;
        }
    }
    *visible = found;
    return 0;
}

int plait_visible_format(const struct plait_visible *visible, const int *order,
                         char *buf, size_t size)
{
    size_t used = 0;

    if (size)
        buf[0] = '\0';
    for (int i = 0; i < visible->n; i++) {
        int n = snprintf(buf + used, size - used, "%s%s", i ? "," : "",
                         visible->id[order[i]]);

        if (n < 0 || (size_t)n >= size - used) {
            errno = ERANGE;
            return -1;
        }
        used += (size_t)n;
    }
    return 0;
}

/* A number up to 4095, or -1. */
static int parse_number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || value > 4095)
        return -1;
    return (int)value;
}

static int compare_numbers(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int plait_visible_match(const struct plait_visible *visible,
                        const struct plait_visible *step,
                        const struct plait_node *node, int *index)
{
    int numbers[PLAIT_VISIBLE_MOST], own[PLAIT_VISIBLE_MOST], same = 1;

    for (int i = 0; i < step->n; i++) {
        numbers[i] = parse_number(step->id[i]);
        if (numbers[i] < 0)
            return -1;
    }
    qsort(numbers, (size_t)step->n, sizeof(numbers[0]), compare_numbers);
    for (int i = 0; i < visible->n; i++) {
        own[i] = parse_number(visible->id[i]);
        if (own[i] < 0)
            return -1;
        same &= bsearch(&own[i], numbers, (size_t)step->n, sizeof(numbers[0]),
                        compare_numbers) != NULL;
    }
    for (int i = 0; i < visible->n; i++) {
        if (!same && own[i] >= step->n)
            return -1;
        index[i] = same ? own[i] : numbers[own[i]];
        if (index[i] >= node->ngpus)
            return -1;
        for (int k = 0; k < i; k++)
            if (index[k] == index[i])
                return -1; /* "1" and "01" are one GPU */
    }
    return 0;
}
