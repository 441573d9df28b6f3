/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_SCONTROL_H
#define PLAIT_TOPOLOGY_START_SCONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"
#include "topology/fabric/fabric.h"

/* The switches as `scontrol show topology` prints them, run by srun as the
 * user. The C interface to the same (slurm_load_topo) changed its types in
 * 23.11 and again in 25.05, while this text is stable, and a topology.conf is
 * not on every submit host. A cluster without a topology is flat. Since 25.05
 * a partition may have a topology of its own, which that command prints only by
 * its name: `partition` is the job's, NULL: the cluster's default one. NULL,
 * with the reason in err. */
struct plait_fabric *plait_scontrol_fabric(const char *partition,
                                           struct plait_error *err);
/* The topology of this name. */
struct plait_fabric *plait_scontrol_topology(const char *name,
                                             struct plait_error *err);
/* The name of the partition's own topology, from the output of `scontrol -o
 * show partition`; "": it has none. */
void plait_scontrol_parse_partition(const char *text, const char *partition,
                                    char *name, size_t size);

/* Whether the switches are Slurm's blocks in one of the partitions (A,B,...)
 * that a job asks for; NULL: the default one. */
bool plait_scontrol_has_blocks(const char *partitions);

/* A step's nodes in the order of their first tasks, as `sattach --layout`
 * prints them. */
struct plait_step_layout {
    int nnodes;
    char **names; /* [nnodes] */
    int *tasks;   /* [nnodes] */
    int *ids;     /* [nnodes] SLURM_NODEID */
};

/* For a task of the step; NULL, with the reason in err. */
struct plait_step_layout *plait_scontrol_step(const char *job_step,
                                              struct plait_error *err);
void plait_step_layout_destroy(struct plait_step_layout *step);

/* When Slurm would start a job with these options of sbatch (a NULL after
 * them), without submitting it: seconds since the epoch. -1: never, with
 * Slurm's reason in err. Times are read in the process's time zone, so
 * SLURM_TIME_FORMAT must not be set to another form than the standard one. */
int plait_sbatch_start(char *const options[], int64_t *start,
                       struct plait_error *err);

/* The value of "NAME     = VALUE" at the start of a line of `scontrol show
 * config`, and its length in bytes, up to a blank; NULL: there is none. */
const char *plait_scontrol_value(const char *text, const char *name,
                                 int *length);

/* Whether this Slurm authenticates users by munge: 1, with the socket of its
 * munged in `socket` ("" for munge's default); 0: by another method, whose name
 * is in `socket`; -1, with the reason in err. */
int plait_scontrol_munge(char *socket, size_t size, struct plait_error *err);
/* The same from the output of `scontrol show config`. */
int plait_scontrol_parse_munge(const char *text, char *socket, size_t size,
                               struct plait_error *err);

/* NodeAddr of a node; its name where scontrol does not give one. */
void plait_scontrol_address(const char *node, char *buf, size_t size);

#endif
