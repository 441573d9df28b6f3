/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/prep/image_source.h"
#include "runtime/data/prep/unpack.h"

/* A row of numbers for each image, with commas, semicolons, tabs or spaces
 * between them. A first line with anything else in it is a header. */

#define FIRST_ROOM 65536
#define LONGEST_LINE (64 << 20) /* bytes, of some million pixels */

struct csv {
    struct plait_image_source source;
    enum plait_label_place labels;
    struct plait_unpack *file;
    char *text; /* what was read and not parsed yet */
    size_t at, end, room;
    bool over;    /* the end of the file was read */
    int64_t line; /* counted from 1 */
    int64_t index;
    size_t room_values;
};

static int wrong_line(const struct csv *c, struct plait_error *err)
{
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: line %lld: longer than %d MiB, so this is not a "
                        "CSV file of images",
                        c->source.path, (long long)c->line, LONGEST_LINE >> 20);
}

static int read_more(struct csv *c, struct plait_error *err)
{
    int64_t n;
    char *text;

    memmove(c->text, c->text + c->at, c->end - c->at);
    c->end -= c->at;
    c->at = 0;
    if (c->end + 1 >= c->room) {
        if (c->room > LONGEST_LINE)
            return wrong_line(c, err);
        text = realloc(c->text, 2 * c->room);
        if (!text)
            return plait_errorf(err, "%s: out of memory", c->source.path);
        c->text = text;
        c->room *= 2;
    }
    n = plait_unpack_read(c->file, c->text + c->end, c->room - 1 - c->end, err);
    if (n < 0)
        return -1;
    c->over = n == 0;
    c->end += (size_t)n;
    return 0;
}

/* The next line that is not blank, without its line break: 1; 0: there is
 * none. */
static int next_line(struct csv *c, char **line, struct plait_error *err)
{
    char *end;

    do {
        c->line++;
        while (!(end = memchr(c->text + c->at, '\n', c->end - c->at)) &&
               !c->over)
            if (read_more(c, err) < 0)
                return -1;
        if (!end && c->at == c->end)
            return 0;
        if (!end)
            end = c->text + c->end; /* there is room for a NUL */
        *end = '\0';
        *line = c->text + c->at;
        c->at = (size_t)(end - c->text) + (end < c->text + c->end);
        if (memchr(*line, '\0', (size_t)(end - *line)))
            return plait_errorf(err, "%s: line %lld: binary, not CSV",
                                c->source.path, (long long)c->line);
    } while (!(*line)[strspn(*line, " \t\r")]);
    return 1;
}

/* Parse the number at p, which one of " \t\r,;" or the end must follow. Numbers
 * of up to three digits, as bytes are, do not need strtof(). NULL if there is
 * none. */
static char *take_number(char *p, float *value)
{
    char *end = p;
    int whole = 0;

    while (end - p < 3 && *end >= '0' && *end <= '9')
        whole = 10 * whole + (*end++ - '0');
    *value = (float)whole;
    if (end == p || !strchr(" \t\r,;", *end))
        *value = strtof(p, &end);
    return end > p && strchr(" \t\r,;", *end) && isfinite(*value) ? end : NULL;
}

/* Skip the separator at p; a comma or semicolon means that another number must
 * follow. */
static char *skip_separator(char *p, bool *more)
{
    p += strspn(p, " \t\r");
    *more = *p;
    if (*p == ',' || *p == ';')
        p += 1 + strspn(p + 1, " \t\r");
    return p;
}

static int add_value(struct csv *c, size_t n, float value)
{
    float *more;

    if (n == c->room_values) {
        more = realloc(c->source.value, 2 * (n + 8) * sizeof(*more));
        if (!more)
            return -1;
        c->source.value = more;
        c->room_values = 2 * (n + 8);
    }
    c->source.value[n] = value;
    return 0;
}

/* Parse a line's numbers into source.value: how many; -1: out of memory; -2:
 * *wrong is no number. */
