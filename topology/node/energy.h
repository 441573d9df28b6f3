/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_ENERGY_H
#define PLAIT_TOPOLOGY_NODE_ENERGY_H

/* The energy that a GPU, by NVML, or the processors of this node, by RAPL, have
 * used. */
struct plait_energy;

#define PLAIT_ENERGY_RAPL "/sys/class/powercap"

/* Of the GPU at the PCI address `busid`; "": of the node's processors, whose
 * counters are in the folder `rapl` (Linux lets root alone read them, unless
 * the site has changed that). NULL where there is no counter, or this user may
 * not read it. */
struct plait_energy *plait_energy_create(const char *busid, const char *rapl);
void plait_energy_destroy(struct plait_energy *energy);

/* Joules since it was created. The processors' counters wrap after some
 * minutes, so call it more often than that. NAN: the counter can no longer be
 * read. */
double plait_energy_read(struct plait_energy *energy);

#endif
