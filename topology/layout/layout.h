/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_LAYOUT_H
#define PLAIT_LAYOUT_H

#include <stddef.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The parallel axes, in the default rank order (Megatron's tp-cp-ep-dp-pp). */
enum plait_axis {
    PLAIT_TP,
    PLAIT_CP,
    PLAIT_EP,
    PLAIT_DP,
    PLAIT_PP,
    PLAIT_NAXES
};

/* A size that is to be inferred from the number of tasks. */
#define PLAIT_AUTO 0

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
};

struct plait_coord {
    int at[PLAIT_NAXES];
};

/* The process groups a trainer needs. The first PLAIT_NAXES are the axes. */
enum plait_group {
    PLAIT_GROUP_TP = PLAIT_TP,
    PLAIT_GROUP_CP = PLAIT_CP,
    PLAIT_GROUP_EP = PLAIT_EP,
    PLAIT_GROUP_DP = PLAIT_DP,
    PLAIT_GROUP_PP = PLAIT_PP,
    PLAIT_GROUP_DP_CP,     /* who shares dense weights: gradients meet here */
    PLAIT_GROUP_EXPERT_DP, /* who shares expert weights: cp * dp / ep ranks */
    PLAIT_GROUP_TP_PP,     /* one whole copy of the dense model */
    PLAIT_NGROUPS
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
 * order. */
int plait_layout_parse_rank_order(const char *text, struct plait_layout *layout,
                                  int *order_free, struct plait_error *err);

/* Write the order as text; `buf` holds at least 16 bytes. */
void plait_layout_format_order(const struct plait_layout *layout, char *buf);

/* Infer the sizes that are PLAIT_AUTO (dp first; at most one besides ep,
 * where auto means 1) so that the product is `world`, and check all of it.
 * The error names the numbers and the nearest layouts that would fit. */
int plait_layout_resolve(struct plait_layout *layout, int world,
                         struct plait_error *err);

/* One size may be left out: unless one is PLAIT_AUTO already, the first of
 * dp, pp, cp and tp whose bit in `given` is not set becomes PLAIT_AUTO. */
void plait_layout_leave_out(struct plait_layout *layout, unsigned given);

/* tp * cp * dp * pp of a resolved layout. */
int plait_layout_world(const struct plait_layout *layout);

/* rank -> coordinate; 0 <= rank < world. */
void plait_layout_coord(const struct plait_layout *layout, int rank,
                        struct plait_coord *coord);

/* coordinate -> rank; the ep entry is ignored (it follows from the others). */
int plait_layout_rank(const struct plait_layout *layout,
                      const struct plait_coord *coord);

/* Members of `rank`'s group, ascending. `members` holds world ints, or is
 * NULL to ask only for the size, which is returned. */
int plait_layout_group(const struct plait_layout *layout,
                       enum plait_group group, int rank, int *members);

#ifdef __cplusplus
}
#endif
#endif
