/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SHM_H
#define PLAIT_SHM_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/comm/comm.h"

/* All-reduce among ranks of one node through shared memory. MPI's own takes
 * two copies and a message for every part; here a chunk that is still in
 * cache is added up by all ranks at once. */
struct plait_shm;

/* Collective. *shm is NULL where the ranks are not all on one node or cannot
 * share memory. Returns an MPI error code. */
int plait_shm_create(MPI_Comm comm, struct plait_shm **shm);
void plait_shm_destroy(struct plait_shm *shm);

/* Collective; send may be recv. The sum runs over the ranks in their order,
 * so that every rank gets the same bits. */
void plait_shm_all_reduce(struct plait_shm *shm, const float *send,
                          float *recv, size_t n, enum plait_reduce op);

#endif
