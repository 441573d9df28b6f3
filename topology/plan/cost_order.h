/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_COST_ORDER_H
#define PLAIT_TOPOLOGY_PLAN_COST_ORDER_H

#include "topology/plan/cost.h"

/* The cost of one order of the nodes, prepared so that trying another one is
 * cheap. Not installed. */
struct plait_orders;

struct plait_orders *
plait_orders_create(const struct plait_plan_request *request,
                    const struct plait_layout *layout);
void plait_orders_destroy(struct plait_orders *orders);

/* order[position] = node index; NODE_RANK is the position. Returns the
 * step's communication seconds, negative if out of memory. */
double plait_orders_cost(struct plait_orders *orders, const int *order,
                         struct plait_cost *cost);
double plait_orders_bound(struct plait_orders *orders);

/* Nodes with the same number here are interchangeable: same leaf, same
 * tasks. 0 .. classes - 1, in the order of their first node. */
const int *plait_orders_class(const struct plait_orders *orders, int *nclasses);
/* Work of one evaluation, in edges. */
int plait_orders_edges(const struct plait_orders *orders);

#endif
