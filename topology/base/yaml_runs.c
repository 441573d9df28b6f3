/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lists of whole numbers in which one may stand for many: [7, 14x8,
 * 7]. */
#include <stdlib.h>
#include <string.h>

#include "topology/base/yaml_private.h"

/* "14x8": fourteen of 8; "8": one. False where it is neither, or more than
 * `room`. */
static bool read_run(const char *text, const struct plait_yaml_field *field,
                     long room, long *times, long *value)
{
    char *end;

    *times = 1;
    if (!text || *text < '0' || *text > '9' || strlen(text) > 12)
        return false;
    *value = strtol(text, &end, 10);
    if (*end == 'x' && end[1] >= '0' && end[1] <= '9') {
        *times = *value;
        *value = strtol(end + 1, &end, 10);
    }
    return !*end && *times >= 1 && *times <= room &&
           (double)*value >= field->min && (double)*value <= field->max;
}

int plait_yaml_read_runs(struct plait_yaml *yaml, const yaml_node_t *node,
                         const struct plait_yaml_field *field,
                         struct plait_numbers *numbers, struct plait_error *err)
{
    static const char kind[] = "a list of whole numbers, or of runs of them "
                               "such as 14x8,";
    struct plait_numbers read = {0};
    long times, value;

    if (node->type != YAML_SEQUENCE_NODE)
        return plait_yaml_refuse(yaml, node, field, err, kind);
    read.at = calloc((size_t)field->count, sizeof(*read.at));
    if (!read.at)
        return plait_yaml_errorf(yaml, node, err, "out of memory");
    for (int i = 0; i < plait_yaml_count(node); i++) {
        const yaml_node_t *item = plait_yaml_item(yaml, node, i);

        if (!read_run(plait_yaml_text(item), field, field->count - read.n,
                      &times, &value)) {
            free(read.at);
            return plait_yaml_refuse(yaml, item, field, err, kind);
        }
        for (; times > 0; times--)
            read.at[read.n++] = value;
    }
    free(numbers->at);
    *numbers = read;
    return 0;
}