static int64_t parse_line(struct csv *c, char *line, char **wrong)
{
    char *p = line, *next;
    size_t n = 0;
    float value;
    bool more;

    p += strspn(p, " \t");
    do {
        next = take_number(p, &value);
        if (!next) {
            *wrong = p;
            return -2;
        }
        if (add_value(c, n++, value) < 0)
            return -1;
        p = skip_separator(next, &more);
    } while (more);
    return (int64_t)n;
}

static int no_number(const struct csv *c, char *wrong, struct plait_error *err)
{
    size_t n = strcspn(wrong, ",;\t ");

    if (n > 20)
        n = 20;
    for (size_t i = 0; i < n; i++)
        if (!isprint((unsigned char)wrong[i]))
            wrong[i] = '?';
    errno = EINVAL;
    return plait_errorf(err, "%s: line %lld: '%.*s' is not a number",
                        c->source.path, (long long)c->line, (int)n, wrong);
}

/* Take the label out of the row of n numbers. */
static int take_label(struct csv *c, int64_t n, struct plait_error *err)
{
    struct plait_image_source *s = &c->source;
    double label;

    if (c->labels == PLAIT_LABEL_NONE)
        return 0;
    label = s->value[c->labels == PLAIT_LABEL_FIRST ? 0 : n - 1];
    if (c->labels == PLAIT_LABEL_FIRST)
        memmove(s->value, s->value + 1, (size_t)(n - 1) * sizeof(*s->value));
    return plait_image_label(s, s->path, c->index, label, err);
}

static int next_image(struct plait_image_source *s, struct plait_error *err)
{
    struct csv *c = (struct csv *)s;
    char *line, *wrong = NULL;
    int rc = next_line(c, &line, err);
    int64_t n, width;

    if (rc <= 0)
        return rc;
    n = parse_line(c, line, &wrong);
    if (n == -2 && c->line == 1) { /* the header */
        rc = next_line(c, &line, err);
        if (rc <= 0)
            return rc;
        n = parse_line(c, line, &wrong);
    }
    if (n == -2)
        return no_number(c, wrong, err);
    if (n < 0)
        return plait_errorf(err, "%s: out of memory", s->path);
    width = n - (c->labels != PLAIT_LABEL_NONE);
    errno = EINVAL;
    if (width < 1 || (c->index > 0 && width != s->width))
        return plait_errorf(
            err,
            "%s: line %lld: %lld numbers in a row; the rows before have %lld",
            s->path, (long long)c->line, (long long)n,
            (long long)(n - width + (c->index > 0 ? s->width : 1)));
    s->width = width;
    if (take_label(c, n, err) < 0)
        return -1;
    c->index++;
    return 1;
}

static int rewind_file(struct plait_image_source *s, struct plait_error *err)
{
    struct csv *c = (struct csv *)s;

    plait_unpack_close(c->file);
    c->file = plait_unpack_open(s->path, err);
    c->at = c->end = 0;
    c->line = c->index = 0;
    c->over = false;
    return c->file ? 0 : -1;
}

static void destroy(struct plait_image_source *s)
{
    struct csv *c = (struct csv *)s;

    plait_unpack_close(c->file);
    free(c->text);
    free(s->value);
    free(s->path);
    free(c);
}

struct plait_image_source *plait_image_csv_create(const char *path,
                                                  enum plait_label_place labels,
                                                  struct plait_error *err)
{
    static const struct plait_image_reader reader = {next_image, rewind_file,
                                                     destroy};
    struct csv *c = calloc(1, sizeof(*c));

    if (!c) {
        plait_errorf(err, "%s: out of memory", path);
        return NULL;
    }
    c->source.reader = &reader;
    c->labels = labels;
    c->room = FIRST_ROOM;
    c->text = malloc(c->room);
    c->source.path = strdup(path);
    if (!c->text || !c->source.path) {
        plait_errorf(err, "%s: out of memory", path);
        goto error;
    }
    if (rewind_file(&c->source, err) == 0)
        return &c->source;
error:
    plait_image_source_destroy(&c->source);
    return NULL;
}
