/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_PARTS_H
#define PLAIT_TOPOLOGY_NODE_PARTS_H

#include <hwloc.h>
#include <stdbool.h>

/* What a vendor's library counts as GPUs below one PCI device: itself, or the
 * partitions of an MI300, the MIG instances of an A100 or H100, the tiles of an
 * Intel GPU. These are what the variable that lists visible GPUs counts, so
 * that these are placed. */

enum { NODE_PARTS_MOST = 64, NODE_UUID = 64 };

struct node_part {
    int number; /* by which the library and its variable name it, -1 unknown */
    int file;   /* of its device file, /dev/dri/renderD<file>, -1 unknown */
    char uuid[NODE_UUID]; /* "GPU-...", "MIG-...", "" unknown */
};

/* Append a part to those that the PCI device has noted. Best effort. */
void node_note_part(hwloc_obj_t pci, const struct node_part *part);

/* The parts of a GPU of this vendor, at least one: as discovery has noted them,
 * or as a GPU library has listed them. Returns how many, NODE_PARTS_MOST at
 * most. */
int node_find_parts(hwloc_obj_t pci, const char *vendor,
                    struct node_part *parts);
/* Which of them an OS device of a library is, 0 where it is the only one. */
int node_part_of(hwloc_obj_t osdev);

/* Did `library` ("rsmi") find this OS device ("rsmi3")? Its number, or -1. */
int node_found_by(hwloc_obj_t osdev, const char *library);

#endif
