/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_LAYOUT_H
#define PLAIT_LAYOUT_H

#include <plait/error.h>
#include <plait/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many ranks there are along each parallel axis, and which axis varies
 * fastest: the arithmetic between ranks and coordinates. */
struct plait_layout;

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

/* The process groups a trainer needs. The first PLAIT_NAXES are the axes. */
enum plait_group {
    PLAIT_GROUP_TP = PLAIT_TP,
    PLAIT_GROUP_CP = PLAIT_CP,
    PLAIT_GROUP_EP = PLAIT_EP,
    PLAIT_GROUP_DP = PLAIT_DP,
    PLAIT_GROUP_PP = PLAIT_PP,
    PLAIT_GROUP_DP_CP,     /* ranks that sum gradients of dense weights */
    PLAIT_GROUP_EXPERT_DP, /* the same of experts: cp * dp / ep ranks */
    PLAIT_GROUP_TP_PP,     /* one whole copy of the dense model */
    PLAIT_NGROUPS
};

/* "tp", "cp", "ep", "dp", "pp"; NULL where `axis` is none. Static. */
PLAIT_EXPORT const char *plait_axis_name(enum plait_axis axis);

/* A layout of `world` ranks. size[] is indexed by enum plait_axis and may
 * hold PLAIT_AUTO once (and for ep, where it means 1); `order` is a text such
 * as "tp-cp-ep-dp-pp" whose leftmost axis varies fastest, NULL for that
 * default. world = tp * cp * dp * pp, and ep divides cp * dp.
 * The caller owns the layout. NULL: the sizes do not fit, as `err` says. */
PLAIT_EXPORT struct plait_layout *
plait_layout_create(const int size[PLAIT_NAXES], const char *order, int world,
                    struct plait_error *err);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void plait_layout_destroy(struct plait_layout *layout);

/* The number of ranks, tp * cp * dp * pp. */
PLAIT_EXPORT int plait_layout_world(const struct plait_layout *layout);

/* The number of ranks along one axis; -1 with EINVAL: no such axis. */
PLAIT_EXPORT int plait_layout_size(const struct plait_layout *layout,
                                   enum plait_axis axis);

/* Write the order as text into the caller's `buf` of at least 16 bytes. */
PLAIT_EXPORT void plait_layout_format_order(const struct plait_layout *layout,
                                            char *buf);

/* The coordinate of a rank along one axis, from 0; -1 with EINVAL: no such
 * rank or axis. */
PLAIT_EXPORT int plait_layout_coordinate(const struct plait_layout *layout,
                                         int rank, enum plait_axis axis);

/* The rank at the coordinates at[], which are indexed by enum plait_axis; ep
 * follows from the others and is ignored. -1 with EINVAL: one of them is out
 * of range. */
PLAIT_EXPORT int plait_layout_find_rank(const struct plait_layout *layout,
                                        const int at[PLAIT_NAXES]);

/* The ranks of the group that `rank` belongs to, ascending: writes the first
 * `most` of them to `members` (NULL where `most` is 0) and returns how many
 * there are. -1 with EINVAL: no such group or rank, or with ENOMEM. */
PLAIT_EXPORT int plait_layout_members(const struct plait_layout *layout,
                                      enum plait_group group, int rank,
                                      int *members, int most);

#ifdef __cplusplus
}
#endif
#endif
