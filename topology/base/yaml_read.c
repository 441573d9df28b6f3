/* SPDX-License-Identifier: Apache-2.0 */
#include "yaml.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No file that is read here comes near it; a device or a pipe might. */
#define MAX_FILE ((size_t)64 << 20)

struct plait_yaml {
    char *name;
    bool lines; /* errors name the line */
    bool loaded;
    yaml_document_t document;
};

void plait_yaml_destroy(struct plait_yaml *yaml)
{
    int saved = errno;

    if (!yaml)
        return;
    if (yaml->loaded)
        yaml_document_delete(&yaml->document);
    free(yaml->name);
    free(yaml);
    errno = saved;
}

/* One line stays one line, whatever the file holds. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

int plait_yaml_errorf(const struct plait_yaml *yaml, const yaml_node_t *node,
                      struct plait_error *err, const char *fmt, ...)
{
    char text[sizeof(err->text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    make_printable(text);
    errno = EINVAL;
    if (!yaml->lines || !node)
        return plait_errorf(err, "%s: %s", yaml->name, text);
    return plait_errorf(err, "%s:%zu: %s", yaml->name,
                        node->start_mark.line + 1, text);
}

static int parser_errorf(const struct plait_yaml *yaml, yaml_parser_t *parser,
                         struct plait_error *err)
{
    const char *problem = parser->problem ? parser->problem : "not YAML";

    errno = parser->error == YAML_MEMORY_ERROR ? ENOMEM : EINVAL;
    if (!yaml->lines)
        return plait_errorf(err, "%s: %s", yaml->name, problem);
    return plait_errorf(err, "%s:%zu: %s%s%s", yaml->name,
                        parser->problem_mark.line + 1, problem,
                        parser->context ? " " : "",
                        parser->context ? parser->context : "");
}

static int load(struct plait_yaml *yaml, const char *text, size_t size,
                struct plait_error *err)
{
    yaml_document_t second;
    yaml_parser_t parser;
    int ret = -1;

    if (!yaml_parser_initialize(&parser)) {
        errno = ENOMEM;
        return plait_errorf(err, "%s: out of memory", yaml->name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &yaml->document)) {
        parser_errorf(yaml, &parser, err);
        goto done;
    }
    yaml->loaded = true;
    if (!plait_yaml_root(yaml)) {
        ret = 0; /* the end of an empty stream */
        goto done;
    }
    if (!yaml_parser_load(&parser, &second)) {
        parser_errorf(yaml, &parser, err);
        goto done;
    }
    if (yaml_document_get_root_node(&second))
        plait_yaml_errorf(yaml, yaml_document_get_root_node(&second), err,
                          "a second document starts here; one is expected");
    else
        ret = 0;
    yaml_document_delete(&second);
done:
    yaml_parser_delete(&parser);
    return ret;
}

static struct plait_yaml *parse(const char *name, bool lines, const char *text,
                                size_t size, struct plait_error *err)
{
    struct plait_yaml *yaml = calloc(1, sizeof(*yaml));

    if (!yaml || !(yaml->name = strdup(name))) {
        plait_errorf(err, "%s: out of memory", name);
        goto error;
    }
    yaml->lines = lines;
    if (load(yaml, text, size, err) < 0)
        goto error;
    return yaml;
error:
    plait_yaml_destroy(yaml);
    return NULL;
}

struct plait_yaml *plait_yaml_parse(const char *name, const char *text,
                                    size_t size, struct plait_error *err)
{
    return parse(name, true, text, size, err);
}

static int read_file(FILE *file, char **text, size_t *size)
{
    size_t room = 1 << 16, used = 0;
    char *buf = malloc(room), *bigger;

    if (!buf)
        return -1;
    while ((used += fread(buf + used, 1, room - used, file)) == room) {
        if (room >= MAX_FILE) {
            errno = EFBIG;
            goto error;
        }
        bigger = realloc(buf, room * 2);
        if (!bigger)
            goto error;
        buf = bigger;
        room *= 2;
    }
    if (ferror(file))
        goto error;
    *text = buf;
    *size = used;
    return 0;
error:
    free(buf);
    return -1;
}

int plait_yaml_file(const char *path, char **text, size_t *size,
                    struct plait_error *err)
{
    FILE *file = fopen(path, "re");
    int ret;

