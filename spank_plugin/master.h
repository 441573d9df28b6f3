/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_MASTER_H
#define PLAIT_SPANK_PLUGIN_MASTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/start/port.h"

/* Write "host:port" of RANK 0's node for the step that srun is about to start.
 * The port is the user's own MASTER_PORT, or plait_master_port_start(). */
void plait_master_choose(const char *node, uint32_t job, uint32_t step,
                         char *buf, size_t size);

/* Did the user set MASTER_PORT? */
bool plait_master_is_given(void);

/* Read "host:port", where the host is a name or an address. -1 if the text has
 * another form. */
int plait_master_parse(const char *text, char *host, size_t size, int *port);

#endif
