/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a key that the table of fields does not have. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/base/nearest.h"
#include "topology/base/yaml_private.h"

void plait_yaml_list_names(const char *const *names, int n, const char *last,
                           char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s",
                                 i == 0       ? ""
                                 : i == n - 1 ? last
                                              : ", ",
                                 names[i]);
}

/* Is `text` one of `words`, which are separated by spaces? */
static bool is_called(const char *words, const char *text)
{
    size_t n = strlen(text), m;

    for (; words && *words; words += m + strspn(words + m, " ")) {
        m = strcspn(words, " ");
        if (m == n && strncmp(words, text, n) == 0)
            return true;
    }
    return false;
}

/* The field that `text` is another name of, or nearly the name of; -1: none. */
static int find_meant(const struct plait_yaml_field *fields, int n,
                      const char *const *names, const char *text, bool *sure)
{
    for (int i = 0; i < n; i++)
        if ((*sure = is_called(fields[i].also, text)))
            return i;
    return plait_nearest(text, names, n);
}

/* The sections that have a key `text`: "train and lr"; false: none does. */
static bool find_sections(const struct plait_yaml *yaml, const char *text,
                          char *buf, size_t size)
{
    const struct plait_yaml_field *sections;
    int n = plait_yaml_sections(yaml, &sections), found = 0;
    const char *names[64] = {NULL};

    for (int i = 0; i < n; i++)
        for (int j = 0; sections[i].type == PLAIT_YAML_MAP && found < 64 &&
                        j < sections[i].count;
             j++)
            if (strcmp(sections[i].fields[j].name, text) == 0)
                names[found++] = sections[i].name;
    plait_yaml_list_names(names, found, " and ", buf, size);
    return found > 0;
}

int plait_yaml_unknown(const struct plait_yaml *yaml, const yaml_node_t *key,
                       const char *what, const struct plait_yaml_field *fields,
                       int nfields, struct plait_error *err)
{
    const char *text = plait_yaml_text(key), *names[64];
    const char *in = *what ? " in " : "";
    int n = nfields < 64 ? nfields : 64, meant;
    bool sure = false;
    char list[320];

    for (int i = 0; i < n; i++)
        names[i] = fields[i].name;
    meant = find_meant(fields, n, names, text, &sure);
    if (!sure && find_sections(yaml, text, list, sizeof(list)))
        return plait_yaml_errorf(yaml, key, err,
                                 "unknown key '%.60s'%s%s; it is a key of %s",
                                 text, in, what, list);
    if (meant >= 0)
        return plait_yaml_errorf(yaml, key, err,
                                 "unknown key '%.60s'%s%s; did you mean '%s'?",
                                 text, in, what, fields[meant].name);
    plait_yaml_list_names(names, n, " and ", list, sizeof(list));
    return plait_yaml_errorf(yaml, key, err,
                             "unknown key '%.60s'%s%s; the keys are %s", text,
                             in, what, list);
}
