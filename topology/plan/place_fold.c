/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "topology/plan/place.h"

/* Folded orders of nodes (place.c says what they are for). Rank axes lie one
 * inside the other, so that positions can be read as the rows of a matrix: a
 * row is a group of inner axes, and neighbours in a column differ by one step
 * of the outer axes. Slurm's nodes taken row by row make the groups of inner
 * axes near and those of outer axes far. Taken tile by tile, with `tall` rows
 * in a tile, a switch of as many nodes as a tile holds parts of several rows
 * and of several columns, and both kinds of groups leave it less often. */

/* The first position of a row. */
static int row_start(struct plait_fold fold, int n, int64_t row)
{
    int64_t at = (row * fold.ranks + fold.per_node - 1) / fold.per_node;

    return at < n ? (int)at : n;
}

/* Number the elements of the tile whose first row is `top`, up to number
 * `stop` (negative: all of them); the last one's position. `position` may be
 * NULL. */
static int walk_tile(struct plait_fold fold, int n, int64_t top, int stop,
                     int *position)
{
    int k = row_start(fold, n, top), at = k;
    int end = row_start(fold, n, top + fold.tall);

    for (int column = 0; k < end; column++)
        for (int64_t row = top; row < top + fold.tall && k < end; row++) {
            int start = row_start(fold, n, row);

            if (start >= end)
                break;
            if (column >= row_start(fold, n, row + 1) - start)
                continue;
            at = start + column;
            if (position)
                position[k] = at;
            if (k++ == stop)
                return at;
        }
    return at;
}

void plait_fold_fill(struct plait_fold fold, int n, int *position)
{
    for (int64_t top = 0; row_start(fold, n, top) < n; top += fold.tall)
        walk_tile(fold, n, top, -1, position);
}

int plait_fold_position(struct plait_fold fold, int n, int index)
{
    int64_t row = (int64_t)index * fold.per_node / fold.ranks;

    return walk_tile(fold, n, row / fold.tall * fold.tall, index, NULL);
}

static int add_unit(int *units, int n, int value)
{
    for (int i = 0; i < n; i++)
        if (units[i] == value)
            return n;
    if (n < PLAIT_UNITS_MOST && value > 1)
        units[n++] = value;
    return n;
}

/* The products of the sizes of the inner axes, and the sizes themselves, in
 * nodes. */
int plait_units_list(const struct plait_layout *layout, int per_node, int n,
                     int units[PLAIT_UNITS_MOST])
{
    int stride = 1, count = 0;

    for (int i = 0; i < PLAIT_NAXES; i++) {
        enum plait_axis axis = layout->order[i];
        int size = axis == PLAIT_EP ? 1 : layout->size[axis];

        stride *= size;
        if (stride % per_node == 0 && stride / per_node < n)
            count = add_unit(units, count, stride / per_node);
        count = add_unit(units, count, size < n ? size : 1);
    }
    return count;
}

static int add_folds(struct plait_fold *folds, int count, int n, int ranks,
                     int per_node, int even)
{
    int rows = (int)(((int64_t)n * per_node + ranks - 1) / ranks);
    int whole = (int64_t)n * per_node % ranks == 0 && ranks % per_node == 0;

    for (int tall = 2; tall <= rows && count < PLAIT_FOLDS_MOST;
         tall = tall < 8 ? tall + 1 : tall * 2)
        if ((whole && rows % tall == 0) == even)
            folds[count++] = (struct plait_fold){ranks, per_node, tall};
    if (whole == even && count < PLAIT_FOLDS_MOST)
        folds[count++] = (struct plait_fold){ranks, per_node, rows};
    return count;
}

int plait_folds_list(const struct plait_layout *layout, int per_node, int n,
                     struct plait_fold folds[PLAIT_FOLDS_MOST], int *even)
{
    int units[PLAIT_UNITS_MOST], count = 0;
    int nunits = plait_units_list(layout, per_node, n, units);

    for (int i = 0; i < nunits; i++)
        count = add_folds(folds, count, n, units[i], 1, 1);
    *even = count;
    for (int i = 0; i < nunits; i++)
        count = add_folds(folds, count, n, units[i], 1, 0);
    for (int i = 0, stride = 1; i < PLAIT_NAXES; i++) {
        enum plait_axis axis = layout->order[i];

        stride *= axis == PLAIT_EP ? 1 : layout->size[axis];
        if (stride > per_node && stride % per_node &&
            stride < (int64_t)n * per_node)
            count = add_folds(folds, count, n, stride, per_node, 0);
    }
    return count;
}