    if (!file)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    ret = read_file(file, text, size);
    if (ret < 0)
        plait_errorf(err, "%s: %s", path, strerror(errno));
    fclose(file);
    return ret;
}

struct plait_yaml *plait_yaml_create(const char *path, struct plait_error *err)
{
    struct plait_yaml *yaml;
    char *text;
    size_t size;

    if (plait_yaml_file(path, &text, &size, err) < 0)
        return NULL;
    yaml = parse(path, true, text, size, err);
    free(text);
    return yaml;
}

/* "a.b=VALUE" -> "a:\n b:\n  VALUE", so that one reader serves both. */
static char *set_document(const char *text)
{
    const char *equals = strchr(text, '='), *p;
    char *out, *to;
    int depth = 0;

    if (!equals || equals == text || strpbrk(text, "\r\n"))
        return errno = EINVAL, NULL;
    for (p = text; p < equals; p++) {
        if (*p == '.')
            depth++;
        else if (!(*p >= 'a' && *p <= 'z') && *p != '_')
            return errno = EINVAL, NULL;
    }
    to = out = malloc(strlen(text) + (size_t)(depth + 3) * (depth + 3));
    if (!out)
        return NULL;
    depth = 0;
    for (p = text; p <= equals; p++) {
        if (*p == '.' || *p == '=')
            to += sprintf(to, ":\n%*s", ++depth, "");
        else
            *to++ = *p;
    }
    strcpy(to, equals + 1);
    return out;
}

struct plait_yaml *plait_yaml_parse_set(const char *option, const char *text,
                                        struct plait_error *err)
{
    struct plait_yaml *yaml = NULL;
    char name[160], *document = set_document(text);

    snprintf(name, sizeof(name), "%s %s", option, text);
    make_printable(name);
    if (!document) {
        plait_errorf(err, "%s: %s", name,
                     errno == ENOMEM ? "out of memory"
                                     : "write SECTION.KEY=VALUE");
        return NULL;
    }
    yaml = parse(name, false, document, strlen(document), err);
    free(document);
    return yaml;
}

yaml_node_t *plait_yaml_root(struct plait_yaml *yaml)
{
    return yaml_document_get_root_node(&yaml->document);
}

int plait_yaml_count(const yaml_node_t *node)
{
    if (node && node->type == YAML_MAPPING_NODE)
        return (int)(node->data.mapping.pairs.top -
                     node->data.mapping.pairs.start);
    if (node && node->type == YAML_SEQUENCE_NODE)
        return (int)(node->data.sequence.items.top -
                     node->data.sequence.items.start);
    return 0;
}

yaml_node_t *plait_yaml_item(struct plait_yaml *yaml,
                             const yaml_node_t *sequence, int index)
{
    return yaml_document_get_node(&yaml->document,
                                  sequence->data.sequence.items.start[index]);
}

yaml_node_t *plait_yaml_pair(struct plait_yaml *yaml,
                             const yaml_node_t *mapping, int index,
                             yaml_node_t **key)
{
    const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start + index;

    *key = yaml_document_get_node(&yaml->document, pair->key);
    return yaml_document_get_node(&yaml->document, pair->value);
}

yaml_node_t *plait_yaml_get(struct plait_yaml *yaml, const yaml_node_t *mapping,
                            const char *key)
{
    yaml_node_t *k, *value;
    int i, n;

    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    n = plait_yaml_count(mapping);
    for (i = 0; i < n; i++) {
        value = plait_yaml_pair(yaml, mapping, i, &k);
        if (plait_yaml_text(k) && !strcmp(plait_yaml_text(k), key))
            return value;
    }
    return NULL;
}

const char *plait_yaml_text(const yaml_node_t *node)
{
    if (!node || node->type != YAML_SCALAR_NODE)
        return NULL;
    return (const char *)node->data.scalar.value;
}

/* Plain, unquoted text: what YAML would take for a number or a boolean. */
static const char *plain(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE ||
        node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return NULL;
    return (const char *)node->data.scalar.value;
}

