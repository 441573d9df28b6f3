/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_BOOTSTRAP_INTERFACE_H
#define PLAIT_RUNTIME_COMM_BOOTSTRAP_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>

/* The network interface, "eth0", over which this host reaches another, or has
 * its own address if it is that host. -1 with errno: not known. */
int plait_interface_towards(const char *host, char *name, size_t size);

/* Whether NCCL_SOCKET_IFNAME is set, in the environment or in one of the files
 * that NCCL reads ($NCCL_CONF_FILE, ~/.nccl.conf, /etc/nccl.conf): there an
 * administrator may have chosen, and the environment would come first. */
bool plait_interface_is_chosen(void);

#endif
