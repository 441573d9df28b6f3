/* SPDX-License-Identifier: Apache-2.0 */
/* Prints values as YAML by a table of fields, so that reading them gives them
 * back. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "topology/base/numbers.h"
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

/* A list, or pairs one after the other. */
static void print_numbers(FILE *out, const struct plait_numbers *x, int each)
{
    if (x->is_auto) {
        fputs("auto", out);
        return;
    }
    fputc('[', out);
    for (int i = 0; i < each * x->n; i++)
        fprintf(out, "%s%lld", i > 0 ? ", " : "", (long long)x->at[i]);
    fputc(']', out);
}

/* Three and more of a number: 3x4. */
static void print_runs(FILE *out, const struct plait_numbers *x)
{
    fputc('[', out);
    for (int i = 0, run; i < x->n; i += run) {
        const char *comma = i > 0 ? ", " : "";

        for (run = 1; i + run < x->n && x->at[i + run] == x->at[i];)
            run++;
        if (run < 3)
            run = 1;
        if (run > 1)
            fprintf(out, "%s%dx%lld", comma, run, (long long)x->at[i]);
        else
            fprintf(out, "%s%lld", comma, (long long)x->at[i]);
    }
    fputc(']', out);
}

void plait_yaml_print_value(FILE *out, const struct plait_yaml_field *field,
                            const void *value)
{
    switch (field->type) {
    case PLAIT_YAML_SIZE:
        if (*(const int *)value == field->count) {
            fputs("auto", out);
            break;
        }
        fprintf(out, "%d", *(const int *)value);
        break;
    case PLAIT_YAML_INT64:
        if (plait_yaml_takes_auto(field) &&
            *(const int64_t *)value == field->count) {
            fputs("auto", out);
            break;
        }
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
    case PLAIT_YAML_SERIES:
        print_reals(out, ((const struct plait_reals *)value)->at,
                    ((const struct plait_reals *)value)->n);
        break;
    case PLAIT_YAML_BOOL:
        fputs(*(const bool *)value ? "true" : "false", out);
        break;
    case PLAIT_YAML_CHOICE:
        fputs(field->choices[*(const int *)value], out);
        break;
    case PLAIT_YAML_NUMBERS:
        print_numbers(out, value, 1);
        break;
    case PLAIT_YAML_RUNS:
        print_runs(out, value);
        break;
    case PLAIT_YAML_PAIRS:
        print_numbers(out, value, 2);
        break;
    case PLAIT_YAML_TEXT:
    case PLAIT_YAML_MAP:
    case PLAIT_YAML_WEIGHTS:
    case PLAIT_YAML_NAMED:
    case PLAIT_YAML_LIST:
        break;
    case PLAIT_YAML_INT:
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
        plait_yaml_print_value(out, &fields[i],
                               (const char *)in + fields[i].offset);
        fputc('\n', out);
    }
}
