/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_YAML_PRIVATE_H
#define PLAIT_TOPOLOGY_BASE_YAML_PRIVATE_H

#include "topology/base/yaml.h"

/* Shared by the files that read fields. */

/* "KEY is KIND from MIN to MAX, not ..." into err; returns -1. */
int plait_yaml_refuse(const struct plait_yaml *yaml, const yaml_node_t *node,
                      const struct plait_yaml_field *field,
                      struct plait_error *err, const char *kind);

int plait_yaml_read_runs(struct plait_yaml *yaml, const yaml_node_t *node,
                         const struct plait_yaml_field *field,
                         struct plait_numbers *numbers,
                         struct plait_error *err);

/* "a, b or c", `last` being " or ". */
void plait_yaml_list_names(const char *const *names, int n, const char *last,
                           char *buf, size_t size);

/* The sections of the whole document, for plait_yaml_unknown(). */
void plait_yaml_set_sections(struct plait_yaml *yaml,
                             const struct plait_yaml_field *sections, int n);
int plait_yaml_sections(const struct plait_yaml *yaml,
                        const struct plait_yaml_field **sections);

/* "unknown key ...", with what may have been meant; returns -1. */
int plait_yaml_unknown(const struct plait_yaml *yaml, const yaml_node_t *key,
                       const char *what, const struct plait_yaml_field *fields,
                       int nfields, struct plait_error *err);

#endif
