/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FIELDS_H
#define PLAIT_TOPOLOGY_JOB_FIELDS_H

#include <stddef.h>

#include "topology/base/yaml.h"

/* How the tables of a configuration's keys are written. */

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Limits of the whole-number keys: far beyond any use, and products of a few of
 * them fit 64 bits. */
#define COUNT_MOST (1 << 20)

#define FIELD(section, key, member, kind, ...)                       \
    {                                                                \
        .name = key, .type = PLAIT_YAML_##kind,                      \
        .offset = offsetof(struct plait_##section##_config, member), \
        __VA_ARGS__                                                  \
    }
#define RANGE(a, b) .min = (a), .max = (b)
#define DEFAULT(...) .initial = {__VA_ARGS__}
#define CHOICES(list) .count = COUNT(list), .choices = (list)

#endif
