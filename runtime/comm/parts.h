/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_PARTS_H
#define PLAIT_RUNTIME_COMM_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

/* Sends values that are the same on some ranks of a world, such as those of one
 * node, to all others: each of these ranks sends one part. */

/* class_of[n]: the class of each key, equal for equal keys, counted from 0 in
 * the order of first occurrence. Returns the number of classes, or -1: out of
 * memory. */
int plait_classes_number(const uint64_t *keys, int n, int *class_of);

/* Of which class each rank of a world is, of n. */
struct plait_classes {
    const int *of; /* [ranks] */
    int n;
};

/* Fills all[c->n][size] from mine[size], which is the same for ranks of a
 * class. The classes and the size are the same on all ranks. Collective; -1
 * with err, on all ranks if one is out of memory. */
int plait_comm_gather_parts(struct plait_comm *world,
                            const struct plait_classes *c, const void *mine,
                            size_t size, void *all, struct plait_error *err);

#endif
