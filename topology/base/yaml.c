/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"
#include "topology/base/yaml_private.h"

/* Far above any real file: the limit stops the reading of a device or a
 * pipe. */
#define FILE_MOST ((size_t)64 << 20)

struct plait_yaml {
    char *name;
    bool lines; /* errors name the line */
    bool loaded;
    yaml_document_t document;
    const struct plait_yaml_field *sections;
    int nsections;
};

void plait_yaml_set_sections(struct plait_yaml *yaml,
                             const struct plait_yaml_field *sections, int n)
{
    yaml->sections = sections;
    yaml->nsections = n;
}

int plait_yaml_sections(const struct plait_yaml *yaml,
                        const struct plait_yaml_field **sections)
{
    *sections = yaml->sections;
    return yaml->nsections;
}

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

int plait_yaml_errorf(const struct plait_yaml *yaml, const yaml_node_t *node,
                      struct plait_error *err, const char *fmt, ...)
{
    char text[sizeof(err->text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    errno = EINVAL;
    if (!yaml->lines || !node)
        return plait_errorf(err, "%s: %s", yaml->name, text);
    return plait_errorf(err, "%s:%zu: %s", yaml->name,
                        node->start_mark.line + 1, text);
}

/* Whether tabs indent line `line` of a text. */
static bool has_tab(const char *text, size_t size, size_t line)
{
    const char *end = text + size;

    for (; line && text < end; line--) {
        const char *next = memchr(text, '\n', (size_t)(end - text));

        text = next ? next + 1 : end;
    }
    while (text < end && *text == ' ')
        text++;
    return text < end && *text == '\t';
}

/* What beginners most often give, in other words than the parser's, which are
 * of YAML's grammar; NULL: it is something else. */
static const char *plain_problem(const yaml_parser_t *parser, const char *text,
                                 size_t size)
{
    if (parser->error == YAML_READER_ERROR)
        return "this is no text: a YAML file is expected";
    if (parser->error == YAML_SCANNER_ERROR &&
        has_tab(text, size, parser->problem_mark.line))
        return "a tab; YAML is indented by spaces";
    if (parser->problem && strstr(parser->problem, "<document start>"))
        return "what begins here does not belong to the lines before; a file "
               "has one YAML document";
    return NULL;
}

static int parser_errorf(const struct plait_yaml *yaml, yaml_parser_t *parser,
                         const char *text, size_t size, struct plait_error *err)
{
    const char *problem = parser->problem ? parser->problem : "not YAML";
    const char *plain = plain_problem(parser, text, size);

    errno = parser->error == YAML_MEMORY_ERROR ? ENOMEM : EINVAL;
    if (!yaml->lines || parser->error == YAML_READER_ERROR)
        return plait_errorf(err, "%s: %s", yaml->name, plain ? plain : problem);
    return plait_errorf(err, "%s:%zu: %s%s%s", yaml->name,
                        parser->problem_mark.line + 1, plain ? plain : problem,
                        parser->context && !plain ? " " : "",
                        parser->context && !plain ? parser->context : "");
}

static int load_document(struct plait_yaml *yaml, const char *text, size_t size,
                         struct plait_error *err)
{
    yaml_document_t second;
    yaml_parser_t parser;
    int rc = -1;

    if (!yaml_parser_initialize(&parser)) {
        errno = ENOMEM;
        return plait_errorf(err, "%s: out of memory", yaml->name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &yaml->document)) {
        parser_errorf(yaml, &parser, text, size, err);
        goto done;
    }
    yaml->loaded = true;
    if (!plait_yaml_root(yaml)) {
        rc = 0; /* the end of an empty stream */
        goto done;
    }
    if (!yaml_parser_load(&parser, &second)) {
        parser_errorf(yaml, &parser, text, size, err);
        goto done;
    }
    if (yaml_document_get_root_node(&second))
        plait_yaml_errorf(yaml, yaml_document_get_root_node(&second), err,
                          "a second document starts here; one is expected");
    else
        rc = 0;
    yaml_document_delete(&second);
done:
    yaml_parser_delete(&parser);
    return rc;
}

static struct plait_yaml *parse_document(const char *name, bool lines,
                                         const char *text, size_t size,
                                         struct plait_error *err)
{
    struct plait_yaml *yaml = calloc(1, sizeof(*yaml));

    if (!yaml || !(yaml->name = strdup(name))) {
        plait_errorf(err, "%s: out of memory", name);
        goto error;
    }
    yaml->lines = lines;
    if (load_document(yaml, text, size, err) < 0)
        goto error;
    return yaml;
error:
    plait_yaml_destroy(yaml);
    return NULL;
}

struct plait_yaml *plait_yaml_parse(const char *name, const char *text,
                                    size_t size, struct plait_error *err)
{
    return parse_document(name, true, text, size, err);
}

static int read_file(FILE *file, char **text, size_t *size)
{
    size_t room = 1 << 16, used = 0;
    char *buf = malloc(room), *bigger;

    if (!buf)
        return -1;
    while ((used += fread(buf + used, 1, room - used, file)) == room) {
        if (room >= FILE_MOST) {
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
    buf[used] = '\0'; /* the loop ends with used < room */
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
    int rc;

    if (!file)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    rc = read_file(file, text, size);
    if (rc < 0)
        plait_errorf(err, "%s: %s", path, strerror(errno));
    fclose(file);
    return rc;
}

struct plait_yaml *plait_yaml_create(const char *path, struct plait_error *err)
{
    struct plait_yaml *yaml;
    char *text;
    size_t size;

    if (plait_yaml_file(path, &text, &size, err) < 0)
        return NULL;
    yaml = parse_document(path, true, text, size, err);
    free(text);
    return yaml;
}

/* "a.b=VALUE" -> "a:\n b:\n  VALUE", so that one reader serves both. */
static char *set_document(const char *text)
{
    const char *equals = strchr(text, '=');
    char *out, *to;
    int depth = 0;

    if (!equals || equals == text || strpbrk(text, "\r\n"))
        return errno = EINVAL, NULL;
    for (const char *p = text; p < equals; p++) {
        if (*p == '.')
            depth++;
        else if (!(*p >= 'a' && *p <= 'z') && *p != '_' &&
                 !(*p >= '0' && *p <= '9'))
            return errno = EINVAL, NULL;
    }
    to = out = malloc(strlen(text) + (size_t)(depth + 3) * (depth + 3));
    if (!out)
        return NULL;
    depth = 0;
    for (const char *p = text; p <= equals; p++) {
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
    plait_text_clean(name);
    if (!document) {
        plait_errorf(err, "%s: %s", name,
                     errno == ENOMEM ? "out of memory"
                                     : "write SECTION.KEY=VALUE");
        return NULL;
    }
    yaml = parse_document(name, false, document, strlen(document), err);
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
    int n;

    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    n = plait_yaml_count(mapping);
    for (int i = 0; i < n; i++) {
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
