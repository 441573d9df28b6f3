/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_ASK_NODES_H
#define PLAIT_RUNTIME_STUCK_ASK_NODES_H

#include "runtime/stuck/runs.h"
#include "runtime/stuck/stacks.h"
#include "topology/base/error.h"

/* A job of Slurm's: a step that overlaps with those that run starts plait-stuck
 * --dump on each of its nodes, and what they say is put together. */

/* 1: they were asked, `seconds` between their two looks; `silent` names those
 * that did not answer, "": none. 0: no such job runs, or Slurm is not here.
 * -1, with the reason in err. */
int plait_stuck_ask_nodes(const char *job, int seconds,
                          struct plait_stuck_runs *runs,
                          struct plait_stacks *stacks, char *silent,
                          size_t size, struct plait_error *err);

/* What such a step says first, on each node. */
void plait_stuck_say_node(void);

/* Which of n nodes have no line in `text`, as "n2", "n2 and 3 others" or "":
 * how many. Pure. */
int plait_stuck_list_silent(char *const *names, int n, const char *text,
                            char *silent, size_t size);

#endif
