/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a mapping of YAML into a struct, by a table of fields, and refuses what
 * the table does not allow. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/yaml_private.h"

/* Plain, unquoted text: what YAML would take for a number or a boolean. */
static const char *plain_text(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE ||
        node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return NULL;
    return (const char *)node->data.scalar.value;
}

static bool is_null(const yaml_node_t *node)
{
    const char *text = plain_text(node);

    return text && (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

/* "auto" in quotes counts too: JSON quotes every text. */
static bool says_auto(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE &&
           !strcmp((const char *)node->data.scalar.value, "auto");
}

/* What the file has instead, for errors. */
static const char *describe(const yaml_node_t *node, char *buf, size_t size)
{
    if (node->type == YAML_MAPPING_NODE)
        return "a mapping";
    if (node->type == YAML_SEQUENCE_NODE) {
        snprintf(buf, size, "a list of %d", plait_yaml_count(node));
        return buf;
    }
    if (is_null(node))
        return "nothing";
    snprintf(buf, size,
             plain_text(node) ? "'%.60s'" : "the quoted text '%.60s'",
             plait_yaml_text(node));
    return buf;
}

int plait_yaml_refuse(const struct plait_yaml *yaml, const yaml_node_t *node,
                      const struct plait_yaml_field *field,
                      struct plait_error *err, const char *kind)
{
    char buf[96], range[64] = "";

    if (field->type != PLAIT_YAML_UINT64 && field->min < field->max)
        snprintf(range, sizeof(range), " from %.15g to %.15g", field->min,
                 field->max);
    return plait_yaml_errorf(yaml, node, err, "%s must be %s%s, not %s",
                             field->name, kind, range,
                             describe(node, buf, sizeof(buf)));
}

bool plait_yaml_takes_auto(const struct plait_yaml_field *field)
{
    return field->type == PLAIT_YAML_SIZE ||
           (field->type == PLAIT_YAML_INT64 && field->count != 0);
}

static int read_integer(struct plait_yaml *yaml, const yaml_node_t *node,
                        const struct plait_yaml_field *field, void *out,
                        struct plait_error *err)
{
    const char *text = plain_text(node);
    bool is_unsigned = field->type == PLAIT_YAML_UINT64;
    bool is_auto = plait_yaml_takes_auto(field);
    const char *kind =
        is_auto ? "\"auto\" or a whole number" : "a whole number";
    unsigned long long u = 0;
    long long i = 0;
    char *end;

    if (is_auto && says_auto(node)) {
        if (field->type == PLAIT_YAML_INT64)
            *(int64_t *)out = field->count;
        else
            *(int *)out = field->count;
        return 0;
    }
    if (!text || !*text || strspn(text, "+-0123456789") != strlen(text) ||
        (is_unsigned && *text == '-'))
        return plait_yaml_refuse(yaml, node, field, err, kind);
    errno = 0;
    if (is_unsigned)
        u = strtoull(text, &end, 10);
    else
        i = strtoll(text, &end, 10);
    if (errno || *end || end == text ||
        (!is_unsigned && !((double)i >= field->min && (double)i <= field->max)))
        return plait_yaml_refuse(yaml, node, field, err, kind);
    if (is_unsigned)
        *(uint64_t *)out = u;
    else if (field->type == PLAIT_YAML_INT64)
        *(int64_t *)out = i;
    else
        *(int *)out = (int)i;
    return 0;
}

static int read_real(struct plait_yaml *yaml, const yaml_node_t *node,
                     const struct plait_yaml_field *field, double *out,
                     struct plait_error *err)
{
    const char *text = plain_text(node);
    double value;
    char *end;

    if (!text || !*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return plait_yaml_refuse(yaml, node, field, err, "a number");
    value = strtod(text, &end);
    if (*end || end == text || !isfinite(value) ||
        !(value >= field->min && value <= field->max))
        return plait_yaml_refuse(yaml, node, field, err, "a number");
    *out = value;
    return 0;
}

static int read_reals(struct plait_yaml *yaml, const yaml_node_t *node,
                      const struct plait_yaml_field *field, double *out,
                      struct plait_error *err)
{
    char kind[48];

    if (node->type != YAML_SEQUENCE_NODE ||
        plait_yaml_count(node) != field->count) {
        snprintf(kind, sizeof(kind), "a list of %d numbers", field->count);
        return plait_yaml_refuse(yaml, node, field, err, kind);
    }
    for (int i = 0; i < field->count; i++)
        if (read_real(yaml, plait_yaml_item(yaml, node, i), field, out + i,
                      err) < 0)
            return -1;
    return 0;
}

static int read_series(struct plait_yaml *yaml, const yaml_node_t *node,
                       const struct plait_yaml_field *field,
                       struct plait_reals *series, struct plait_error *err)
{
    struct plait_reals read = {0};
    char kind[48];

    snprintf(kind, sizeof(kind), "a list of at most %d numbers",
             PLAIT_REALS_MOST);
    if (node->type != YAML_SEQUENCE_NODE ||
        plait_yaml_count(node) > PLAIT_REALS_MOST)
        return plait_yaml_refuse(yaml, node, field, err, kind);
    read.n = plait_yaml_count(node);
    for (int i = 0; i < read.n; i++)
        if (read_real(yaml, plait_yaml_item(yaml, node, i), field, read.at + i,
                      err) < 0)
            return -1;
    *series = read;
    return 0;
}

/* One whole number of a list, or one pair. */
static int read_entry(struct plait_yaml *yaml, yaml_node_t *node,
                      const struct plait_yaml_field *field, int64_t *out,
                      struct plait_error *err)
{
    struct plait_yaml_field each = *field;

    each.type = PLAIT_YAML_INT64;
    if (field->type == PLAIT_YAML_NUMBERS)
        return read_integer(yaml, node, &each, out, err);
    if (node->type != YAML_SEQUENCE_NODE || plait_yaml_count(node) != 2)
        return plait_yaml_refuse(yaml, node, field, err,
                                 "a list of pairs of whole numbers");
    for (int i = 0; i < 2; i++)
        if (read_integer(yaml, plait_yaml_item(yaml, node, i), &each, out + i,
                         err) < 0)
            return -1;
    return 0;
}

static int read_numbers(struct plait_yaml *yaml, yaml_node_t *node,
                        const struct plait_yaml_field *field,
                        struct plait_numbers *numbers, struct plait_error *err)
{
    bool pairs = field->type == PLAIT_YAML_PAIRS;
    struct plait_numbers read = {0};
    int width = pairs ? 2 : 1;

    read.is_auto = pairs && says_auto(node);
    if (!read.is_auto && node->type != YAML_SEQUENCE_NODE)
        return plait_yaml_refuse(yaml, node, field, err,
                                 pairs ? "\"auto\" or a list of pairs of whole "
                                         "numbers"
                                       : "a list of whole numbers");
    read.n = read.is_auto ? 0 : plait_yaml_count(node);
    read.at = calloc((size_t)read.n * width + 1, sizeof(*read.at));
    if (!read.at)
        return plait_yaml_errorf(yaml, node, err, "out of memory");
    for (int i = 0; i < read.n; i++) {
        if (read_entry(yaml, plait_yaml_item(yaml, node, i), field,
                       read.at + i * width, err) < 0) {
            free(read.at);
            return -1;
        }
    }
    free(numbers->at);
    *numbers = read;
    return 0;
}

static int read_bool(struct plait_yaml *yaml, const yaml_node_t *node,
                     const struct plait_yaml_field *field, bool *out,
                     struct plait_error *err)
{
    const char *text = plain_text(node);

    if (text && !strcmp(text, "true"))
        *out = true;
    else if (text && !strcmp(text, "false"))
        *out = false;
    else
        return plait_yaml_refuse(yaml, node, field, err, "true or false");
    return 0;
}

static int read_choice(struct plait_yaml *yaml, const yaml_node_t *node,
                       const struct plait_yaml_field *field, int *out,
                       struct plait_error *err)
{
    const char *text = plait_yaml_text(node);
    char names[160];

    for (int i = 0; text && i < field->count; i++) {
        if (!strcmp(text, field->choices[i])) {
            *out = i;
            return 0;
        }
    }
    plait_yaml_list_names(field->choices, field->count, " or ", names,
                          sizeof(names));
    return plait_yaml_refuse(yaml, node, field, err, names);
}

static int read_text(struct plait_yaml *yaml, const yaml_node_t *node,
                     const struct plait_yaml_field *field, char **out,
                     struct plait_error *err)
{
    const char *text = plait_yaml_text(node);
    char *copy = NULL;

    if (!text || strlen(text) != node->data.scalar.length)
        return plait_yaml_refuse(yaml, node, field, err, "a text");
    if (!is_null(node) && !(copy = strdup(text)))
        return plait_yaml_errorf(yaml, node, err, "out of memory");
    free(*out);
    *out = copy;
    return 0;
}

/* Names appear in metrics files and on the terminal, so few characters are
 * allowed. */
static bool is_name(const char *text)
{
    size_t n = strlen(text);

    return n > 0 && n <= 40 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789_.-") == n;
}

/* An entry of a mapping. */
static int read_part(struct plait_yaml *yaml, yaml_node_t *key,
                     yaml_node_t *value, const struct plait_yaml_field *field,
                     struct plait_part *part, struct plait_error *err)
{
    bool weights = field->type == PLAIT_YAML_WEIGHTS;
    const char *text = plait_yaml_text(key);
    struct plait_yaml_field each = *field;
    char what[96];

    if (!text || !*text || is_null(key) ||
        strlen(text) != key->data.scalar.length)
        return plait_yaml_errorf(yaml, key, err, "a key of %s must be %s",
                                 field->name, weights ? "a path" : "a name");
    if (!weights && !is_name(text))
        return plait_yaml_errorf(yaml, key, err,
                                 "%s: the name '%.60s' must be one to 40 "
                                 "letters, digits, '_', '-' and '.'",
                                 field->name, text);
    snprintf(what, sizeof(what), "%s of '%.60s'",
             weights ? "the weight" : "the path", text);
    each.name = what;
    if (weights)
        return read_text(yaml, key, field, &part->path, err) < 0 ||
                       read_real(yaml, value, &each, &part->weight, err) < 0
                   ? -1
                   : 0;
    if (is_null(value))
        return plait_yaml_refuse(yaml, value, &each, err, "a text");
    return read_text(yaml, key, field, &part->name, err) < 0 ||
                   read_text(yaml, value, &each, &part->path, err) < 0
               ? -1
               : 0;
}

static int fill_parts(struct plait_yaml *yaml, yaml_node_t *node,
                      const struct plait_yaml_field *field,
                      struct plait_parts *parts, struct plait_error *err)
{
    struct plait_yaml_field text = *field;
    yaml_node_t *key, *value;

    if (node->type != YAML_MAPPING_NODE) {
        text.min = text.max = 0;
        parts->n = 1;
        parts->at[0].weight = 1;
        return read_text(yaml, node, &text, &parts->at[0].path, err);
    }
    parts->n = plait_yaml_count(node);
    for (int i = 0; i < parts->n; i++) {
        value = plait_yaml_pair(yaml, node, i, &key);
        parts->at[i].weight = 1;
        if (plait_yaml_text(key) &&
            plait_yaml_get(yaml, node, plait_yaml_text(key)) != value)
            return plait_yaml_errorf(yaml, key, err, "%s: %.60s is given twice",
                                     field->name, plait_yaml_text(key));
        if (read_part(yaml, key, value, field, &parts->at[i], err) < 0)
            return -1;
    }
    return 0;
}

static int read_parts(struct plait_yaml *yaml, yaml_node_t *node,
                      const struct plait_yaml_field *field,
                      struct plait_parts *parts, struct plait_error *err)
{
    bool weights = field->type == PLAIT_YAML_WEIGHTS;
    struct plait_yaml_field text = *field;
    struct plait_parts read = {0};
    int n = node->type == YAML_MAPPING_NODE ? plait_yaml_count(node) : 1;

    text.min = text.max = 0; /* min and max are those of the weights */
    if (node->type == YAML_SEQUENCE_NODE || n == 0)
        return plait_yaml_refuse(
            yaml, node, &text, err,
            weights ? "a path, or a mapping of paths to weights"
                    : "a path, or a mapping of names to paths");
    if (!is_null(node)) {
        read.at = calloc((size_t)n, sizeof(*read.at));
        if (!read.at)
            return plait_yaml_errorf(yaml, node, err, "out of memory");
        if (fill_parts(yaml, node, field, &read, err) < 0) {
            plait_parts_clear(&read);
            return -1;
        }
    }
    plait_parts_clear(parts);
    *parts = read;
    return 0;
}

static int read_list(struct plait_yaml *yaml, yaml_node_t *node,
                     const struct plait_yaml_field *field,
                     struct plait_yaml_list *list, struct plait_error *err)
{
    char *items = list->items;

    if (is_null(node))
        return 0;
    if (node->type != YAML_SEQUENCE_NODE ||
        plait_yaml_count(node) > (int)field->max)
        return plait_yaml_errorf(yaml, node, err,
                                 "%s must be a list of at most %d entries",
                                 field->name, (int)field->max);
    for (int i = 0; i < plait_yaml_count(node); i++) {
        list->n = i + 1; /* from now on the caller frees its texts */
        if (plait_yaml_read(yaml, plait_yaml_item(yaml, node, i), field->name,
                            field->fields, field->count,
                            items + (size_t)i * field->stride, err) < 0)
            return -1;
    }
    return 0;
}

static int read_field(struct plait_yaml *yaml, yaml_node_t *node,
                      const struct plait_yaml_field *field, void *out,
                      struct plait_error *err)
{
    switch (field->type) {
    case PLAIT_YAML_INT:
    case PLAIT_YAML_SIZE:
    case PLAIT_YAML_INT64:
    case PLAIT_YAML_UINT64:
        return read_integer(yaml, node, field, out, err);
    case PLAIT_YAML_REAL:
        return read_real(yaml, node, field, out, err);
    case PLAIT_YAML_REALS:
        return read_reals(yaml, node, field, out, err);
    case PLAIT_YAML_SERIES:
        return read_series(yaml, node, field, out, err);
    case PLAIT_YAML_NUMBERS:
    case PLAIT_YAML_PAIRS:
        return read_numbers(yaml, node, field, out, err);
    case PLAIT_YAML_RUNS:
        return plait_yaml_read_runs(yaml, node, field, out, err);
    case PLAIT_YAML_BOOL:
        return read_bool(yaml, node, field, out, err);
    case PLAIT_YAML_TEXT:
        return read_text(yaml, node, field, out, err);
    case PLAIT_YAML_CHOICE:
        return read_choice(yaml, node, field, out, err);
    case PLAIT_YAML_MAP:
        return plait_yaml_read(yaml, node, field->name, field->fields,
                               field->count, out, err);
    case PLAIT_YAML_WEIGHTS:
    case PLAIT_YAML_NAMED:
        return read_parts(yaml, node, field, out, err);
    case PLAIT_YAML_LIST:
        return read_list(yaml, node, field, out, err);
    }
    return -1;
}

int plait_yaml_read(struct plait_yaml *yaml, yaml_node_t *mapping,
                    const char *what, const struct plait_yaml_field *fields,
                    int nfields, void *out, struct plait_error *err)
{
    yaml_node_t *key, *value;
    const char *text;
    char buf[96];
    int f;

    if (!*what)
        plait_yaml_set_sections(yaml, fields, nfields);
    if (!mapping || is_null(mapping))
        return 0;
    if (mapping->type != YAML_MAPPING_NODE)
        return plait_yaml_errorf(
            yaml, mapping, err,
            "%s must be a mapping of keys to values, not %s",
            *what ? what : "the document", describe(mapping, buf, sizeof(buf)));
    for (int i = 0; i < plait_yaml_count(mapping); i++) {
        value = plait_yaml_pair(yaml, mapping, i, &key);
        text = plait_yaml_text(key);
        if (!text)
            return plait_yaml_errorf(yaml, key, err,
                                     "a key must be a plain word");
        for (f = 0; f < nfields && strcmp(text, fields[f].name) != 0; f++)
            ;
        if (f == nfields)
            return plait_yaml_unknown(yaml, key, what, fields, nfields, err);
        if (plait_yaml_get(yaml, mapping, text) != value)
            return plait_yaml_errorf(yaml, key, err, "%s is given twice", text);
        if (read_field(yaml, value, &fields[f], (char *)out + fields[f].offset,
                       err) < 0)
            return -1;
    }
    return 0;
}
