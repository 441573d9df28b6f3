/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_TOPO_DRAW_H
#define PLAIT_TOPOLOGY_CLI_TOPO_DRAW_H

#include <jansson.h>
#include <stdio.h>

#include "topology/node/node.h"

/* The three outputs of `plait topo`. */

/* "X", "PIX", "PXB", "PHB", "NODE", "SYS" */
extern const char *const topo_distance_names[];

/* A tree of the machine and a matrix of the distances between its devices.
 * `utf8` allows line-drawing characters. */
void topo_print_text(const struct plait_node *node, int utf8, FILE *out);

/* The document of --json; NULL without memory. */
json_t *topo_to_json(const struct plait_node *node);

/* A picture of the machine. */
void topo_print_svg(const struct plait_node *node, FILE *out);

/* Shared by text and picture. */

/* The NUMA nodes that a device or the host knows, ascending; -1 stands for
 * devices without a NUMA node. Caller frees; NULL without memory. */
int *topo_numas_of(const struct plait_node *node, int *n);

struct topo_device {
    int is_nic, index;
    int behind; /* the switch, as above, or -1 */
};

/* The devices of one NUMA node in drawing order: those behind the same switches
 * are adjacent. Returns how many; `devices` has room for all of the node's. */
int topo_devices_of(const struct plait_node *node, int numa,
                    struct topo_device *devices);

/* How all pairs of an island are linked. */
struct topo_island {
    int ngpus;
    int first;      /* its first GPU */
    int all_to_all; /* every pair is linked, and with the same bandwidth */
    double gbps;    /* ... which is this; else the best link */
    double least;   /* the weakest link, not counting pairs without one */
};
void topo_describe_island(const struct plait_node *node, int island,
                          struct topo_island *about);

#endif
