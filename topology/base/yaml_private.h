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

#endif
