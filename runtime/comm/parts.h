/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_PARTS_H
#define PLAIT_RUNTIME_COMM_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

/* What is the same for some ranks of a world, such as those of a node, reaches
 * all others in parts, of which each of them sends one. */

/* class_of[n]: equal for equal keys, counted from 0 in the order in which they
 * first occur. Returns how many there are, or -1: out of memory. */
int plait_classes_number(const uint64_t *keys, int n, int *class_of);

/* Collective: all[nclasses][size], from mine[size], which is the same for ranks
 * of a class. class_of[ranks], nclasses and size are the same on all ranks. -1
 * with err, on all ranks together if memory lacks. */
int plait_comm_gather_parts(struct plait_comm *world, const int *class_of,
                            int nclasses, const void *mine, size_t size,
                            void *all, struct plait_error *err);

#endif
