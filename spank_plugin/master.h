/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_MASTER_H
#define PLAIT_SPANK_PLUGIN_MASTER_H

#include <stddef.h>
#include <stdint.h>

/* The ports that MASTER_PORT is chosen from, above Linux's own ephemeral
 * ports (up to 60999): PLAIT_PORT_ALONE of them for steps on one node, then
 * PLAIT_PORT_SHARED for steps on several. */
#define PLAIT_PORT_FIRST 61003
#define PLAIT_PORT_ALONE 2247
#define PLAIT_PORT_SHARED 2246

/* The port at which a step on one node starts to look for a free one. A
 * thousand steps of a job, and jobs with ids next to each other, start at
 * different ports. */
int plait_master_port_alone(uint32_t job, uint32_t step);

/* The port of a step on several nodes, which RANK 0's node cannot change
 * later. The ports are divided among the node's `total` processors, and this
 * is one of the job's: `cpus` as Slurm lists them ("0-3,8"). So no two jobs
 * get the same, unless the partition oversubscribes processors, and no two
 * steps of a job until its ports are used up. Where Slurm lists no
 * processors, any port may be chosen. */
int plait_master_port_shared(uint32_t job, uint32_t step, const char *cpus,
                             int total);

/* The number at the start of "1234", "1234,1235" or "1234-1240" if it is a
 * port, else 0. */
int plait_master_read_port(const char *text);

/* Write "host:port" of RANK 0's node for the step on `nnodes` nodes that srun
 * is about to start. The port is the user's own MASTER_PORT, or one of the
 * above. */
void plait_master_choose(const char *node, int nnodes, uint32_t job,
                         uint32_t step, char *buf, size_t size);

/* Did the user set MASTER_PORT? */
int plait_master_is_given(void);

/* Read "host:port"; 0, or -1 if it is none. */
int plait_master_parse(const char *text, char *host, size_t size, int *port);

/* Reserve the port among all steps that this plugin starts on this machine,
 * until the returned descriptor is closed or its process ends. -1 with
 * EADDRINUSE: another step reserved it, or a process listens there. */
int plait_master_port_hold(int port);

/* The same for the first port that is free from *port on, among those of
 * steps on one node. */
int plait_master_port_take(int *port);

#endif
