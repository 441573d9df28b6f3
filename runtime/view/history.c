/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/view/history.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "topology/base/files.h"

#define COLUMNS_MOST 1000

static struct plait_column *find_column(const struct plait_history *h,
                                        const char *name)
{
    for (size_t i = 0; i < h->ncolumns; i++)
        if (!strcmp(h->columns[i].name, name))
            return &h->columns[i];
    return NULL;
}

const double *plait_history_column(const struct plait_history *h,
                                   const char *name)
{
    struct plait_column *c = find_column(h, name);

    return c ? c->at : NULL;
}

static struct plait_column *add_column(struct plait_history *h,
                                       const char *name)
{
    struct plait_column *c;

    if (h->ncolumns == COLUMNS_MOST)
        return NULL;
    c = realloc(h->columns, (h->ncolumns + 1) * sizeof(*c));
    if (!c)
        return NULL;
    h->columns = c;
    c += h->ncolumns;
    c->name = strdup(name);
    c->at = malloc(h->room * sizeof(*c->at));
    if (!c->name || !c->at) {
        free(c->name);
        free(c->at);
        return NULL;
    }
    for (size_t i = 0; i < h->room; i++)
        c->at[i] = NAN;
    h->ncolumns++;
    return c;
}

static int add_row(struct plait_history *h)
{
    size_t room = h->room ? 2 * h->room : 1024;

    if (h->nsteps < h->room)
        return 0;
    for (size_t i = 0; i < h->ncolumns; i++) {
        double *at = realloc(h->columns[i].at, room * sizeof(*at));

        if (!at)
            return -1;
        h->columns[i].at = at;
        for (size_t j = h->room; j < room; j++)
            at[j] = NAN;
    }
    h->room = room;
    return 0;
}

/* Numbers are taken, and true as 1; anything else that a later version may add
 * is ignored. */
static int take_value(struct plait_history *h, const char *name, json_t *value)
{
    struct plait_column *c;

    if (!json_is_number(value) && !json_is_boolean(value))
        return 0;
    c = find_column(h, name);
    if (!c && !(c = add_column(h, name)))
        return -1;
    c->at[h->nsteps] =
        json_is_number(value) ? json_number_value(value) : json_is_true(value);
    return 0;
}

static int take_member(struct plait_history *h, const char *name, json_t *value)
{
    char text[128];
    const char *key;
    json_t *entry;
    size_t i;

    json_object_foreach(value, key, entry)
    {
        snprintf(text, sizeof(text), "%s.%s", name, key);
        if (take_value(h, text, entry) < 0)
            return -1;
    }
    json_array_foreach(value, i, entry)
    {
        snprintf(text, sizeof(text), "%s.%zu", name, i);
        if (take_value(h, text, entry) < 0)
            return -1;
    }
    return take_value(h, name, value);
}

static int take_line(struct plait_history *h, json_t *line,
                     struct plait_error *err)
{
    json_t *step = json_object_get(line, "step"), *value;
    const char *name;

    if (!json_is_integer(step))
        return plait_errorf(err,
                            "%s:%zu: no object with an integer \"step\": "
                            "not a line of plait-train's metrics",
                            h->path, h->nlines);
    if (h->nsteps && json_integer_value(step) <=
                         plait_history_column(h, "step")[h->nsteps - 1])
        return plait_errorf(err,
                            "%s:%zu: step %lld comes after step %.0f: "
                            "steps must rise",
                            h->path, h->nlines,
                            (long long)json_integer_value(step),
                            plait_history_column(h, "step")[h->nsteps - 1]);
    if (add_row(h) < 0 || take_member(h, "step", step) < 0)
        return plait_errorf(err, "%s: out of memory", h->path);
    json_object_foreach(line, name, value)
    {
        if (take_member(h, name, value) < 0)
            return plait_errorf(err, "%s: out of memory", h->path);
    }
    h->nsteps++;
    return 0;
}

static int parse_line(struct plait_history *h, const char *text, size_t size,
                      struct plait_error *err)
{
    json_error_t why;
    json_t *line = json_loadb(text, size, 0, &why);
    int rc;

    if (!line && h->nsteps > 0) {
        h->skipped++;
        return 0;
    }
    if (!line)
        return plait_errorf(err, "%s:%zu: not JSON: %s", h->path, h->nlines,
                            why.text);
    rc = take_line(h, line, err);
    json_decref(line);
    return rc;
}

static int read_lines(struct plait_history *h, FILE *f, struct plait_error *err)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t got;
    int rc = 0;

    while (rc == 0 && (got = getline(&line, &room, f)) > 0 &&
           line[got - 1] == '\n') {
        h->nlines++;
        h->offset += got;
        rc = parse_line(h, line, got, err);
    }
    if (rc == 0 && ferror(f))
        rc = plait_errorf(err, "%s: %s", h->path, strerror(errno));
    free(line);
    return rc;
}

/* Read PATH.starts, from the start again. Runs of older versions have none, and
 * a damaged one is read up to the damage, because the metrics are what
 * matters. */
static void read_starts(struct plait_history *h)
{
    json_t *start;
    char *path;
    FILE *f;

    json_array_clear(h->starts);
    if (asprintf(&path, "%s.starts", h->path) < 0)
        return;
    f = plait_files_open(path);
    free(path);
    while (f && (start = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)))
        json_array_append_new(h->starts, start);
    if (f)
        fclose(f);
}

static void forget(struct plait_history *h)
{
    for (size_t i = 0; i < h->ncolumns; i++) {
        free(h->columns[i].name);
        free(h->columns[i].at);
    }
    h->nsteps = h->room = h->ncolumns = h->nlines = h->skipped = 0;
    h->offset = 0;
}

int plait_history_update(struct plait_history *h, struct plait_error *err)
{
    FILE *f = fopen(h->path, "re");
    struct stat st;
    long before;
    int rc;

    if (!f || fstat(fileno(f), &st) < 0 ||
        (S_ISDIR(st.st_mode) && (errno = EISDIR))) {
        plait_errorf(err, "%s: %s", h->path, strerror(errno));
        if (f)
            fclose(f);
        return -1;
    }
    if (st.st_size < h->offset)
        forget(h);
    before = h->offset;
    if (fseek(f, before, SEEK_SET) < 0)
        rc = plait_errorf(err, "%s: %s", h->path, strerror(errno));
    else
        rc = read_lines(h, f, err);
    fclose(f);
    if (rc == 0 && h->offset > before) {
        read_starts(h);
        rc = 1;
    }
    return rc;
}

struct plait_history *plait_history_create(const char *path,
                                           struct plait_error *err)
{
    struct plait_history *h = calloc(1, sizeof(*h));

    if (!h || !(h->path = strdup(path)) || !(h->starts = json_array())) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    if (plait_history_update(h, err) < 0)
        goto error;
    return h;
error:
    plait_history_destroy(h);
    return NULL;
}

void plait_history_say_skipped(const struct plait_history *h,
                               const char *program)
{
    if (h->skipped > 0)
        fprintf(stderr, "%s: %s: %zu line%s skipped, as %s not whole\n",
                program, h->path, h->skipped,
                h->skipped == 1 ? " was" : "s were",
                h->skipped == 1 ? "it is" : "they are");
}

void plait_history_destroy(struct plait_history *h)
{
    int saved = errno;

    if (!h)
        return;
    forget(h);
    free(h->columns);
    free(h->path);
    json_decref(h->starts);
    free(h);
    errno = saved;
}
