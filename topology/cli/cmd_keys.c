/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/numbers.h"
#include "topology/base/yaml.h"
#include "topology/cli/commands.h"
#include "topology/job/job_config.h"

/* plait keys: list what a configuration may hold, from the table by which it is
 * read. */

static void print_help(void)
{
    printf("Usage: plait keys [PREFIX...] [OPTION...]\n\n"
           "The keys of a configuration (or those that start with a PREFIX): "
           "default and\nvalues. plait.yaml(5) says what they mean.\n\n"
           "  --json    print one JSON document\n"
           "  --help    print this\n");
}

static void print_range(FILE *out, const struct plait_yaml_field *f)
{
    if (f->type == PLAIT_YAML_UINT64)
        fputs("a whole number", out);
    else
        fprintf(out, "%.12g to %.12g", f->min, f->max);
}

void plait_cmd_print_values(FILE *out, const struct plait_yaml_field *f)
{
    switch (f->type) {
    case PLAIT_YAML_CHOICE:
        for (int i = 0; i < f->count; i++)
            fprintf(out, "%s%s", i ? "|" : "", f->choices[i]);
        break;
    case PLAIT_YAML_BOOL:
        fputs("true|false", out);
        break;
    case PLAIT_YAML_TEXT:
        fputs("a path", out);
        break;
    case PLAIT_YAML_WEIGHTS:
        fputs("a path, or {path: weight, ...}", out);
        break;
    case PLAIT_YAML_NAMED:
        fputs("a path, or {name: path, ...}", out);
        break;
    case PLAIT_YAML_REALS:
        fprintf(out, "%d numbers, each ", f->count);
        print_range(out, f);
        break;
    case PLAIT_YAML_SERIES:
    case PLAIT_YAML_NUMBERS:
        fputs("a list of numbers, each ", out);
        print_range(out, f);
        break;
    case PLAIT_YAML_RUNS:
        fputs("a list of numbers, or of runs such as 14x8, each ", out);
        print_range(out, f);
        break;
    case PLAIT_YAML_PAIRS:
        fputs("auto, or pairs of numbers, each ", out);
        print_range(out, f);
        break;
    default:
        print_range(out, f);
        if (plait_yaml_takes_auto(f))
            fputs(", or auto", out);
    }
}

static char *text_of(void (*print)(FILE *, const struct plait_yaml_field *,
                                   const void *),
                     const struct plait_yaml_field *f, const void *value)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    print(out, f, value);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static void print_values(FILE *out, const struct plait_yaml_field *f,
                         const void *value)
{
    (void)value;
    plait_cmd_print_values(out, f);
}

/* Whether a user could write this value. A default that no user could write, or
 * an empty list, stands for a value that follows from other keys, or for none.
 */
static bool is_possible(const struct plait_yaml_field *f, const void *value)
{
    const struct plait_numbers *list = value;
    double x;

    if (f->type == PLAIT_YAML_SIZE || f->type == PLAIT_YAML_INT)
        x = *(const int *)value;
    else if (f->type == PLAIT_YAML_INT64)
        x = (double)*(const int64_t *)value;
    else if (f->type == PLAIT_YAML_REAL)
        x = *(const double *)value;
    else if (f->type >= PLAIT_YAML_NUMBERS && f->type <= PLAIT_YAML_PAIRS)
        return list->n > 0 || list->is_auto;
    else if (f->type == PLAIT_YAML_SERIES)
        return ((const struct plait_reals *)value)->n > 0;
    else
        return true;
    return (x >= f->min && x <= f->max) ||
           (plait_yaml_takes_auto(f) && x == f->count);
}

static void print_default(FILE *out, const struct plait_yaml_field *f,
                          const void *value)
{
    if (is_possible(f, value))
        plait_yaml_print_value(out, f, value);
}

struct listing {
    char **prefixes; /* ends with NULL; the first NULL: all keys */
    json_t *json;    /* or NULL: text */
    int found;
};

static bool is_wanted(const struct listing *l, const char *name)
{
    if (!l->prefixes[0])
        return true;
    for (char **p = l->prefixes; *p; p++)
        if (strncmp(name, *p, strlen(*p)) == 0)
            return true;
    return false;
}

static int list_key(struct listing *l, const char *section,
                    const struct plait_yaml_field *f, const void *value)
{
    char name[80], *initial, *values;
    int rc = 0;

    snprintf(name, sizeof(name), "%s.%s", section, f->name);
    if (!is_wanted(l, name))
        return 0;
    l->found = 1;
    initial = text_of(print_default, f, value);
    values = text_of(print_values, f, value);
    if (!initial || !values)
        rc = -1;
    else if (l->json)
        rc = json_array_append_new(l->json, json_pack("{s:s, s:s, s:s}", "key",
                                                      name, "default", initial,
                                                      "values", values));
    else
        printf("%-30s %-14s %s\n", name, *initial ? initial : "-", values);
    free(initial);
    free(values);
    return rc;
}

static int list_keys(struct listing *l)
{
    struct plait_error err;
    struct plait_job_config *defaults =
        plait_job_config_create(NULL, NULL, 0, &err);
    const struct plait_yaml_field *sections;
    int nsections, rc = 0;

    if (!defaults)
        return plait_cmd_failed("%s", err.text);
    sections = plait_job_config_sections(&nsections);
    for (int i = 0; i < nsections && rc == 0; i++)
        for (int j = 0; j < sections[i].count && rc == 0; j++) {
            const struct plait_yaml_field *f = &sections[i].fields[j];

            rc = list_key(l, sections[i].name, f,
                          (const char *)defaults + sections[i].offset +
                              f->offset);
        }
    plait_job_config_destroy(defaults);
    if (rc < 0)
        return plait_cmd_failed("out of memory");
    if (!l->found)
        return plait_cmd_misused("keys: no key starts with '%s'; they are "
                                 "SECTION.KEY, and 'plait keys' lists all",
                                 l->prefixes[0]);
    return PLAIT_EXIT_GOOD;
}

int plait_cmd_keys(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct listing listing = {0};
    int opt, rc, json = 0;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h') {
            print_help();
            return PLAIT_EXIT_GOOD;
        }
        if (opt != 'j')
            return plait_cmd_refuse_option(options, "h", argc, argv);
        json = 1;
    }
    listing.prefixes = argv + optind;
    if (json && !(listing.json = json_array()))
        return plait_cmd_failed("out of memory");
    rc = list_keys(&listing);
    if (json && rc == PLAIT_EXIT_GOOD)
        return plait_cmd_json(listing.json);
    json_decref(listing.json);
    return rc;
}
