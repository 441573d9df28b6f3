/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_DISCOVER_H
#define PLAIT_TOPOLOGY_NODE_DISCOVER_H

#include <stddef.h>

#include "topology/base/error.h"

/* NVML does not answer a process that may not open this file. */
#define NODE_NVIDIA_DEVICE "/dev/nvidiactl"

enum { NODE_XML_MOST = 16 << 20 };

/* The whole machine as hwloc's XML, found by a child process that gives up
 * root's rights, in at most `seconds`: text without a NUL in its *size bytes,
 * at most NODE_XML_MOST, followed by one. It holds what Plait reads and no
 * serial numbers. NULL, with the reason in err; errno is ETIMEDOUT where it
 * took longer. */
char *node_discover_xml(int seconds, size_t *size, struct plait_error *err);

#endif
