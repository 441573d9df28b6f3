/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_LAYOUT_LAYOUT_H
#define PLAIT_TOPOLOGY_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/api/plait/layout.h"
#include "topology/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many ranks along each axis, and which axis varies fastest.
 *
 * world = tp * cp * dp * pp. ep is not a factor of the world: it divides
 * cp * dp, and the experts of a layer are spread over ep of those ranks
 * (Megatron's meaning). The dense coordinates come from `order` without ep;
 * the ep coordinate from the same order with cp = 1 and dp = cp * dp / ep.
 * With ep > 1, cp, ep and dp must therefore be neighbours in `order`, or
 * the two decompositions would disagree about pp. */
struct plait_layout {
    int size[PLAIT_NAXES];
    enum plait_axis order[PLAIT_NAXES]; /* order[0] varies fastest */
    unsigned unnamed; /* bit per axis that --rank-order left out: of size 1, and
                         last in the order */
};

struct plait_coord {
    int at[PLAIT_NAXES];
};

/* "tp", "cp", "ep", "dp", "pp" */
extern const char *const plait_axis_names[PLAIT_NAXES];

/* All sizes 1, the default order. */
void plait_layout_init(struct plait_layout *layout);

/* Read a size: a whole number from 1 to 1048576, or "auto" (PLAIT_AUTO).
 * `what` names the value in the error ("--tp"). */
int plait_layout_parse_size(const char *what, const char *text, int *size,
                            struct plait_error *err);

/* Read "tp-cp-ep-dp-pp" in any order; each axis exactly once. */
int plait_layout_parse_order(const char *text,
                             enum plait_axis order[PLAIT_NAXES],
                             struct plait_error *err);

/* The value of --rank-order: "auto" sets *order_free, anything else is an
 * order, in which axes of size 1 may be left out. plait_layout_resolve()
 * refuses it if the size of one of these turns out to be another. */
int plait_layout_parse_rank_order(const char *text, struct plait_layout *layout,
                                  int *order_free, struct plait_error *err);

/* "--tp=2 --dp=8": the axes that are not 1, without those to be inferred;
 * "--dp=1" where that leaves none. */
void plait_layout_format_sizes(const int size[PLAIT_NAXES], char *buf,
                               size_t n);

/* Infer the sizes that are PLAIT_AUTO (dp first; at most one besides ep,
 * where auto means 1) so that the product is `world`, and check all of it.
 * The error names the numbers and the nearest layouts that would fit. */
int plait_layout_resolve(struct plait_layout *layout, int world,
                         struct plait_error *err);
/* The same for nodes of `node` tasks, 0: not known. What the error names keeps
 * tp groups within a node. */
int plait_layout_resolve_on(struct plait_layout *layout, int world, int node,
                            struct plait_error *err);

/* One size may be left out: unless one is PLAIT_AUTO already, the first of
 * dp, pp, cp and tp whose bit in `given` is not set becomes PLAIT_AUTO. */
void plait_layout_leave_out(struct plait_layout *layout, unsigned given);

/* The product of the sizes that are given, of which ep is no factor. Products
 * and sums beyond INT_MAX, which no layout takes, are INT_MAX. */
int plait_layout_given(const struct plait_layout *layout);
/* The sum of all nodes' tasks. */
int plait_layout_tasks(const int *tasks, int nnodes);

/* rank -> coordinate; 0 <= rank < world. */
void plait_layout_coord(const struct plait_layout *layout, int rank,
                        struct plait_coord *coord);

/* coordinate -> rank; the ep entry is ignored (it follows from the others). */
int plait_layout_rank(const struct plait_layout *layout,
                      const struct plait_coord *coord);

/* Does every tp group that has one of the `n` ranks from `first` on, such as
 * those of a node, lie within these ranks? */
bool plait_layout_keeps_tp(const struct plait_layout *layout, int first, int n);

/* Members of `rank`'s group, ascending. `members` holds world ints, or is
 * NULL to ask only for the size, which is returned. */
int plait_layout_group(const struct plait_layout *layout,
                       enum plait_group group, int rank, int *members);

#ifdef __cplusplus
}
#endif
#endif
