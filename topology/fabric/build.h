/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_FABRIC_BUILD_H
#define PLAIT_TOPOLOGY_FABRIC_BUILD_H

#include "topology/base/names.h"
#include "topology/fabric/fabric.h"

/* How the readers of the formats put a fabric together. Not installed. */
struct plait_fabric {
    struct plait_names nodes, switches;
    int *leaf;   /* [nodes] switch, -1 none */
    int *above;  /* [switches] parent, -1 none; use plait_fabric_parent */
    int *same;   /* [switches] union-find: switches that count as one */
    int *height; /* [switches] set when the reader is done */
    int levels;
    int blocks;
    char **label;   /* [switches] what people call them; may be NULL, as may
                       each of them: then by their names */
    char *topology; /* the name of the one taken of several, or NULL */
    struct plait_fabric_wish *wish; /* of the caller; NULL: the default */
};

/* Which topology of a file that has several. */
struct plait_fabric_wish {
    const char *name; /* NULL: by the index */
    int index;        /* -1: the default */
    int count;        /* set by the reader: how many there are */
};

/* The index of a switch, added if new; -1: out of memory (in err). */
int plait_fabric_add_switch(struct plait_fabric *fabric, const char *name,
                            struct plait_error *err);
/* Hang a node, or a switch, below a switch. A second parent of the same
 * child makes both parents one. */
int plait_fabric_hang_node(struct plait_fabric *fabric, const char *node,
                           int below, struct plait_error *err);
int plait_fabric_hang_switch(struct plait_fabric *fabric, int child, int below,
                             struct plait_error *err);
/* Aggregated blocks: `together` consecutive ones of the first `nblocks`
 * switches get a common switch above what is already above them. */
int plait_fabric_join_blocks(struct plait_fabric *fabric, int nblocks,
                             int together, struct plait_error *err);

/* The readers; `name` stands for the file in errors. Each fills an empty
 * fabric; heights and levels are computed after it. */
typedef int plait_fabric_reader(struct plait_fabric *fabric, const char *name,
                                const char *text, size_t size,
                                struct plait_error *err);
plait_fabric_reader plait_fabric_read_conf;
plait_fabric_reader plait_fabric_read_yaml;
plait_fabric_reader plait_fabric_read_addresses;
plait_fabric_reader plait_fabric_read_ibnetdiscover;

#endif
