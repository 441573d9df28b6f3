/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_INTERFACE_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_INTERFACE_H

#include <stddef.h>

/* The network interface, "eth0", over which this host reaches another, or has
 * its own address if it is that host. -1 with errno: not known. */
int plait_interface_towards(const char *host, char *name, size_t size);

#endif
