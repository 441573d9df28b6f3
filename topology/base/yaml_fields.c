/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>

#include "topology/base/yaml.h"

/* What is done with each field of a table, whatever a file says. */

static void set_default(const struct plait_yaml_field *field, void *out)
{
    switch (field->type) {
    case PLAIT_YAML_INT:
    case PLAIT_YAML_SIZE:
    case PLAIT_YAML_CHOICE:
        *(int *)out = (int)field->initial[0];
        break;
    case PLAIT_YAML_INT64:
        *(int64_t *)out = (int64_t)field->initial[0];
        break;
    case PLAIT_YAML_UINT64:
        *(uint64_t *)out = (uint64_t)field->initial[0];
        break;
    case PLAIT_YAML_REAL:
        *(double *)out = field->initial[0];
        break;
    case PLAIT_YAML_REALS:
        for (int i = 0; i < field->count && i < 2; i++)
            ((double *)out)[i] = field->initial[i];
        break;
    case PLAIT_YAML_BOOL:
        *(bool *)out = field->initial[0] != 0;
        break;
    case PLAIT_YAML_MAP:
        plait_yaml_defaults(field->fields, field->count, out);
        break;
    default: /* texts and lists are empty */
        break;
    }
}

void plait_yaml_defaults(const struct plait_yaml_field *fields, int nfields,
                         void *out)
{
    for (int i = 0; i < nfields; i++)
        set_default(&fields[i], (char *)out + fields[i].offset);
}

static void clear_field(const struct plait_yaml_field *field, void *in)
{
    switch (field->type) {
    case PLAIT_YAML_TEXT:
        free(*(char **)in);
        break;
    case PLAIT_YAML_NUMBERS:
    case PLAIT_YAML_RUNS:
    case PLAIT_YAML_PAIRS:
        free(((struct plait_numbers *)in)->at);
        break;
    case PLAIT_YAML_WEIGHTS:
    case PLAIT_YAML_NAMED:
        plait_parts_clear(in);
        break;
    case PLAIT_YAML_MAP:
        plait_yaml_clear(field->fields, field->count, in);
        break;
    default:
        break;
    }
}

void plait_yaml_clear(const struct plait_yaml_field *fields, int nfields,
                      void *in)
{
    for (int i = 0; i < nfields; i++)
        clear_field(&fields[i], (char *)in + fields[i].offset);
}
