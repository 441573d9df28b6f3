/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_SWITCHES_H
#define PLAIT_TOPOLOGY_START_SWITCHES_H

#include <stdbool.h>

#include "topology/fabric/fabric.h"
#include "topology/plan/plan.h"

/* Whether the plan depends on switches. */
bool plait_switches_matter(const struct plait_plan_request *request);

/* A file with the fabric, of any format that is read, instead of Slurm's
 * topology: where that lacks NVLink domains, `plait topo --domain` writes
 * one. */
#define PLAIT_ENV_FABRIC "PLAIT_FABRIC"

/* The switches that a step's plan is made by, from that file if it has all of
 * the nodes, else from Slurm; the caller owns them, and `request` gets them.
 * NULL: the nodes stay in Slurm's order, as the plan does not depend on
 * switches, or, with the reason in `warning` (else ""), since they are not
 * known. A step is not refused for that: it can run. `partition` is the job's,
 * or NULL. */
struct plait_fabric *plait_switches_ask(struct plait_plan_request *request,
                                        const char *partition,
                                        struct plait_error *warning);

/* Whether that file, or Slurm in one of these partitions (A,B,...; NULL: the
 * default one), has blocks, in which tp groups may span nodes. */
bool plait_switches_have_blocks(const char *partitions);

/* The fabric, or NULL where it lacks a node of the request: then it is
 * destroyed, and `warning` names the node. `request` gets the result. */
struct plait_fabric *plait_switches_check(struct plait_plan_request *request,
                                          struct plait_fabric *fabric,
                                          struct plait_error *warning);

#endif
