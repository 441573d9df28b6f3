/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_COMPAT_H
#define PLAIT_TOPOLOGY_NODE_COMPAT_H

#include <hwloc.h>
#include <stdbool.h>

/* Where hwloc 3 and hwloc 2 differ in what is used here. */

#if HWLOC_API_VERSION >= 0x00030000
/* An OS device may have several types. */
static inline bool node_osdev_is(hwloc_obj_t obj, hwloc_obj_osdev_types_t type)
{
    return (obj->attr->osdev.types & type) != 0;
}
#define NODE_INFOS(obj) ((obj)->infos.array)
#define NODE_INFOS_COUNT(obj) ((obj)->infos.count)
#define NODE_MEANS_BANDWIDTH HWLOC_DISTANCES_KIND_VALUE_BANDWIDTH
#else
static inline bool node_osdev_is(hwloc_obj_t obj, hwloc_obj_osdev_type_t type)
{
    return obj->attr->osdev.type == type;
}
#define NODE_INFOS(obj) ((obj)->infos)
#define NODE_INFOS_COUNT(obj) ((obj)->infos_count)
#define NODE_MEANS_BANDWIDTH HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH
#endif

#endif