static bool is_null(const yaml_node_t *node)
{
    const char *text = plain(node);

    return text && (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
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
    snprintf(buf, size, plain(node) ? "'%.60s'" : "the quoted text '%.60s'",
             plait_yaml_text(node));
    return buf;
}

static int wrong(const struct plait_yaml *yaml, const yaml_node_t *node,
                 const struct plait_yaml_field *field, struct plait_error *err,
                 const char *kind)
{
    char buf[96], range[64] = "";

    if (field->type != PLAIT_YAML_UINT64 && field->min < field->max)
        snprintf(range, sizeof(range), " from %.15g to %.15g", field->min,
                 field->max);
    return plait_yaml_errorf(yaml, node, err, "%s is %s%s, not %s", field->name,
                             kind, range, describe(node, buf, sizeof(buf)));
}

static int read_integer(struct plait_yaml *yaml, const yaml_node_t *node,
                        const struct plait_yaml_field *field, void *out,
                        struct plait_error *err)
{
    const char *text = plain(node);
    bool is_unsigned = field->type == PLAIT_YAML_UINT64;
    bool is_auto = field->type == PLAIT_YAML_SIZE;
    const char *kind =
        is_auto ? "\"auto\" or a whole number" : "a whole number";
    unsigned long long u = 0;
    long long i = 0;
    char *end;

    if (is_auto && text && !strcmp(text, "auto")) {
        *(int *)out = 0;
        return 0;
    }
    if (!text || !*text || strspn(text, "+-0123456789") != strlen(text) ||
        (is_unsigned && *text == '-'))
        return wrong(yaml, node, field, err, kind);
    errno = 0;
    if (is_unsigned)
        u = strtoull(text, &end, 10);
    else
        i = strtoll(text, &end, 10);
    if (errno || *end || end == text ||
        (!is_unsigned && !((double)i >= field->min && (double)i <= field->max)))
        return wrong(yaml, node, field, err, kind);
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
    const char *text = plain(node);
    double value;
    char *end;

    if (!text || !*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return wrong(yaml, node, field, err, "a number");
    value = strtod(text, &end);
    if (*end || end == text || !isfinite(value) ||
        !(value >= field->min && value <= field->max))
        return wrong(yaml, node, field, err, "a number");
    *out = value;
    return 0;
}

static int read_reals(struct plait_yaml *yaml, const yaml_node_t *node,
                      const struct plait_yaml_field *field, double *out,
                      struct plait_error *err)
{
    char kind[48];
    int i;

    if (node->type != YAML_SEQUENCE_NODE ||
        plait_yaml_count(node) != field->count) {
        snprintf(kind, sizeof(kind), "a list of %d numbers", field->count);
        return wrong(yaml, node, field, err, kind);
    }
    for (i = 0; i < field->count; i++)
        if (read_real(yaml, plait_yaml_item(yaml, node, i), field, out + i,
                      err) < 0)
            return -1;
    return 0;
}

static int read_bool(struct plait_yaml *yaml, const yaml_node_t *node,
                     const struct plait_yaml_field *field, bool *out,
                     struct plait_error *err)
{
    const char *text = plain(node);

    if (text && !strcmp(text, "true"))
        *out = true;
    else if (text && !strcmp(text, "false"))
        *out = false;
    else
        return wrong(yaml, node, field, err, "true or false");
    return 0;
}

/* "a, b or c" */
static void list_names(const char *const *names, int n, const char *last,
                       char *buf, size_t size)
{
    size_t used = 0;
    int i;

    buf[0] = '\0';
    for (i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s",
                                 i == 0       ? ""
                                 : i == n - 1 ? last
                                              : ", ",
                                 names[i]);
}

static int read_choice(struct plait_yaml *yaml, const yaml_node_t *node,
                       const struct plait_yaml_field *field, int *out,
                       struct plait_error *err)
{
    const char *text = plait_yaml_text(node);
    char names[160];
    int i;

    for (i = 0; text && i < field->count; i++) {
        if (!strcmp(text, field->choices[i])) {
            *out = i;
            return 0;
        }
    }
    list_names(field->choices, field->count, " or ", names, sizeof(names));
    return wrong(yaml, node, field, err, names);
}

static int read_text(struct plait_yaml *yaml, const yaml_node_t *node,
                     const struct plait_yaml_field *field, char **out,
                     struct plait_error *err)
{
    const char *text = plait_yaml_text(node);
    char *copy = NULL;
    int ignored;

    if (field->choices && read_choice(yaml, node, field, &ignored, err) < 0)
        return -1;
    if (!text || strlen(text) != node->data.scalar.length)
        return wrong(yaml, node, field, err, "a text");
    if (!is_null(node) && !(copy = strdup(text)))
        return plait_yaml_errorf(yaml, node, err, "out of memory");
    free(*out);
    *out = copy;
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
                                 "%s is a list of at most %d entries",
                                 field->name, (int)field->max);
    for (int i = 0; i < plait_yaml_count(node); i++) {
        list->n = i + 1; /* its texts are the caller's from now on */
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
    case PLAIT_YAML_BOOL:
        return read_bool(yaml, node, field, out, err);
    case PLAIT_YAML_TEXT:
        return read_text(yaml, node, field, out, err);
    case PLAIT_YAML_CHOICE:
        return read_choice(yaml, node, field, out, err);
    case PLAIT_YAML_MAP:
        return plait_yaml_read(yaml, node, field->name, field->fields,
                               field->count, out, err);
    case PLAIT_YAML_LIST:
        return read_list(yaml, node, field, out, err);
    }
    return -1;
}

/* Levenshtein's distance of two short words. */
static int distance(const char *a, const char *b)
{
    int row[64], i, j, diagonal, above;
    int n = (int)strlen(b);

    if (n >= 64)
        return n;
    for (j = 0; j <= n; j++)
        row[j] = j;
    for (i = 1; a[i - 1]; i++) {
        diagonal = row[0];
        row[0] = i;
        for (j = 1; j <= n; j++) {
            above = row[j];
            row[j] = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < row[j])
                row[j] = above + 1;
            if (row[j - 1] + 1 < row[j])
                row[j] = row[j - 1] + 1;
            diagonal = above;
        }
    }
    return row[n];
}

