/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_MASTER_H
#define PLAIT_MASTER_H

#include <stddef.h>
#include <stdint.h>

/* Ports for rendezvous, above what Linux hands out on its own (60999). Those
 * of steps on one node come first, then those of steps on several. */
#define PLAIT_PORT_FIRST 61003
#define PLAIT_PORT_ALONE 2247
#define PLAIT_PORT_SHARED 2246

/* Where a step that has one node starts to look for a free port there: each
 * of a thousand steps of a job, and of the jobs that follow each other,
 * elsewhere. */
int plait_master_port_alone(uint32_t job, uint32_t step);

/* The port of a step on several nodes, which RANK 0's node cannot change any
 * more. It is one of those that belong to the job's processors there: `cpus`
 * as Slurm lists them ("0-3,8"), of `total`. No other job has these, unless
 * the partition oversubscribes them; and of the job's steps, as many as it
 * has ports have different ones. Where Slurm lists none, one of all. */
int plait_master_port_shared(uint32_t job, uint32_t step, const char *cpus,
                             int total);

/* What srun hands to the nodes: "host:port" of RANK 0. */
#define PLAIT_ENV_MASTER "SLURM_PLAIT_MASTER"

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

/* Hold the port against all other steps that this plugin starts on this
 * machine, until the returned file is closed or its process ends. -1 with
 * EADDRINUSE: another step holds it, or somebody listens there. */
int plait_master_port_hold(int port);

/* The same for the first port that is free from *port on, among those of
 * steps on one node. */
int plait_master_port_take(int *port);

#endif
