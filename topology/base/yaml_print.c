/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "topology/base/yaml.h"

/* The shortest decimal number that is read back as the same one. */
static void print_real(FILE *out, double x)
{
    char text[32];

    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, out);
}

static void print_reals(FILE *out, const double *x, int n)
{
    fputc('[', out);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            fputs(", ", out);
        print_real(out, x[i]);
    }
    fputc(']', out);
}

static void print_value(FILE *out, const struct plait_yaml_field *field,
                        const void *value)
{
    switch (field->type) {
    case PLAIT_YAML_SIZE:
        if (*(const int *)value == 0) {
            fputs("auto", out);
            break;
        }
        fprintf(out, "%d", *(const int *)value);
        break;
    case PLAIT_YAML_INT64:
        fprintf(out, "%lld", (long long)*(const int64_t *)value);
        break;
    case PLAIT_YAML_UINT64:
        fprintf(out, "%llu", (unsigned long long)*(const uint64_t *)value);
        break;
    case PLAIT_YAML_REAL:
        print_real(out, *(const double *)value);
        break;
    case PLAIT_YAML_REALS:
        print_reals(out, value, field->count);
        break;
    case PLAIT_YAML_BOOL:
        fputs(*(const bool *)value ? "true" : "false", out);
        break;
    case PLAIT_YAML_CHOICE:
        fputs(field->choices[*(const int *)value], out);
        break;
    default:
        fprintf(out, "%d", *(const int *)value);
    }
}

static bool is_printed(enum plait_yaml_type type)
{
    return type <= PLAIT_YAML_BOOL || type == PLAIT_YAML_CHOICE;
}

void plait_yaml_print(FILE *out, const char *section,
                      const struct plait_yaml_field *fields, int nfields,
                      const void *in)
{
    fprintf(out, "%s:\n", section);
    for (int i = 0; i < nfields; i++) {
        if (!is_printed(fields[i].type))
            continue;
        fprintf(out, "  %s: ", fields[i].name);
        print_value(out, &fields[i], (const char *)in + fields[i].offset);
        fputc('\n', out);
    }
}
