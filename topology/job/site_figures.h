/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_SITE_FIGURES_H
#define PLAIT_TOPOLOGY_JOB_SITE_FIGURES_H

#include <stddef.h>
#include <stdio.h>

#include "topology/base/yaml.h"
#include "topology/job/gpu_types.h"

/* The figures of a GPU type in a site file, in the units people use. */
struct plait_site_figure {
    const char *name;
    size_t offset; /* of a double in struct plait_gpu_type */
    double unit, least, most;
    /* More than this many times the figure of the table's type is taken for
     * another unit; 0: any figure may be meant. */
    double times;
    const char *meant; /* what the figure is, for that message */
};

enum { PLAIT_SITE_FIGURES = 31 };
extern const struct plait_site_figure plait_site_figures[PLAIT_SITE_FIGURES];

/* value: as the document has them, NAN where it has none. A figure that is not
 * given keeps the table's value to the last bit. */
void plait_site_apply_figures(const double value[PLAIT_SITE_FIGURES],
                              struct plait_gpu_type *type);
/* Refuse figures that only another unit explains, and a figure under both of
 * its names; `base` is the table's type. */
int plait_site_check_figures(struct plait_yaml *yaml, const yaml_node_t *entry,
                             const double value[PLAIT_SITE_FIGURES],
                             const struct plait_gpu_type *base,
                             struct plait_error *err);
/* Print the figures in which `type` differs from `base`, each as a line of a
 * site file. */
void plait_site_print_figures(FILE *out, const struct plait_gpu_type *type,
                              const struct plait_gpu_type *base);

#endif
