/* SPDX-License-Identifier: Apache-2.0 */
/* Names and values from the files and command lines of other trainers. */
#include "topology/job/foreign_pairs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topology/base/yaml.h"

const char *plait_pairs_value(const struct plait_pairs *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!p->at[i].null && strcmp(p->at[i].name, name) == 0)
            return p->at[i].value;
    return NULL;
}

static bool is_null(const struct plait_pairs *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (p->at[i].null && strcmp(p->at[i].name, name) == 0)
            return true;
    return false;
}

bool plait_pairs_flag(const struct plait_pairs *p, const char *name)
{
    const char *value = plait_pairs_value(p, name);

    return value && strcasecmp(value, "false") && strcasecmp(value, "0") &&
           strcasecmp(value, "none");
}

int plait_pairs_number(const struct plait_pairs *p, const char *name,
                       int otherwise)
{
    const char *value = plait_pairs_value(p, name);

    return value ? atoi(value) : otherwise;
}

int plait_pairs_first(const struct plait_pairs *p, const char *name,
                      const char *word)
{
    const char *item = plait_pairs_value(p, name);
    int n = 0, at = 0;

    for (; item && *item; at++) {
        size_t length = strcspn(item, " ");

        if (length == strlen(word) && !strncmp(item, word, length) && n++ != at)
            return -1;
        item += length + strspn(item + length, " ");
    }
    return n;
}

/* NULL: null. */
static void add_pair(struct plait_pairs *p, const char *name, const char *value)
{
    if (p->n == PLAIT_PAIRS_MOST)
        return;
    snprintf(p->at[p->n].name, sizeof(p->at[0].name), "%.55s", name);
    snprintf(p->at[p->n].value, sizeof(p->at[0].value), "%.4095s",
             value ? value : "");
    p->at[p->n].null = !value;
    for (char *c = p->at[p->n].name; *c; c++)
        if (*c == '-')
            *c = '_';
    p->n++;
}

/* Append a word, if it is one, to the last value, which is a list. */
static void add_word(struct plait_pairs *p, const char *word)
{
    char *value = p->at[p->n - 1].value;
    size_t n = strlen(value), size = sizeof(p->at[0].value);

    if (!word || p->n == PLAIT_PAIRS_MOST)
        return;
    if (n + 40 < size)
        snprintf(value + n, size - n, "%s%.30s", n ? " " : "", word);
    else if (n < 4 || strcmp(value + n - 4, " ...") != 0)
        snprintf(value + n, size - n, " ...");
}

/* "--name value --flag ...", on any number of lines, as on a shell's command
 * line. */
static void read_arguments(char *text, struct plait_pairs *p)
{
    char *rest, *word = strtok_r(text, " \t\r\n\\=", &rest);
    char *next;

    for (; word; word = next) {
        next = strtok_r(NULL, " \t\r\n\\=", &rest);
        if (strncmp(word, "--", 2) != 0)
            continue;
        if (next && strncmp(next, "--", 2) != 0) {
            add_pair(p, word + 2, next);
            next = strtok_r(NULL, " \t\r\n\\=", &rest);
            for (; next && strncmp(next, "--", 2) != 0;
                 next = strtok_r(NULL, " \t\r\n\\=", &rest))
                add_word(p, next);
        } else {
            add_pair(p, word + 2, "true");
        }
    }
}

static void read_mapping(struct plait_yaml *yaml, yaml_node_t *mapping,
                         struct plait_pairs *p)
{
    yaml_node_t *key, *value;

    for (int i = 0; i < plait_yaml_count(mapping); i++) {
        value = plait_yaml_pair(yaml, mapping, i, &key);
        if (!plait_yaml_text(key))
            continue;
        if (value && value->type == YAML_SEQUENCE_NODE) {
            add_pair(p, plait_yaml_text(key), "");
            for (int k = 0; k < plait_yaml_count(value); k++)
                add_word(p, plait_yaml_text(plait_yaml_item(yaml, value, k)));
        } else if (plait_yaml_text(value)) {
            bool null = strcmp(plait_yaml_text(value), "null") == 0;

            add_pair(p, plait_yaml_text(key),
                     null ? NULL : plait_yaml_text(value));
        }
    }
}

void plait_pairs_default(struct plait_pairs *p, const char *name,
                         const char *value)
{
    if (value && !plait_pairs_value(p, name))
        add_pair(p, name, value);
}

static void read_parts(struct plait_yaml *yaml, struct plait_pairs *p)
{
    static const char tie[] = "tie_word_embeddings";
    yaml_node_t *root = plait_yaml_root(yaml);
    yaml_node_t *text = plait_yaml_get(yaml, root, "text_config");
    const char *tied;

    if (!text || text->type != YAML_MAPPING_NODE) {
        read_mapping(yaml, root, p);
        return;
    }
    read_mapping(yaml, text, p);
    tied = plait_yaml_text(plait_yaml_get(yaml, root, tie));
    if (tied && strcmp(tied, "null") != 0)
        plait_pairs_default(p, tie, tied);
    plait_pairs_default(
        p, "model_type",
        plait_yaml_text(plait_yaml_get(yaml, root, "model_type")));
}

int plait_pairs_read(const char *path, char *text, size_t size,
                     struct plait_pairs *p, struct plait_error *err)
{
    const char *start = text + strspn(text, " \t\r\n");
    struct plait_yaml *yaml;

    /* "---" begins a document of YAML */
    if (strncmp(start, "--", 2) == 0 && start[2] != '-') {
        read_arguments(text, p);
        p->arguments = true;
        return 1;
    }
    yaml = plait_yaml_parse(path, text, size, err);
    if (!yaml)
        return -1;
    if (!plait_yaml_root(yaml)) {
        plait_yaml_destroy(yaml);
        errno = EINVAL;
        return plait_errorf(err, "%s: it contains no model", path);
    }
    read_parts(yaml, p);
    plait_yaml_destroy(yaml);
    return plait_pairs_value(p, "model_type") ||
           plait_pairs_value(p, "num_layers");
}

void plait_pairs_add(struct plait_pairs *p, const char *sizes)
{
    char text[160], *rest, *word, *value;

    snprintf(text, sizeof(text), "%s", sizes ? sizes : "");
    for (word = strtok_r(text, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest)) {
        value = strchr(word, '=');
        *value++ = '\0';
        if (!is_null(p, word))
            plait_pairs_default(p, word, value);
    }
}
