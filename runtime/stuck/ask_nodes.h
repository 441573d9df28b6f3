/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_ASK_NODES_H
#define PLAIT_RUNTIME_STUCK_ASK_NODES_H

#include "runtime/stuck/runs.h"
#include "runtime/stuck/stacks.h"
#include "topology/base/error.h"

/* Ask the nodes of a Slurm job: an overlapping step runs plait-stuck --dump on
 * each of them, and their output is merged. */

/* Returns 1 where the nodes were asked; each looks at its ranks twice,
 * `seconds` apart, and `silent` names the nodes that did not answer ("": all
 * did). Returns 0 where no such job runs or Slurm is not installed, -1 with the
 * reason in err. */
int plait_stuck_ask_nodes(const char *job, int seconds,
                          struct plait_stuck_runs *runs,
                          struct plait_stacks *stacks, char *silent,
                          size_t size, struct plait_error *err);

/* Print the line that shows that this node answered. The step prints it
 * first. */
void plait_stuck_say_node(void);

/* Write the nodes that have no line in `text` to `silent`, as "n2", "n2 and 3
 * others" or "", and return how many they are. Pure. */
int plait_stuck_list_silent(char *const *names, int n, const char *text,
                            char *silent, size_t size);

#endif
