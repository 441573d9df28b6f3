/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/hostlist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"

#define NAMES_MOST 1048576
#define NAME_LONGEST 255
#define DIGITS_MOST 9

struct expansion {
    int (*add)(void *arg, const char *name);
    void *arg;
    struct plait_error *err;
    int count;
    char name[NAME_LONGEST + 1];
};

static int expand(struct expansion *x, size_t used, const char *p,
                  const char *end);

static int append(struct expansion *x, size_t used, const char *p, size_t n)
{
    if (used + n > NAME_LONGEST) {
        errno = EINVAL;
        return plait_errorf(x->err, "a name is longer than %d characters",
                            NAME_LONGEST);
    }
    memcpy(x->name + used, p, n);
    return 0;
}

/* Digits at *p, at most to `end`: their value and how many there were. */
static int read_number(const char **p, const char *end, int *value)
{
    int digits = 0;

    *value = 0;
    while (*p < end && **p >= '0' && **p <= '9' && digits <= DIGITS_MOST) {
        *value = digits < DIGITS_MOST ? *value * 10 + (**p - '0') : *value;
        digits++;
        (*p)++;
    }
    return digits > DIGITS_MOST ? 0 : digits;
}

/* Expand one "4" or "01-16" of a bracket, each value followed by the text
 * behind the bracket. */
static int expand_range(struct expansion *x, size_t used, const char *p,
                        const char *close, const char *end)
{
    const char *at = p;
    int low, high, width = read_number(&at, close, &low);

    high = low;
    if (width && at < close && *at == '-') {
        at++;
        if (!read_number(&at, close, &high))
            width = 0;
    }
    if (!width || at != close || high < low) {
        errno = EINVAL;
        return plait_errorf(x->err, "\"%.*s\" is not a range such as 1-4",
                            (int)(close - p), p);
    }
    for (int i = low; i <= high; i++) {
        char digits[16];
        int n = snprintf(digits, sizeof(digits), "%0*d", width, i);

        if (append(x, used, digits, (size_t)n) < 0 ||
            expand(x, used + (size_t)n, close + strcspn(close, "]") + 1, end) <
                0)
            return -1;
    }
    return 0;
}

static int expand_bracket(struct expansion *x, size_t used, const char *open,
                          const char *end)
{
    const char *close = memchr(open, ']', (size_t)(end - open));
    const char *p = open + 1;

    if (!close) {
        errno = EINVAL;
        return plait_errorf(x->err, "\"%.*s\" lacks a closing bracket",
                            (int)(end - open), open);
    }
    for (;;) {
        const char *comma = memchr(p, ',', (size_t)(close - p));

        if (expand_range(x, used, p, comma ? comma : close, end) < 0)
            return -1;
        if (!comma)
            return 0;
        p = comma + 1;
    }
}

/* The name so far is x->name[0 .. used); p .. end is still to be read. */
static int expand(struct expansion *x, size_t used, const char *p,
                  const char *end)
{
    const char *open = memchr(p, '[', (size_t)(end - p));
    size_t plain = (size_t)((open ? open : end) - p);

    if (memchr(p, ']', plain)) {
        errno = EINVAL;
        return plait_errorf(x->err, "\"%.*s\" lacks an opening bracket",
                            (int)plain, p);
    }
    if (append(x, used, p, plain) < 0)
        return -1;
    used += plain;
    if (open)
        return expand_bracket(x, used, open, end);
    if (used == 0) {
        errno = EINVAL;
        return plait_errorf(x->err, "an empty name");
    }
    if (x->count++ == NAMES_MOST) {
        errno = EINVAL;
        return plait_errorf(x->err, "more than %d names", NAMES_MOST);
    }
    x->name[used] = '\0';
    if (!plait_text_is_clean(x->name)) {
        errno = EINVAL;
        return plait_errorf(x->err, "%s: a name cannot have such characters",
                            x->name);
    }
    return x->add(x->arg, x->name);
}

int plait_hostlist_each(const char *text, size_t length,
                        int (*add)(void *arg, const char *name), void *arg,
                        struct plait_error *err)
{
    struct expansion x = {.add = add, .arg = arg, .err = err};
    const char *end = text + length, *start = text;
    int depth = 0;

    for (const char *p = text; p <= end; p++) {
        if (p < end && *p == '[')
            depth++;
        else if (p < end && *p == ']')
            depth--;
        if (p == end || (*p == ',' && depth <= 0)) {
            if (expand(&x, 0, start, p) < 0)
                return -1;
            start = p + 1;
        }
    }
    return 0;
}

struct array {
    char **names;
    int count, room;
    struct plait_error *err;
};

static int array_add(void *arg, const char *name)
{
    struct array *a = arg;

    if (a->count == a->room) {
        int room = a->room ? 2 * a->room : 64;
        char **names = realloc(a->names, (size_t)room * sizeof(*names));

        if (!names)
            return plait_errorf(a->err, "out of memory");
        a->names = names;
        a->room = room;
    }
    if (!(a->names[a->count] = strdup(name)))
        return plait_errorf(a->err, "out of memory");
    a->count++;
    return 0;
}

char **plait_hostlist_create(const char *text, int *count,
                             struct plait_error *err)
{
    struct array a = {.err = err};

    if (plait_hostlist_each(text, strlen(text), array_add, &a, err) < 0) {
        plait_hostlist_destroy(a.names, a.count);
        return NULL;
    }
    *count = a.count;
    return a.names;
}

void plait_hostlist_destroy(char **names, int count)
{
    int saved = errno;

    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    errno = saved;
}

int plait_hostlist_tasks(const char *text, int node)
{
    int tasks, times, n;

    for (; node >= 0; node -= times, text += *text == ',') {
        if (sscanf(text, "%7d%n", &tasks, &n) != 1 || tasks < 0)
            return -1;
        text += n;
        times = 1;
        n = 0;
        if (*text == '(' &&
            (sscanf(text, "(x%7d)%n", &times, &n) != 1 || !n || times < 1))
            return -1;
        text += n;
        if (*text && *text != ',')
            return -1;
        if (node < times)
            return tasks;
    }
    return -1;
}
