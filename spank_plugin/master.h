/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_MASTER_H
#define PLAIT_MASTER_H

#include <stddef.h>
#include <stdint.h>

/* Ports for rendezvous, above what Linux hands out on its own (60999). */
#define PLAIT_PORT_FIRST 61003
#define PLAIT_PORT_COUNT 4493

/* The port of a step: different for the first thousand steps of a job, and
 * for jobs that follow each other. */
int plait_master_port(uint32_t job, uint32_t step);

/* What srun hands to the nodes: "host:port" of RANK 0. */
#define PLAIT_ENV_MASTER "SLURM_PLAIT_MASTER"

/* The number at the start of "1234", "1234,1235" or "1234-1240" if it is a
 * port, else 0. */
int plait_master_read_port(const char *text);

/* Write "host:port" of RANK 0's node for the step that srun is about to
 * start. The port is the user's own MASTER_PORT, or plait_master_port(). */
void plait_master_choose(const char *node, uint32_t job, uint32_t step,
                         char *buf, size_t size);

/* Did the user set MASTER_PORT? */
int plait_master_is_given(void);

/* Read "host:port"; 0, or -1 if it is none. */
int plait_master_parse(const char *text, char *host, size_t size, int *port);

/* Is nobody listening on the port of this machine? */
int plait_master_port_free(int port);

/* Hold the port against all other steps that this plugin starts on this
 * machine, until the returned file is closed or its process ends. -1 with
 * EADDRINUSE: another step holds it. */
int plait_master_port_hold(int port);

#endif
