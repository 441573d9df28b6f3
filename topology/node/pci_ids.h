/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_PCI_IDS_H
#define PLAIT_TOPOLOGY_NODE_PCI_IDS_H

#include <stdbool.h>
#include <stdio.h>

/* Names of PCI devices, from the system's pci.ids. */

/* The product's name in a name of pci.ids: "Instinct MI300A" of "Aqua Vanjaram
 * [Instinct MI300A]", or all of it. */
void node_short_name(const char *name, char *to, size_t size);

/* Look the ids up in such a file; on false `to` is unchanged. */
bool node_find_name(FILE *file, unsigned vendor, unsigned device, char *to,
                    size_t size);

/* A name for a GPU by its ids, never empty: the table of node_gpu_model(), the
 * system's pci.ids, or else the ids themselves ("NVIDIA GPU 10de:307f"). "" if
 * both ids are 0. */
void node_name_gpu(unsigned vendor, unsigned device, char *to, size_t size);

#endif
