/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_SHM_MAP_H
#define PLAIT_RUNTIME_COMM_SHM_SHM_MAP_H

#include <stdbool.h>
#include <stddef.h>

/* Maps `size` bytes of shared memory of this name, to be unmapped by munmap().
 * create: makes it, zeroed; it must not exist. Otherwise it must be of this
 * user and of that size. NULL with errno, and what was
 * made is removed. The memory is allocated at once, because on a full file
 * system a later page fault would kill the process. */
void *plait_shm_map(const char *name, bool create, size_t size);

/* Removes names of this kind ("/plait-", 16 hexadecimal digits, "-...") that
 * this user made more than an hour ago: their rank was killed before the others
 * had opened the memory. */
void plait_shm_sweep(void);

#endif
