/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_WISH_H
#define PLAIT_WISH_H

#include "options.h"
#include "topology/config.h"
#include "topology/site.h"
#include "topology/traffic.h"

/* What the flags ask for, with the model's file where --model names one:
 * what `plait plan` makes of the same flags. For srun, sbatch and salloc,
 * with the user's rights. */
struct plait_wish {
    const struct plait_options *options;
    struct plait_config *config; /* NULL: no --model */
    struct plait_gpu_type gpu;
    struct plait_traffic traffic;
};

/* The GPUs are what the site file says, h100 where `site` is NULL. Errors
 * are those of the model's file. */
int plait_wish_open(struct plait_wish *wish,
                    const struct plait_options *options,
                    const struct plait_site *site, struct plait_error *err);
void plait_wish_close(struct plait_wish *wish);

/* The layout for `tasks` tasks, `per_node` on each node (0: not known). */
int plait_wish_layout(struct plait_wish *wish, int tasks, int per_node,
                      struct plait_layout *layout, struct plait_error *err);

/* Fill in the request's layout, rank order, placement, traffic and GPU type;
 * its nodes and tasks are there. The wish must outlive it. */
int plait_wish_request(struct plait_wish *wish,
                       struct plait_plan_request *request,
                       struct plait_error *err);

#endif
