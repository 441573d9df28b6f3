/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_FABRIC_H
#define PLAIT_FABRIC_H

#include <stddef.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The switches between the nodes, as a forest of switches (or blocks) with
 * nodes as leaves. A node that no switch names hangs from the root. */
struct plait_fabric;

/* Guess the format from the content: topology.conf (tree or block),
 * topology.yaml, `scontrol show topology` output, ibnetdiscover output. */
struct plait_fabric *plait_fabric_create(const char *path,
                                         struct plait_error *err);
struct plait_fabric *plait_fabric_parse(const char *name, const char *text,
                                        size_t size, struct plait_error *err);
/* Every node one hop from every other. */
struct plait_fabric *plait_fabric_create_flat(void);
void plait_fabric_destroy(struct plait_fabric *fabric);

/* Switch levels above the nodes: 0 flat, 1 leaves only, 2 leaf + spine. */
int plait_fabric_levels(const struct plait_fabric *fabric);

/* Lowest level that joins two nodes: 0 the same node, 1 one leaf (or one
 * block), ...; a number above plait_fabric_levels() if no switch does. */
int plait_fabric_distance(const struct plait_fabric *fabric, const char *a,
                          const char *b);

#ifdef __cplusplus
}
#endif
#endif