static int unknown_key(const struct plait_yaml *yaml, const yaml_node_t *key,
                       const char *what, const struct plait_yaml_field *fields,
                       int nfields, struct plait_error *err)
{
    const char *text = plait_yaml_text(key), *names[64];
    int i, d, best = 4, nearest = -1;
    char list[320];

    for (i = 0; i < nfields; i++) {
        d = distance(text, fields[i].name);
        if (d < best && d < (int)strlen(fields[i].name)) {
            best = d;
            nearest = i;
        }
        if (i < 64)
            names[i] = fields[i].name;
    }
    if (nearest >= 0)
        return plait_yaml_errorf(
            yaml, key, err, "unknown key '%.60s'%s%s; did you mean '%s'?", text,
            *what ? " in " : "", what, fields[nearest].name);
    list_names(names, nfields < 64 ? nfields : 64, " and ", list, sizeof(list));
    return plait_yaml_errorf(yaml, key, err,
                             "unknown key '%.60s'%s%s; the keys are %s", text,
                             *what ? " in " : "", what, list);
}

int plait_yaml_read(struct plait_yaml *yaml, yaml_node_t *mapping,
                    const char *what, const struct plait_yaml_field *fields,
                    int nfields, void *out, struct plait_error *err)
{
    yaml_node_t *key, *value;
    const char *text;
    char buf[96];
    int i, f;

    if (!mapping || is_null(mapping))
        return 0;
    if (mapping->type != YAML_MAPPING_NODE)
        return plait_yaml_errorf(
            yaml, mapping, err, "%s is a mapping of keys to values, not %s",
            *what ? what : "the document", describe(mapping, buf, sizeof(buf)));
    for (i = 0; i < plait_yaml_count(mapping); i++) {
        value = plait_yaml_pair(yaml, mapping, i, &key);
        text = plait_yaml_text(key);
        if (!text)
            return plait_yaml_errorf(yaml, key, err, "a key is a plain word");
        for (f = 0; f < nfields && strcmp(text, fields[f].name) != 0; f++)
            ;
        if (f == nfields)
            return unknown_key(yaml, key, what, fields, nfields, err);
        if (plait_yaml_get(yaml, mapping, text) != value)
            return plait_yaml_errorf(yaml, key, err, "%s is given twice", text);
        if (read_field(yaml, value, &fields[f], (char *)out + fields[f].offset,
                       err) < 0)
            return -1;
    }
    return 0;
}
