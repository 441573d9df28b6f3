/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_FABRIC_H
#define PLAIT_FABRIC_H

#include <stddef.h>

#include <plait/error.h>
#include <plait/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The switches between the nodes, as a forest of switches (or blocks) with
 * nodes as leaves. It does not change once it is read. */
struct plait_fabric;

/* Read a file whose format is guessed from its content: topology.conf (tree
 * or block), `scontrol show topology` output, topology.yaml, a topograph
 * model, lines of "$SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN" (one
 * per node), or ibnetdiscover output. An empty file is flat. The caller owns
 * the fabric; NULL: `err` says why, naming the line. */
PLAIT_EXPORT struct plait_fabric *plait_fabric_create(const char *path,
                                                      struct plait_error *err);
/* The same from `size` bytes of text; `name` stands for the file in errors. */
PLAIT_EXPORT struct plait_fabric *plait_fabric_parse(const char *name,
                                                     const char *text,
                                                     size_t size,
                                                     struct plait_error *err);
/* Every node one hop from every other. NULL with ENOMEM. */
PLAIT_EXPORT struct plait_fabric *plait_fabric_create_flat(void);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void plait_fabric_destroy(struct plait_fabric *fabric);

/* Switch levels above the nodes: 0 flat, 1 leaves only, 2 leaf + spine. */
PLAIT_EXPORT int plait_fabric_levels(const struct plait_fabric *fabric);

/* Lowest level that joins the nodes named `a` and `b`: 0 the same node, 1 one
 * leaf (or one block), ...; a number above plait_fabric_levels() if no switch
 * does. */
PLAIT_EXPORT int plait_fabric_distance(const struct plait_fabric *fabric,
                                       const char *a, const char *b);

/* The name of the switch that a node hangs from, which belongs to the fabric;
 * NULL with ENOENT: none does. */
PLAIT_EXPORT const char *
plait_fabric_leaf_name(const struct plait_fabric *fabric, const char *node);

#ifdef __cplusplus
}
#endif
#endif
