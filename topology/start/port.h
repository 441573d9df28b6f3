/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_PORT_H
#define PLAIT_TOPOLOGY_START_PORT_H

#include <stdint.h>

/* The ports that MASTER_PORT is chosen from: below those that Linux hands out
 * (from 32768), and none that others take for their own rendezvous: Lightning's
 * 15000 to 24999, torchrun's 29400 (its --rdzv-endpoint without a port) and
 * 29500, the example 60001 to 63000 of slurm.conf(5) for srun, JAX's 61440 to
 * 65535. Their number is prime: any stride visits all. */
#define PLAIT_PORT_FIRST 25003
#define PLAIT_PORTS 4397

/* The port at which RANK 0's node starts to look for a free one. A thousand
 * steps of a job, and jobs with ids next to each other, start at different
 * ports. */
int plait_master_port_start(uint32_t job, uint32_t step);

/* The number at the start of "1234", "1234,1235" or "1234-1240" if it is a
 * port, else 0. */
int plait_master_read_port(const char *text);

/* Reserve the port among all steps that this plugin starts on this machine,
 * until the returned descriptor is closed or its process ends. -1 with
 * EADDRINUSE: another step reserved it, or a process listens there. */
int plait_master_port_hold(int port);

/* The same for the first of our ports that is free from *port on, or one that
 * the system chooses where all are taken. */
int plait_master_port_take(int *port);

#endif
