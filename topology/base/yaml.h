/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_YAML_H
#define PLAIT_TOPOLOGY_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <yaml.h>

#include "topology/base/error.h"
#include "topology/base/numbers.h"
#include "topology/base/parts.h"

/* Reading YAML by a table of fields, so that every error names the file, the
 * line, and what would be right. Not installed: topology/ reads its own
 * files with it. */

struct plait_yaml;

/* Load one document. NULL, with the reason in err. */
struct plait_yaml *plait_yaml_create(const char *path, struct plait_error *err);
struct plait_yaml *plait_yaml_parse(const char *name, const char *text,
                                    size_t size, struct plait_error *err);
/* The file as it is, malloc'ed, for plait_yaml_parse(), and a NUL that *size
 * does not count. */
int plait_yaml_file(const char *path, char **text, size_t *size,
                    struct plait_error *err);
/* A command-line override "a.b=VALUE" as the document {a: {b: VALUE}}; errors
 * start with `option` and the text instead of a file and a line. */
struct plait_yaml *plait_yaml_parse_set(const char *option, const char *text,
                                        struct plait_error *err);
void plait_yaml_destroy(struct plait_yaml *yaml);

/* NULL if the document is empty. Nodes live as long as the document. */
yaml_node_t *plait_yaml_root(struct plait_yaml *yaml);
/* Entries of a mapping or a sequence, 0 for anything else. */
int plait_yaml_count(const yaml_node_t *node);
yaml_node_t *plait_yaml_item(struct plait_yaml *yaml,
                             const yaml_node_t *sequence, int index);
/* The value of a mapping's entry, its key in *key. */
yaml_node_t *plait_yaml_pair(struct plait_yaml *yaml,
                             const yaml_node_t *mapping, int index,
                             yaml_node_t **key);
/* The value under `key`, or NULL (also where `mapping` is not one). */
yaml_node_t *plait_yaml_get(struct plait_yaml *yaml, const yaml_node_t *mapping,
                            const char *key);
/* The text of a scalar, NULL for anything else. */
const char *plait_yaml_text(const yaml_node_t *node);
/* "NAME:LINE: ..." into err; returns -1. */
int plait_yaml_errorf(const struct plait_yaml *yaml, const yaml_node_t *node,
                      struct plait_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

enum plait_yaml_type {
    PLAIT_YAML_INT,     /* int, min .. max */
    PLAIT_YAML_SIZE,    /* int, min .. max; "auto" becomes `count` */
    PLAIT_YAML_INT64,   /* int64_t, min .. max; where `count` is not 0, "auto"
                           becomes `count` */
    PLAIT_YAML_UINT64,  /* uint64_t, any */
    PLAIT_YAML_REAL,    /* double, min .. max */
    PLAIT_YAML_REALS,   /* double[count], each min .. max */
    PLAIT_YAML_SERIES,  /* struct plait_reals, each min .. max */
    PLAIT_YAML_BOOL,    /* bool: true or false */
    PLAIT_YAML_TEXT,    /* char *, malloc'ed, the old one freed; null: NULL */
    PLAIT_YAML_CHOICE,  /* an enum (int): the index into `choices` */
    PLAIT_YAML_MAP,     /* struct, read by `fields`; empty: untouched */
    PLAIT_YAML_NUMBERS, /* struct plait_numbers, the old ones freed: a list of
                           whole numbers, each min .. max */
    PLAIT_YAML_RUNS,    /* the same, at most `count` of them; 3x4 is three of
                           4 */
    PLAIT_YAML_PAIRS,   /* the same of lists of two such numbers, or "auto" */
    PLAIT_YAML_WEIGHTS, /* struct plait_parts, the old ones freed: a path, or
                           a mapping of paths to weights, min .. max; null:
                           none */
    PLAIT_YAML_NAMED,   /* the same: a path, or a mapping of names to paths */
    PLAIT_YAML_LIST     /* struct plait_yaml_list: up to `max` structs of
                           `stride` bytes, each read by `fields` */
};

/* `items`: an array of zeros that the caller made; n: how many entries of it
 * are read. */
struct plait_yaml_list {
    int n;
    void *items;
};

struct plait_yaml_field {
    const char *name;
    enum plait_yaml_type type;
    size_t offset; /* into the struct that is filled */
    double min, max;
    double initial[2]; /* what plait_yaml_defaults() sets: of REALS each, else
                      the first; 0 where none is given */
    int count; /* of REALS, RUNS, choices or fields; the value of "auto" in
                  SIZE, INT64 */
    const char *const *choices;
    const struct plait_yaml_field *fields;
    size_t stride;
    bool own;         /* ranks of one run may have different values */
    const char *also; /* other programs' names for it, separated by spaces: for
                         suggestions */
};

/* Whether "auto" is a value of the integer. */
bool plait_yaml_takes_auto(const struct plait_yaml_field *field);
/* Set the fields of the struct at `out`, which is all zeros, to their defaults:
 * numbers, truth values and choices. */
void plait_yaml_defaults(const struct plait_yaml_field *fields, int nfields,
                         void *out);
/* Free what the fields of the struct at `in` have. */
void plait_yaml_clear(const struct plait_yaml_field *fields, int nfields,
                      void *in);
/* Fill the struct at `out` from a mapping. Keys that are absent leave their
 * field as it is; unknown and repeated keys, wrong types and values out of
 * range are refused. `what` names the mapping in errors ("" at the top).
 * On failure `out` may be half filled: its texts are still the caller's. */
int plait_yaml_read(struct plait_yaml *yaml, yaml_node_t *mapping,
                    const char *what, const struct plait_yaml_field *fields,
                    int nfields, void *out, struct plait_error *err);

/* The reverse of plait_yaml_read(): print "section:" and a line for each
 * number, truth value and choice of the struct at `in`, from which the same
 * values are read. Other types are left out. */
void plait_yaml_print(FILE *out, const char *section,
                      const struct plait_yaml_field *fields, int nfields,
                      const void *in);
/* One value alone: a number, truth value, choice or list of numbers. */
void plait_yaml_print_value(FILE *out, const struct plait_yaml_field *field,
                            const void *value);

#endif
